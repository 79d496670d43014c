//! Reboots of Machines that are unhealthy, before they are replaced.
//!
//! A `MachineHealthCheck` whose `spec.remediation.templateRef` names a `RebootRemediationTemplate` makes a
//! `RebootRemediation` for each unhealthy Machine, with the name of the Machine. It deletes it when the Machine is healthy
//! again. That is Cluster API's contract for remediation by another controller, so it works under any core.
//!
//! ```text
//! RebootRemediation ──> count the reboot ──> reset the machine ──> wait for the timeout ─┬─> the next one
//!                            (status)           (the cloud)                              └─> ask the owner (Machine)
//! ```
//!
//! | Rule | Where |
//! |---|---|
//! | never more resets than `spec.retryLimit`, whenever the daemon ends: each is counted in the status before the cloud is asked, and what is counted is not asked again by another process | [`next`], `work::reboot` |
//! | only the machine of a Machine that a health check has found unhealthy: the owner reference, the Machine as the API server has it in the same pass, and its infrastructure name each other, in one namespace | [`owner_of`], [`next`], [`target`](crate::plan::MachineContext::reset_target) |
//! | nothing while the object, the Machine, its infrastructure or the Cluster is paused | [`next`] |
//! | nothing but the first reboot while it is not known how the Node is: the health check's word may be old | [`is_unseen`], [`next`] |
//! | what was certainly not made uses up no reboot: it is tried until it is made | [`was_not_made`], [`next`] |
//! | the owner replaces the Machine if its Node object was deleted, if there is no machine to reset, if the provider cannot reset, and when the limit is used up | [`next`] |
//!
//! The owner is asked as Cluster API's health checks ask it: by the condition `OwnerRemediated` of the Machine, `False` with the
//! reason `WaitingForRemediation`.

mod decision;
mod definitions;
mod status;

pub use self::{
    decision::{Facts, HandOver, Next, Target, failed_check, is_unseen, next, owner_of},
    definitions::definitions,
    status::{Phase, Progress, RebootSpec, ask_owner, has_asked_owner, status, was_not_made},
};

//! On which hypervisor a new machine is made.
//!
//! libvirt never refuses a domain for want of room, so the provider counts itself. What counts as taken at a
//! hypervisor:
//!
//! - the vCPUs and the maximum memory of all its domains, ours or not, running or not;
//! - what was promised to machines whose domain is not defined yet. A promise is made together with the choice,
//!   under one lock, so 500 machines at once do not all choose the same hypervisor.
//!
//! A hypervisor that is unreachable, or has a domain that cannot be read, is not chosen. Among those with room the
//! choice spreads the machines of a cluster: first over failure domains, then over hypervisors, machines of the
//! control plane among themselves. Then the least loaded one is taken, then the first by name. So the same input
//! gives the same answer.
//!
//! # How a step uses it
//!
//! ```text
//! match placer.place(|| gather(hypervisors, &mark), &config.machines, &wanted, now)? {
//!     Placement::On(hypervisor) => go on there
//!     Placement::Wait(wait)     => answer MachineReport::Creating(wait)
//! }
//! ```
//!
//! - Call it in each step until the domain is defined: that renews the promise, which otherwise ends after an hour.
//!   The answer stays the same as long as it is possible.
//! - [`Wanted::bound`] is where parts of the machine (volumes, seed) are already, found by its UID. A restart loses
//!   the promises, and this brings them back: a decision whose first effect can be seen is never made anew.
//! - A promise for a hypervisor that has become unreachable stands, since parts may be there. Call
//!   [`Placer::release`] in a step towards gone, or if it is known that nothing was made.

mod choice;
mod domains;
mod gather;
mod promises;

pub(crate) use self::{
    choice::{Placement, Wanted},
    domains::failure_domains,
    gather::gather,
    promises::Placer,
};

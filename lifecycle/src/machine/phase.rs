//! The phase of a Machine.

use std::fmt;

/// `status.phase`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has begun.
    Pending,
    /// The bootstrap data is there, and the infrastructure is being made.
    Provisioning,
    /// It has a provider ID, and no Node yet.
    Provisioned,
    /// It has a Node.
    Running,
    /// It is updated in place.
    Updating,
    /// It is being deleted.
    Deleting,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How far a Machine has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// `status.initialization.bootstrapDataSecretCreated`
    pub has_bootstrap_data: bool,
    /// `status.initialization.infrastructureProvisioned`
    pub is_provisioned: bool,
    /// It has `spec.providerID`.
    pub has_provider_id: bool,
    /// It has `status.nodeRef`.
    pub has_node: bool,
    /// Its condition `Updating` is `True`.
    pub is_updating: bool,
    /// It has a deletion timestamp.
    pub is_deleting: bool,
}

/// The phase after this progress. `before` is the phase so far: a Machine keeps it where nothing else is known of it.
#[must_use]
pub fn phase(progress: &Progress, before: Option<Phase>) -> Phase {
    if progress.is_deleting {
        Phase::Deleting
    } else if progress.is_updating {
        Phase::Updating
    } else if progress.has_node && progress.is_provisioned {
        Phase::Running
    } else if progress.has_provider_id {
        Phase::Provisioned
    } else if progress.has_bootstrap_data && !progress.is_provisioned {
        Phase::Provisioning
    } else {
        before.unwrap_or(Phase::Pending)
    }
}

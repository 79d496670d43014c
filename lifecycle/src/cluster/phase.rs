//! The phase of a Cluster.

use std::fmt;

/// `status.phase`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has begun.
    Pending,
    /// Infrastructure or control plane are being made.
    Provisioning,
    /// The infrastructure is there, and the endpoint is known.
    Provisioned,
    /// It is being deleted.
    Deleting,
}

impl Phase {
    /// Its name, as the status has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Provisioned => "Provisioned",
            Self::Deleting => "Deleting",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How far a Cluster has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It refers to an infrastructure cluster or a control plane.
    pub has_reference: bool,
    /// `status.initialization.infrastructureProvisioned`
    pub is_provisioned: bool,
    /// `spec.controlPlaneEndpoint` has a host and a port.
    pub has_endpoint: bool,
    /// It has a deletion timestamp.
    pub is_deleting: bool,
}

/// The phase after this progress.
#[must_use]
pub fn phase(progress: &Progress) -> Phase {
    if progress.is_deleting {
        Phase::Deleting
    } else if progress.is_provisioned && progress.has_endpoint {
        Phase::Provisioned
    } else if progress.has_reference {
        Phase::Provisioning
    } else {
        Phase::Pending
    }
}

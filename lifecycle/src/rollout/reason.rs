//! Why a plan changes a `MachineSet`.

use std::collections::BTreeSet;
use std::fmt;

/// Why a plan changes a `MachineSet`, in Cluster API's words, which operators know from its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user went back to the template of a `MachineSet` that was an old one.
    CurrentAgain,
    /// Machines moved here for an update in place and are counted.
    Acknowledged {
        /// Their names: those of earlier passes too, as long as the annotation on the machine is there.
        machines: BTreeSet<String>,
    },
    /// `spec.replicas` of the deployment is lower.
    AlignedToDeployment,
    /// There may be more machines.
    Room {
        /// Machines of all `MachineSet`s.
        machines: i64,
        /// `spec.replicas` of the deployment.
        replicas: i64,
        /// The machines that a rolling update may have beyond them.
        surge: Option<i64>,
    },
    /// More machines are available than have to be.
    Available {
        /// Machines that are available.
        available: i64,
        /// Machines that have to be.
        minimum: i64,
    },
    /// What goes was not available, or was never created.
    NothingAvailableGoes,
    /// A machine was deleted by a user.
    AlignedToMachines,
    /// Machines are handed over, not deleted.
    MovesMachines {
        /// To this `MachineSet`.
        to: String,
    },
    /// One machine is created so that others can be updated in place.
    SurgeForInPlace,
    /// Machines are not created, since others will be updated in place.
    SurgeDropped {
        /// So many.
        machines: i64,
    },
    /// Machines that a user or an autoscaler has chosen go first.
    MarkedGo,
    /// Nothing could move: an old `MachineSet` loses a machine that is not available.
    Deadlock,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CurrentAgain => f.write_str("this is now the current MachineSet"),
            Self::Acknowledged { machines } => {
                let names: Vec<&str> = machines.iter().map(String::as_str).collect();
                write!(f, "acknowledge Machines {} moved from an old MachineSet", names.join(","))
            }
            Self::AlignedToDeployment => {
                f.write_str("scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas")
            }
            Self::Room { machines, replicas, surge } => {
                write!(f, "{machines} current Machines < {replicas} MachineDeployment spec.replicas")?;
                surge.map_or(Ok(()), |surge| write!(f, " + {surge} maxSurge"))
            }
            Self::Available { available, minimum } => {
                write!(f, "{available} available replicas > {minimum} minimum available replicas")
            }
            Self::NothingAvailableGoes => f.write_str(
                "scale down to align to existing Machines or scale down by removing unavailable replicas \
                 (and no available replicas exist on the MachineSet)",
            ),
            Self::AlignedToMachines => f.write_str("scale down to align to existing Machines"),
            Self::MovesMachines { to } => {
                write!(f, "should scale down by moving Machines to MachineSet {to}")
            }
            Self::SurgeForInPlace => {
                f.write_str("surge 1 allowed to create availability for in-place updates")
            }
            Self::SurgeDropped { machines } => {
                write!(f, "surge {machines} dropped to prioritize in-place updates")
            }
            Self::MarkedGo => f.write_str("machines marked for deletion go first"),
            Self::Deadlock => {
                f.write_str("scaling down by 1 to unblock rollout stuck due to unavailable Machine on oldMS")
            }
        }
    }
}

//! What is done with a machine in vCenter.

use crate::vcenter::Change;

/// What a call does with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Clone,
    /// The mark is written on a machine that another program has made.
    Mark,
    /// What its guest reads is written again.
    Guest,
    /// The bootstrap data of a machine that is a Node are emptied.
    RemoveBootstrapData,
    Upgrade,
    PowerOn,
    PowerOff,
    Reset,
    Detach,
    Destroy,
}

impl Work {
    /// Whether a fault of this type says that the work is done already.
    pub(crate) fn is_done_by(self, fault: &str) -> bool {
        match self {
            Self::Clone | Self::Mark | Self::Guest | Self::RemoveBootstrapData | Self::Reset => false,
            Self::Upgrade => fault == "AlreadyUpgraded",
            Self::PowerOn | Self::PowerOff => fault == "InvalidPowerState",
            Self::Detach | Self::Destroy => fault == "ManagedObjectNotFound",
        }
    }

    /// What the inventory shows once it is done.
    pub(crate) fn change(self) -> Option<Change> {
        match self {
            Self::Clone => Some(Change::Made),
            Self::PowerOn => Some(Change::PoweredOn),
            Self::PowerOff => Some(Change::PoweredOff),
            Self::Destroy => Some(Change::Destroyed),
            Self::Mark
            | Self::Guest
            | Self::RemoveBootstrapData
            | Self::Upgrade
            | Self::Reset
            | Self::Detach => None,
        }
    }

    /// Whether a machine that is complete stays so meanwhile. The task is not in its status.
    pub(crate) fn stops_nothing(self) -> bool {
        matches!(self, Self::Mark | Self::Guest | Self::RemoveBootstrapData | Self::Reset)
    }

    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Mark => "taking over",
            Self::Guest => "writing of the network configuration",
            Self::RemoveBootstrapData => "removal of the bootstrap data",
            Self::Upgrade => "hardware upgrade",
            Self::PowerOn => "power-on",
            Self::PowerOff => "power-off",
            Self::Reset => "reset",
            Self::Detach => "detaching of disks",
            Self::Destroy => "deletion",
        }
    }
}

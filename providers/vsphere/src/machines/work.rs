//! What is done with a machine, and what this process knows of it.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use cloudprovider::{Result, machines::Condition};
use tokio::time::Instant;

use crate::{moref::MoRef, vcenter::Change};

/// For how long work that has succeeded is of interest.
const DONE_LASTS: Duration = Duration::from_secs(60);

/// The same for a deletion: the inventory may be away for longer, and the object may stay for a while after it was told that the
/// machine is gone.
const DESTROYED_LASTS: Duration = Duration::from_secs(60 * 60);

/// When a write that a complete machine does not depend on is tried again after a failure.
pub(crate) const WRITE_RETRY: Duration = Duration::from_secs(60);

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
    Detach,
    Destroy,
}

impl Work {
    /// Whether a fault of this type says that the work is done already.
    pub(crate) fn is_done_by(self, fault: &str) -> bool {
        match self {
            Self::Clone | Self::Mark | Self::Guest | Self::RemoveBootstrapData => false,
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
            Self::Mark | Self::Guest | Self::RemoveBootstrapData | Self::Upgrade | Self::Detach => None,
        }
    }

    /// Whether a machine that is complete stays so meanwhile. The task is not in its status.
    pub(crate) fn stops_nothing(self) -> bool {
        matches!(self, Self::Mark | Self::Guest | Self::RemoveBootstrapData)
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
            Self::Detach => "detaching of disks",
            Self::Destroy => "deletion",
        }
    }
}

/// What this process knows of a machine beside its status. All of it may be lost.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The task that runs, and when it was begun.
    pub(crate) task: Option<(Work, MoRef, Instant)>,
    /// The work that has succeeded last. The inventory may show it a moment later.
    pub(crate) done: Option<(Work, Instant)>,
    /// When a clone was begun of which it is not known whether it was.
    pub(crate) uncertain: Option<Instant>,
    /// The clones that ran when the machine was to be deleted and was not found. One could be its own.
    /// By vCenter.
    pub(crate) clones: HashMap<String, HashSet<MoRef>>,
    /// Since when vCenter finds the machine by its instance UUID and the inventory does not show it.
    pub(crate) unshown_since: Option<Instant>,
    /// The task of another program that was waited for.
    pub(crate) taken_over: Option<String>,
    /// What the work is done to that was begun last: the machine, the template of a clone, or the datacenter of a power-on by DRS.
    pub(crate) target: Option<MoRef>,
    /// The vCenter that the work, or the uncertain clone, is of.
    pub(super) site: Option<String>,
    /// Whether its tags are attached. It is forgotten once the machine is complete.
    pub(crate) is_tagged: bool,
    /// Whether DRS was to power it on and told no task. It is forgotten once the machine is complete.
    pub(crate) was_left_to_drs: bool,
    /// The shape of the network configuration that its guest has. It is forgotten once the machine is complete.
    pub(crate) guest: Option<u64>,
    /// The shape that was written to its guest last, until its `VSphereVM` tells it.
    pub(crate) guest_written: Option<u64>,
    /// When an edit could not be passed on to its guest.
    pub(crate) guest_failed: Option<Instant>,
    /// When its bootstrap data could not be removed.
    pub(crate) removal_failed: Option<Instant>,
    /// Whether its vCenter is followed, as far as the step that is being made has come.
    pub(crate) vcenter: Option<Result<()>>,
    /// How far the shutdown of its guest is before it is deleted. A later process does not know whether one that is off was forced.
    pub(crate) soft_power_off: Option<Condition>,
}

impl Known {
    /// Whether nothing would be lost with it.
    pub(super) fn is_empty(&self) -> bool {
        let is_new = |(work, since): (Work, Instant)| {
            since.elapsed() < if work == Work::Destroy { DESTROYED_LASTS } else { DONE_LASTS }
        };
        self.task.is_none()
            && !self.done.is_some_and(is_new)
            && self.uncertain.is_none()
            && self.unshown_since.is_none()
            && self.clones.is_empty()
            && self.taken_over.is_none()
            && !self.is_tagged
            && self.guest.is_none()
            && self.guest_written.is_none()
            && !self.was_left_to_drs
            && self.guest_failed.is_none_or(|since| since.elapsed() >= WRITE_RETRY)
            && self.removal_failed.is_none_or(|since| since.elapsed() >= WRITE_RETRY)
    }

    /// What is still of interest of a machine that is gone: that vCenter has destroyed it, so that nobody has to ask again if the next
    /// step is made before its object has gone too.
    pub(crate) fn of_gone(&self) -> Self {
        let done = self.done.filter(|(work, _)| *work == Work::Destroy);
        Self { done, site: self.site.clone(), ..Self::default() }
    }

    /// Whether this vCenter has said that it has destroyed the machine, and nothing was begun since.
    pub(crate) fn is_destroyed_on(&self, site: &str) -> bool {
        self.has_just_done(Work::Destroy, DESTROYED_LASTS) && self.site.as_deref() == Some(site)
    }

    /// Whether the task, or the uncertain clone, is of this vCenter, as far as is known.
    pub(crate) fn is_of(&self, site: &str) -> bool {
        self.site.as_deref().is_none_or(|name| name == site)
    }

    /// The work that runs, if it stops nothing.
    pub(crate) fn quiet_work(&self) -> Option<Work> {
        self.task.as_ref().map(|(work, ..)| *work).filter(|work| work.stops_nothing())
    }

    /// Whether this work has just succeeded, so that the inventory may not show it yet.
    pub(crate) fn has_just_done(&self, work: Work, within: Duration) -> bool {
        self.done.is_some_and(|(done, since)| done == work && since.elapsed() < within)
    }
}

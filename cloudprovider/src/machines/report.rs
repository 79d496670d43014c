//! What a step of a machine saw.

use std::time::Duration;

use super::Wait;
use crate::Instance;

/// What a step towards existing saw of its machine, and what it waits for.
#[derive(Clone, Debug)]
pub enum MachineReport {
    /// The cloud confirmed that it has no such machine yet. Disks and other parts may be there.
    Creating(Wait),
    /// The machine exists.
    Present(Box<PresentMachine>),
    /// The machine existed, since the request has its provider ID, and the cloud confirmed that it is gone.
    /// It is not made again: its Node and its data are gone with it, and whoever owns the Machine replaces
    /// both.
    Lost {
        /// What was looked for, for people: `domain 4c4c... is no longer on kvm1`.
        message: String,
    },
}

/// A machine that exists.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PresentMachine {
    /// What the cloud says about it, as for its Node. It has a provider ID. `wait` says what is not complete
    /// yet, not [`incomplete`](Instance::incomplete).
    pub instance: Instance,
    /// The failure domain that it is really in, one of those in [`ClusterReport`](super::ClusterReport).
    pub failure_domain: Option<String>,
    /// What it still waits for. `None` if nothing is left to do.
    pub wait: Option<Wait>,
    /// When the next step is due at the latest although nothing is waited for, such as for work that does not
    /// matter to the machine's user. The machine is ready all the same.
    pub look_again_after: Option<Duration>,
}

impl PresentMachine {
    /// A machine with nothing left to do.
    pub fn new(instance: Instance) -> Self {
        Self { instance, failure_domain: None, wait: None, look_again_after: None }
    }

    /// Sets the failure domain.
    #[must_use]
    pub fn with_failure_domain(mut self, name: impl Into<Option<String>>) -> Self {
        self.failure_domain = name.into();
        self
    }

    /// Sets what it waits for.
    #[must_use]
    pub fn with_wait(mut self, wait: impl Into<Option<Wait>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Sets when the next step is due at the latest.
    #[must_use]
    pub fn look_again_after(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.look_again_after = after.into();
        self
    }
}

impl MachineReport {
    /// The machine is gone: `message` says what was looked for.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::Lost { message: message.into() }
    }

    /// What the machine waits for.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Creating(wait) => Some(wait),
            Self::Present(machine) => machine.wait.as_ref(),
            Self::Lost { .. } => None,
        }
    }

    /// The machine, if it exists.
    pub fn present(&self) -> Option<&PresentMachine> {
        match self {
            Self::Present(machine) => Some(machine),
            Self::Creating(_) | Self::Lost { .. } => None,
        }
    }

    /// Whether the machine exists and nothing is left to do.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Present(machine) if machine.wait.is_none())
    }
}

impl From<PresentMachine> for MachineReport {
    fn from(machine: PresentMachine) -> Self {
        Self::Present(Box::new(machine))
    }
}

/// How far a step towards gone is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Something is left, or may still appear.
    Deleting(Wait),
    /// The cloud confirmed that nothing is left that carries the mark, and no work is under way that could
    /// make something. Also the answer if there never was anything.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PowerState, ProviderId};

    #[test]
    fn a_machine_is_done_when_it_exists_and_waits_for_nothing() {
        let machine = || PresentMachine::new(Instance::new(ProviderId::new("x", "/1"), PowerState::Running));
        let waits = || Wait::address("no lease yet");
        for (report, is_done, has_wait) in [
            (MachineReport::Creating(waits()), false, true),
            (machine().with_wait(waits()).into(), false, true),
            (machine().into(), true, false),
            (MachineReport::lost("domain 1"), false, false),
        ] {
            assert_eq!((report.is_done(), report.wait().is_some()), (is_done, has_wait), "{report:?}");
        }
    }
}

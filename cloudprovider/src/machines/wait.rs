//! What a step leaves to wait for.

use std::{borrow::Cow, time::Duration};

/// What a machine or a cluster waits for before the next step can do more. The condition `Ready` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// For what.
    pub waits_for: WaitsFor,
    /// The reason of the condition, in CamelCase. A provider may have its own, such as `WaitingForClone`.
    pub reason: Cow<'static, str>,
    /// What is waited for, for people: `clone of "ubuntu-24.04" by task task-42, 40 %`. Without secrets. Keep
    /// it the same from step to step unless something changed, since each change is a write.
    pub message: Cow<'static, str>,
    /// When the next step is due at the latest. `None` if the stream of changes tells when the wait is over.
    pub look_again_after: Option<Duration>,
    /// Whether the next step gets the bootstrap data, whose Secret the controller reads for it. A step that
    /// needs them although this was false answers with [`bootstrap_data`](Self::bootstrap_data), and is
    /// called again with them.
    pub needs_bootstrap_data: bool,
}

/// For what a [`Wait`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Work that the cloud does for this object: a clone, an import, a shutdown. Meanwhile the object carries
    /// `block-move`.
    Task,
    /// An address of the guest: a DHCP lease, or a report of the guest's tools.
    Address,
    /// Bootstrap data, which the request does not have yet.
    BootstrapData,
    /// Objects of the API: its own one with what the step recorded, or others that the step wants. The next
    /// step, or another program, builds on what is in them, so the controller writes it at once. The status
    /// of other waits it may write some seconds later.
    Objects,
    /// Room in the cloud, which others may free.
    Capacity,
    /// The time that the wait names.
    Time,
}

impl WaitsFor {
    /// The reason of a condition, if the provider has no better one.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Task => "WaitingForTask",
            Self::Address => "WaitingForAddress",
            Self::BootstrapData => "WaitingForBootstrapData",
            Self::Objects => "WaitingForObjects",
            Self::Capacity => "WaitingForCapacity",
            Self::Time => "WaitingForTime",
        }
    }
}

impl Wait {
    fn new(waits_for: WaitsFor, message: impl Into<Cow<'static, str>>) -> Self {
        let reason = waits_for.reason().into();
        Self {
            waits_for,
            reason,
            message: message.into(),
            look_again_after: None,
            needs_bootstrap_data: true,
        }
    }

    /// A wait for work that the cloud does.
    pub fn task(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(WaitsFor::Task, message)
    }

    /// A wait for an address.
    pub fn address(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(WaitsFor::Address, message)
    }

    /// A wait for bootstrap data. The controller watches for them.
    pub fn bootstrap_data() -> Self {
        Self::new(WaitsFor::BootstrapData, "the bootstrap data are not there yet")
    }

    /// A wait for objects of the API.
    pub fn objects(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(WaitsFor::Objects, message)
    }

    /// A wait for room.
    pub fn capacity(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(WaitsFor::Capacity, message)
    }

    /// A wait for a time.
    pub fn time(after: Duration, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(WaitsFor::Time, message).look_again_after(after)
    }

    /// Sets the reason of the condition, in CamelCase.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets when the next step is due at the latest.
    #[must_use]
    pub fn look_again_after(mut self, after: Duration) -> Self {
        self.look_again_after = Some(after);
        self
    }

    /// Has the next step called without the bootstrap data, since the cloud has them. That saves a read of
    /// their Secret.
    #[must_use]
    pub fn without_bootstrap_data(mut self) -> Self {
        self.needs_bootstrap_data = self.waits_for == WaitsFor::BootstrapData;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_has_reasons_of_its_own() {
        let wait = Wait::task("clone of \"a\"");
        assert_eq!((&*wait.reason, wait.look_again_after), ("WaitingForTask", None));
        assert!(wait.needs_bootstrap_data && !wait.clone().without_bootstrap_data().needs_bootstrap_data);
        assert_eq!(wait.with_reason("WaitingForClone").reason, "WaitingForClone");
        assert!(
            Wait::bootstrap_data().without_bootstrap_data().needs_bootstrap_data,
            "it waits for nothing else"
        );
        let minute = Duration::from_secs(60);
        assert_eq!(Wait::time(minute, "the guest shuts down").look_again_after, Some(minute));
    }
}

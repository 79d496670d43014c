//! How a machine is powered off before it is deleted. Pure.
//!
//! | Mode | A guest that runs | A guest that cannot react (paused) | A guest that crashed |
//! |---|---|---|---|
//! | [`Hard`](PowerOffPolicy::Hard) | is powered off at once | the same | the same |
//! | [`TrySoft`](PowerOffPolicy::TrySoft) | is asked, and powered off after the timeout | is powered off after the timeout | is powered off at once |
//! | [`Soft`](PowerOffPolicy::Soft) | is asked, however long that takes | waits until somebody resumes it | is powered off at once |
//!
//! A guest is asked by its agent first, if that is connected, then by the ACPI power button, again and again:
//! a guest that is still starting does not hear the button.
//!
//! # What the step towards gone does with it
//!
//! - A domain whose state is not known is an error of the step.
//! - The time of asking is kept in the status, which is a hint. Where it is lost, the guest is asked once
//!   more and the timeout begins again, so a lost status costs one timeout and never waits for ever. A time
//!   in the future, by a clock that was wrong, counts as now.
//! - The event of the domain's end wakes the object, so the wait is as long as the guest takes.

use std::time::Duration;

use cloudprovider::{PowerState, machines::Wait};
use jiff::Timestamp;

use super::spec::{LibvirtMachineSpec, PowerOffMode};

/// When a guest that does not react is asked again.
const ASK_INTERVAL: Duration = Duration::from_secs(15);

/// How often a step checks a guest without a timeout. Its end brings an event.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// How a machine is powered off: the mode of its spec with the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerOffPolicy {
    /// At once, as if the power failed.
    Hard,
    /// By the guest itself, however long that takes.
    Soft,
    /// By the guest itself, or by force after this time.
    TrySoft(Duration),
}

impl PowerOffPolicy {
    /// What the spec says.
    pub(crate) fn of(spec: &LibvirtMachineSpec) -> Self {
        match spec.power_off_mode {
            PowerOffMode::Hard => Self::Hard,
            PowerOffMode::Soft => Self::Soft,
            PowerOffMode::TrySoft => {
                Self::TrySoft(Duration::from_secs(spec.soft_power_off_timeout_seconds.into()))
            }
        }
    }
}

/// Who passes the request to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskBy {
    /// The guest agent. libvirt waits some seconds for its answer.
    Agent,
    /// The ACPI power button.
    Acpi,
}

impl AskBy {
    /// The flag of `virDomainShutdownFlags`.
    pub(crate) fn flag(self) -> u32 {
        match self {
            Self::Agent => virt_sys::VIR_DOMAIN_SHUTDOWN_GUEST_AGENT,
            Self::Acpi => virt_sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN,
        }
    }
}

/// The next thing to do about a domain that is not off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerOffStep {
    /// Ask the guest to shut down.
    Ask {
        /// By whom.
        by: AskBy,
        /// When it was first asked, in seconds since 1970.
        since: i64,
        /// What the wait is about.
        wait: PowerOffWait,
    },
    /// Wait for the guest.
    Wait {
        /// When it was first asked, or would have been, in seconds since 1970.
        since: i64,
        /// What the wait is about.
        wait: PowerOffWait,
    },
    /// Power it off by force.
    Destroy,
}

/// What is waited for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PowerOffWait {
    is_paused: bool,
    since: i64,
    timeout: Option<Duration>,
    look_again_after: Duration,
}

impl PowerOffStep {
    /// What to keep in the status: when the guest was first asked, in seconds since 1970.
    pub(crate) fn since(&self) -> Option<i64> {
        match self {
            Self::Ask { since, .. } | Self::Wait { since, .. } => Some(*since),
            Self::Destroy => None,
        }
    }

    /// The wait of the step, unless there is none. Its words do not change while it lasts.
    pub(crate) fn wait(&self) -> Option<Wait> {
        match self {
            Self::Ask { wait, .. } | Self::Wait { wait, .. } => Some(wait.to_wait()),
            Self::Destroy => None,
        }
    }
}

impl PowerOffWait {
    fn to_wait(self) -> Wait {
        let since = Timestamp::from_second(self.since).unwrap_or(Timestamp::UNIX_EPOCH);
        let begins = if self.is_paused {
            format!("the guest is paused and cannot shut down (since {since:.0})")
        } else {
            format!("the guest was asked to shut down at {since:.0}")
        };
        let ends = match self.timeout {
            Some(timeout) => format!("it is powered off {} s later", timeout.as_secs()),
            None if self.is_paused => "it has no timeout: resume it, or power it off".to_owned(),
            None => "it has no timeout".to_owned(),
        };
        Wait::task(format!("{begins}; {ends}"))
            .with_reason("ShuttingDown")
            .look_again_after(self.look_again_after)
    }
}

/// What to do next about a domain in this state. `None`: it is off, so there is nothing left to do here.
///
/// `since` is when the guest was first asked, in seconds since 1970, as the last step left it; `now` is the
/// time.
pub(crate) fn power_off(
    state: PowerState,
    has_agent: bool,
    mode: PowerOffPolicy,
    since: Option<i64>,
    now: Timestamp,
) -> Option<PowerOffStep> {
    let timeout = match (state, mode) {
        (PowerState::Off, _) => return None,
        // Nothing is left in the guest that could shut down. What is off by a crash is in this state too.
        (PowerState::Crashed, _) | (_, PowerOffPolicy::Hard) => return Some(PowerOffStep::Destroy),
        (_, PowerOffPolicy::TrySoft(timeout)) => Some(timeout),
        (_, PowerOffPolicy::Soft) => None,
    };
    let now = now.as_second();
    let asked = since.filter(|since| *since <= now);
    let since = asked.unwrap_or(now);
    let elapsed = Duration::from_secs(u64::try_from(now.saturating_sub(since)).unwrap_or(0));
    let left = timeout.map(|timeout| timeout.saturating_sub(elapsed));
    if left.is_some_and(|left| left.is_zero()) {
        return Some(PowerOffStep::Destroy);
    }
    let is_paused = state == PowerState::Paused;
    let look = if state == PowerState::Running { ASK_INTERVAL } else { LOOK_INTERVAL };
    let look_again_after = left.map_or(look, |left| left.min(look));
    let wait = PowerOffWait { is_paused, since, timeout, look_again_after };
    Some(match state {
        PowerState::Running => {
            // an agent that was asked in vain is not asked again
            let by = if has_agent && asked.is_none() { AskBy::Agent } else { AskBy::Acpi };
            PowerOffStep::Ask { by, since, wait }
        }
        _ => PowerOffStep::Wait { since, wait },
    })
}

#[cfg(test)]
mod tests;

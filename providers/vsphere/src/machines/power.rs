//! How a machine is powered off before it is deleted. Pure.
//!
//! | Mode | A guest whose VMware Tools can shut it down | Any other guest |
//! |---|---|---|
//! | [`Hard`](PowerOffMode::Hard) | is powered off at once | the same |
//! | [`TrySoft`](PowerOffMode::TrySoft) | is asked, and powered off after the timeout | is powered off at once |
//! | [`Soft`](PowerOffMode::Soft) | is asked, however long that takes | waits for the Tools, or for somebody who powers it off |
//!
//! The time of asking is kept in the status, which is a hint. Where it is lost, the guest is asked once more and the
//! timeout begins again. A time in the future, by a clock that was wrong, counts as now.

use std::time::Duration;

use cloudprovider::machines::{Condition, ConditionStatus, Wait};

use super::spec::{PowerOffMode, VSphereMachineSpec};
use crate::vm::VmPower;

/// The timeout of `trySoft`, unless the spec has another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// When a machine is looked at again. Its end comes as a change.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// The condition of a `VSphereVM` that is deleted: whether its guest has shut down.
pub(crate) const GUEST_SOFT_POWER_OFF: &str = "GuestSoftPowerOffSucceeded";

/// The reason of [`GUEST_SOFT_POWER_OFF`] where the guest cannot be asked, or has not shut down in time.
pub(crate) const SOFT_POWER_OFF_FAILED: &str = "Failed";

/// The next thing to do about a machine that is not off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PowerOffStep {
    /// Ask the guest to shut down, and keep that it was asked at this time, in seconds since 1970.
    Ask { since: i64, wait: Wait },
    /// Wait.
    Wait(Wait),
    /// Power it off by force.
    Force,
}

/// What to do next about a machine in this state. `None`: it is off.
///
/// `can_ask` is whether its Tools run and can shut it down. `since` is when it was asked, in seconds since 1970, and
/// `now` the time.
pub(crate) fn power_off(
    power: VmPower,
    can_ask: bool,
    spec: &VSphereMachineSpec,
    since: Option<i64>,
    now: i64,
) -> Option<PowerOffStep> {
    if power == VmPower::Off {
        return None;
    }
    let timeout = match spec.power_off_mode.unwrap_or_default() {
        PowerOffMode::Hard => return Some(PowerOffStep::Force),
        PowerOffMode::Soft => None,
        PowerOffMode::TrySoft => {
            let wanted = spec.guest_soft_power_off_timeout_seconds.and_then(|one| u64::try_from(one).ok());
            Some(wanted.filter(|one| *one != 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs))
        }
    };
    let asked = since.filter(|since| *since <= now);
    let can_ask = can_ask && power == VmPower::On;
    if !can_ask && asked.is_none() {
        if timeout.is_some() {
            return Some(PowerOffStep::Force);
        }
        let words = match power {
            VmPower::Suspended => {
                "the guest is suspended and cannot shut down, and powerOffMode is soft: resume it, or power it off"
            }
            _ => {
                "the VMware Tools of the guest cannot shut it down, and powerOffMode is soft: start them, or power it off"
            }
        };
        return Some(PowerOffStep::Wait(wait(words.to_owned(), LOOK_INTERVAL)));
    }
    let since = asked.unwrap_or(now);
    let elapsed = Duration::from_secs(u64::try_from(now.saturating_sub(since)).unwrap_or_default());
    let left = timeout.map(|timeout| timeout.saturating_sub(elapsed));
    if left.is_some_and(|left| left.is_zero()) {
        return Some(PowerOffStep::Force);
    }
    let ends = match timeout {
        Some(timeout) => format!("it is powered off after {} s", timeout.as_secs()),
        None => "it has no timeout".to_owned(),
    };
    let look = left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL));
    let wait = wait(format!("the guest was asked to shut down; {ends}"), look);
    Some(match asked {
        None => PowerOffStep::Ask { since, wait },
        Some(_) => PowerOffStep::Wait(wait),
    })
}

/// The condition about the shutdown of a guest, if it is to shut down: with the next thing to do, whether it was asked before, and what
/// was told last. One that was given up has failed, although the machine is off after that.
pub(crate) fn soft_power_off(
    step: Option<&PowerOffStep>,
    was_asked: bool,
    before: Option<Condition>,
) -> Option<Condition> {
    let open = |reason: &'static str, words: String| {
        Some(Condition::new(GUEST_SOFT_POWER_OFF, ConditionStatus::False, reason).with_message(words))
    };
    match step {
        Some(PowerOffStep::Ask { wait, .. }) => open("InProgress", wait.message.to_string()),
        Some(PowerOffStep::Wait(wait)) if was_asked => open("InProgress", wait.message.to_string()),
        Some(PowerOffStep::Wait(wait)) => open(SOFT_POWER_OFF_FAILED, wait.message.to_string()),
        Some(PowerOffStep::Force) if was_asked => {
            open(SOFT_POWER_OFF_FAILED, "the guest has not shut down in time; it is powered off".to_owned())
        }
        None if was_asked && before.as_ref().is_none_or(|before| before.reason != SOFT_POWER_OFF_FAILED) => {
            Some(Condition::new(GUEST_SOFT_POWER_OFF, ConditionStatus::True, "Succeeded"))
        }
        Some(PowerOffStep::Force) | None => before,
    }
}

fn wait(words: String, look_again_after: Duration) -> Wait {
    Wait::task(words).with_reason("ShuttingDown").look_again_after(look_again_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn step(
        mode: PowerOffMode,
        power: VmPower,
        can_ask: bool,
        asked_before: Option<i64>,
    ) -> (&'static str, Option<u64>) {
        let spec = VSphereMachineSpec {
            power_off_mode: Some(mode),
            guest_soft_power_off_timeout_seconds: Some(90),
            ..VSphereMachineSpec::default()
        };
        let look = |wait: Wait| wait.look_again_after.map(|after| after.as_secs());
        match power_off(power, can_ask, &spec, asked_before.map(|seconds| NOW - seconds), NOW) {
            None => ("off", None),
            Some(PowerOffStep::Force) => ("force", None),
            Some(PowerOffStep::Ask { since, wait }) => {
                assert_eq!(since, NOW);
                ("ask", look(wait))
            }
            Some(PowerOffStep::Wait(wait)) => ("wait", look(wait)),
        }
    }

    #[test]
    fn each_mode_in_each_state() {
        use PowerOffMode::{Hard, Soft, TrySoft};
        use VmPower::{Off, On, Suspended};
        for (mode, power, can_ask, asked, expected) in [
            (Hard, On, true, None, ("force", None)),
            (Hard, Off, true, None, ("off", None)),
            (Hard, Suspended, false, None, ("force", None)),
            (TrySoft, On, true, None, ("ask", Some(60))),
            (TrySoft, On, true, Some(40), ("wait", Some(50))),
            (TrySoft, On, true, Some(90), ("force", None)),
            // the Tools end before the guest does
            (TrySoft, On, false, Some(40), ("wait", Some(50))),
            (TrySoft, On, false, None, ("force", None)),
            (TrySoft, Suspended, true, None, ("force", None)),
            (TrySoft, Off, false, Some(40), ("off", None)),
            // by a clock that was wrong
            (TrySoft, On, true, Some(-500), ("ask", Some(60))),
            (Soft, On, true, None, ("ask", Some(60))),
            (Soft, On, true, Some(4000), ("wait", Some(60))),
            (Soft, On, false, None, ("wait", Some(60))),
            (Soft, Suspended, false, None, ("wait", Some(60))),
        ] {
            assert_eq!(step(mode, power, can_ask, asked), expected, "{mode:?} {power:?} {can_ask} {asked:?}");
        }
    }

    #[test]
    fn what_is_told_of_the_guest() {
        use PowerOffMode::{Hard, Soft, TrySoft};
        use VmPower::{Off, On};
        let told = |mode, power, can_ask, asked_before: Option<i64>, before: Option<Condition>| {
            let spec = VSphereMachineSpec { power_off_mode: Some(mode), ..VSphereMachineSpec::default() };
            let step = power_off(power, can_ask, &spec, asked_before.map(|seconds| NOW - seconds), NOW);
            let told = soft_power_off(step.as_ref(), asked_before.is_some(), before);
            told.map(|told| (told.status, told.reason.into_owned(), told.message.into_owned()))
        };
        let open =
            |reason: &str, words: &str| Some((ConditionStatus::False, reason.to_owned(), words.to_owned()));
        assert_eq!(told(Hard, On, true, None, None), None);
        assert_eq!(told(TrySoft, On, false, None, None), None, "it is powered off at once");
        let words = "the guest was asked to shut down; it is powered off after 300 s";
        assert_eq!(told(TrySoft, On, true, None, None), open("InProgress", words));
        assert_eq!(told(TrySoft, On, false, Some(40), None), open("InProgress", words));
        let words = "the guest has not shut down in time; it is powered off";
        assert_eq!(told(TrySoft, On, true, Some(300), None), open("Failed", words));
        assert_eq!(
            told(TrySoft, Off, false, Some(40), None),
            Some((ConditionStatus::True, "Succeeded".into(), String::new()))
        );
        let failed = Condition::new(GUEST_SOFT_POWER_OFF, ConditionStatus::False, SOFT_POWER_OFF_FAILED);
        assert_eq!(told(TrySoft, Off, false, Some(301), Some(failed)), open("Failed", ""), "not by itself");
        let (status, reason, words) = told(Soft, On, false, None, None).expect("a condition");
        assert_eq!((status, &*reason), (ConditionStatus::False, "Failed"));
        assert!(words.contains("VMware Tools"), "{words}");
        assert_eq!(told(Soft, Off, false, None, None), None, "it was off");
    }

    #[test]
    fn soft_says_why_it_waits() {
        let spec =
            VSphereMachineSpec { power_off_mode: Some(PowerOffMode::Soft), ..VSphereMachineSpec::default() };
        let Some(PowerOffStep::Wait(wait)) = power_off(VmPower::On, false, &spec, None, NOW) else {
            unreachable!("it waits")
        };
        assert!(wait.message.contains("VMware Tools") && wait.message.contains("soft"), "{}", wait.message);
    }
}

use proptest::prelude::*;

use super::*;

const START: i64 = 1_700_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).expect("in range")
}

fn try_soft(seconds: u64) -> PowerOffPolicy {
    PowerOffPolicy::TrySoft(Duration::from_secs(seconds))
}

/// The step in short: `ask agent`, `wait`, `destroy` or `off`, and in how many seconds to look again.
fn step(state: PowerState, mode: PowerOffPolicy, since: Option<i64>, now: i64) -> String {
    let since = since.map(|seconds| START + seconds);
    let Some(step) = power_off(state, true, mode, since, at(now)) else { return "off".to_owned() };
    let what = match step {
        PowerOffStep::Ask { by: AskBy::Agent, .. } => "ask agent",
        PowerOffStep::Ask { by: AskBy::Acpi, .. } => "ask acpi",
        PowerOffStep::Wait { .. } => "wait",
        PowerOffStep::Destroy => return "destroy".to_owned(),
    };
    let since = step.since().expect("kept") - START;
    let again = step.wait().and_then(|wait| wait.look_again_after).expect("a time");
    format!("{what}, since {since}, again in {}", again.as_secs())
}

#[test]
fn each_mode_in_each_state() {
    use PowerOffPolicy::{Hard, Soft};
    use PowerState::{Crashed, Off, Paused, Running, ShuttingDown};
    for (state, mode, since, now, expected) in [
        (Off, Hard, None, 0, "off"),
        (Off, Soft, Some(0), 9, "off"),
        (Running, Hard, None, 0, "destroy"),
        (Paused, Hard, None, 0, "destroy"),
        (ShuttingDown, Hard, None, 0, "destroy"),
        (Crashed, Hard, None, 0, "destroy"),
        (Crashed, Soft, None, 0, "destroy"),
        (Crashed, try_soft(300), None, 0, "destroy"),
        // a guest that reacts is asked once, by its agent
        (Running, Soft, None, 0, "ask agent, since 0, again in 15"),
        (ShuttingDown, Soft, Some(0), 3, "wait, since 0, again in 60"),
        // one that does not is asked again by the button, without end
        (Running, Soft, Some(0), 15, "ask acpi, since 0, again in 15"),
        (Running, Soft, Some(0), 1_000_000, "ask acpi, since 0, again in 15"),
        (Paused, Soft, None, 0, "wait, since 0, again in 60"),
        (Paused, Soft, Some(0), 1_000_000, "wait, since 0, again in 60"),
        // or until the timeout, whatever it does
        (Running, try_soft(20), None, 0, "ask agent, since 0, again in 15"),
        (Running, try_soft(20), Some(0), 15, "ask acpi, since 0, again in 5"),
        (Running, try_soft(20), Some(0), 20, "destroy"),
        (ShuttingDown, try_soft(20), Some(0), 19, "wait, since 0, again in 1"),
        (ShuttingDown, try_soft(20), Some(0), 20, "destroy"),
        (Paused, try_soft(300), None, 0, "wait, since 0, again in 60"),
        (Paused, try_soft(300), Some(0), 300, "destroy"),
        (Running, try_soft(0), None, 0, "destroy"),
        // a time that was lost, or cannot be, begins anew
        (Running, try_soft(20), None, 100, "ask agent, since 100, again in 15"),
        (Running, try_soft(20), Some(1_000_000), 100, "ask agent, since 100, again in 15"),
    ] {
        assert_eq!(step(state, mode, since, now), expected, "{state:?} {mode:?} {since:?} {now}");
    }
    let without_agent = power_off(Running, false, Soft, None, at(0));
    assert!(matches!(without_agent, Some(PowerOffStep::Ask { by: AskBy::Acpi, .. })));
}

#[test]
fn the_words_say_what_ends_the_wait_and_stay_the_same() {
    let message = |state, mode, since: Option<i64>, now| {
        let step = power_off(state, true, mode, since.map(|since| START + since), at(now)).expect("not off");
        let wait = step.wait().expect("a wait");
        assert_eq!(wait.reason, "ShuttingDown");
        wait.message.into_owned()
    };
    let asked = "the guest was asked to shut down at 2023-11-14T22:13:20Z; it is powered off 300 s later";
    assert_eq!(message(PowerState::Running, try_soft(300), None, 0), asked);
    assert_eq!(message(PowerState::ShuttingDown, try_soft(300), Some(0), 200), asked);
    assert_eq!(
        message(PowerState::Running, PowerOffPolicy::Soft, Some(0), 20),
        "the guest was asked to shut down at 2023-11-14T22:13:20Z; it has no timeout"
    );
    assert_eq!(
        message(PowerState::Paused, PowerOffPolicy::Soft, None, 0),
        "the guest is paused and cannot shut down (since 2023-11-14T22:13:20Z); \
         it has no timeout: resume it, or power it off"
    );
}

fn any_state() -> impl Strategy<Value = PowerState> {
    prop::sample::select(vec![PowerState::Running, PowerState::Paused, PowerState::ShuttingDown])
}

proptest! {
    /// A guest never shuts down, and changes between these states at each look. Some looks lose the status.
    #[test]
    fn try_soft_ends_after_one_timeout_for_each_loss(
        states in prop::collection::vec(any_state(), 1..40), losses in prop::collection::vec(0..40usize, 0..4),
        timeout in 1..200u64,
    ) {
        let (mut since, mut now) = (None, 0i64);
        let most = timeout * (losses.len() as u64 + 1);
        for look in 0usize.. {
            if losses.contains(&look) {
                since = None;
            }
            let state = states[look % states.len()];
            match power_off(state, look % 2 == 0, try_soft(timeout), since, at(now)) {
                Some(PowerOffStep::Destroy) => break,
                Some(step) => {
                    since = step.since();
                    let again = step.wait().and_then(|wait| wait.look_again_after).expect("a time");
                    prop_assert!(!again.is_zero());
                    now += i64::try_from(again.as_secs()).expect("small");
                }
                None => prop_assert!(false, "it is not off"),
            }
            prop_assert!(now <= i64::try_from(most).expect("small"), "{now} s");
        }
    }

    #[test]
    fn soft_never_powers_off_what_may_react(
        state in any_state(), since in prop::option::of(-1_000_000..1_000_000i64), now in 0..1_000_000i64,
        has_agent: bool,
    ) {
        let since = since.map(|since| START + since);
        let step = power_off(state, has_agent, PowerOffPolicy::Soft, since, at(now));
        prop_assert!(!matches!(step, None | Some(PowerOffStep::Destroy)));
    }
}

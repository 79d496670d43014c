//! The rule for Nodes whose instance this daemon has never seen. If new credentials or a new configuration
//! can see fewer instances, the others look as if they were gone. Pure.

use std::time::Duration;

use controller_kit::{cloud::Cloud, nodes::Node};
use tokio::time::Instant;

use super::absence::Absence;

/// Minimum of the grace period that follows from the monitor period.
const MIN_GRACE: Duration = Duration::from_secs(5);

/// The grace period for instances that were never seen is the usual one times this factor ...
const UNSEEN_FACTOR: u32 = 24;
/// ... with this maximum.
const MAX_UNSEEN_GRACE: Duration = Duration::from_secs(300);

/// Why such a Node is kept.
pub(super) const MESSAGE: &str = "this daemon, with its present configuration, has never seen the instance and may merely not be allowed to; it waits for --node-deletion-unseen-grace-period";

/// `--node-deletion-grace-period`, or its default: one monitor period, at least 5 s.
pub(super) fn grace_period(flag: Option<Duration>, monitor_period: Duration) -> Duration {
    flag.unwrap_or(monitor_period.max(MIN_GRACE))
}

/// `--node-deletion-unseen-grace-period`, or its default: 24 grace periods, at most 5 minutes. Never less
/// than `grace`.
pub(super) fn unseen_grace_period(flag: Option<Duration>, grace: Duration) -> Duration {
    flag.unwrap_or_else(|| grace.saturating_mul(UNSEEN_FACTOR).min(MAX_UNSEEN_GRACE)).max(grace)
}

/// The wait that applies if the provider has never seen the instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// The minimum duration of the absence.
    pub grace: Duration,
    /// Since when the present configuration has answered. Answers under an earlier one do not count. `None`:
    /// another configuration is being tried out, and it may see the instance.
    pub since: Option<Instant>,
}

impl Unseen {
    /// `None`: the provider has seen the instance, or `flag` asks for no more than `grace`, the usual grace
    /// period.
    pub(super) fn of(cloud: &Cloud, node: &Node, flag: Option<Duration>, grace: Duration) -> Option<Self> {
        let unseen_grace = unseen_grace_period(flag, grace);
        let is_asked = unseen_grace > grace && !cloud.has_seen(node);
        is_asked.then(|| Self { grace: unseen_grace, since: cloud.settled_since() })
    }
}

/// Until when a Node waits because the provider has never seen its instance. `None`: no wait applies, or it
/// is over.
pub(super) fn waits_until(unseen: Option<Unseen>, absence: Absence) -> Option<Instant> {
    let Unseen { grace, since } = unseen?;
    let first = since.map_or(absence.last.ended, |since| absence.first.max(since));
    (Absence { first, ..absence }.lasted() < grace).then(|| first + grace)
}

#[cfg(test)]
mod tests {
    use controller_kit::cloud::CallTime;
    use jiff::Timestamp;
    use serde_json::json;

    use super::{
        super::{
            decide::{DeletionRules, verdict},
            memory::Memory,
            silence::{Kubelet, SilentKubelet},
            verdict::{HeldBack, Verdict},
        },
        *,
    };

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_longer_grace_period_follows_the_other_one_up_to_five_minutes() {
        assert_eq!(grace_period(None, seconds(1)), seconds(5));
        assert_eq!(grace_period(None, seconds(30)), seconds(30));
        assert_eq!(grace_period(Some(seconds(1)), seconds(30)), seconds(1));
        for (flag, grace, unseen) in [
            (None, seconds(5), seconds(120)),
            (None, seconds(20), seconds(300)),
            (None, seconds(1), seconds(24)),
            (None, Duration::ZERO, Duration::ZERO),
            (None, seconds(600), seconds(600)),
            (None, Duration::MAX, Duration::MAX),
            (Some(seconds(20)), seconds(5), seconds(20)),
            (Some(Duration::ZERO), seconds(5), seconds(5)),
        ] {
            assert_eq!(unseen_grace_period(flag, grace), unseen, "{flag:?} {grace:?}");
        }
    }

    #[test]
    fn only_what_was_never_seen_waits_and_only_as_long() {
        let start = Instant::now();
        let absence = |last: u64| Absence { first: start, last: CallTime::at(start + seconds(last)) };
        assert_eq!(waits_until(None, absence(0)), None, "it was seen");
        let unseen = Some(Unseen { grace: seconds(300), since: Some(start) });
        assert_eq!(waits_until(unseen, absence(299)), Some(start + seconds(300)));
        assert_eq!(waits_until(unseen, absence(300)), None);
    }

    #[test]
    fn another_configuration_begins_anew_and_one_that_is_tried_keeps_what_it_may_have() {
        let start = Instant::now();
        let absence = |last: u64| Absence { first: start, last: CallTime::at(start + seconds(last)) };
        let with = |since: Option<Instant>| Some(Unseen { grace: seconds(120), since });
        let changed = with(Some(start + seconds(100)));
        assert_eq!(waits_until(changed, absence(90)), Some(start + seconds(220)), "an answer from before it");
        assert_eq!(waits_until(changed, absence(219)), Some(start + seconds(220)));
        assert_eq!(waits_until(changed, absence(220)), None);
        for last in [0, 119, 120, 3600] {
            assert_eq!(waits_until(with(None), absence(last)), Some(start + seconds(last + 120)));
        }
    }

    #[test]
    fn a_confirmed_absence_of_what_was_never_seen_is_held_back_and_an_operator_may_let_it_go() {
        let start = Instant::now();
        let node = |allowed: &str| {
            Node::from_json(json!({
                "metadata": {"name": "n", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z",
                    "annotations": {"node.cloudprovider.kubernetes.io/allow-deletion": allowed}},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            }))
        };
        let rules = DeletionRules { grace: seconds(5), minimum_age: Duration::ZERO };
        let decide = |allowed: &str, grace: Option<Duration>, gone_for: u64| {
            let now = start + seconds(gone_for);
            let absence = Some(Absence { first: start, last: CallTime::at(now) });
            let unseen = grace.map(|grace| Unseen { grace, since: Some(start) });
            let memory = Memory { absence, unseen, ..Memory::new("u", start) };
            let silent = Kubelet::Silent(SilentKubelet::fake("u", now));
            verdict(&node(allowed), &memory, Some(silent), rules, false, now, Timestamp::UNIX_EPOCH)
        };
        let unseen = Some(seconds(300));
        let held = Verdict::HoldBack(HeldBack::InstanceNeverSeen, Some(start + seconds(300)));
        assert_eq!(decide("", unseen, 4), Verdict::Wait(start + seconds(5)));
        assert_eq!(decide("", unseen, 5), held);
        assert_eq!(decide("", unseen, 299), held);
        for deleted in [decide("", unseen, 300), decide("true", unseen, 5), decide("", None, 5)] {
            assert!(matches!(deleted, Verdict::Delete(_)), "{deleted:?}");
        }
    }
}

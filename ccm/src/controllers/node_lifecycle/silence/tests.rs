use super::{super::renewal::MAX_PAUSE, *};

const QUICK: Duration = Duration::from_millis(5);
const USUAL: Duration = Duration::from_millis(12_500);

/// Reads of one lease, four per second, starting with the first one.
struct Observed {
    api: Availability,
    history: Option<LeaseHistory>,
    start: Instant,
    now: Instant,
    last: Option<LeaseRead>,
}

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

fn lease(renew_time: &str, duration: u64) -> LeaseAnswer {
    LeaseAnswer::Found(LeaseView { renew_time: renew_time.into(), duration: Duration::from_secs(duration) })
}

impl Observed {
    fn new() -> Self {
        let start = Instant::now();
        let mut api = Availability::default();
        api.listen_to(&[]);
        Self { api, history: None, start, now: start, last: None }
    }

    /// One read, sent now.
    fn read(&mut self, took: Duration, answer: LeaseAnswer) {
        let read = LeaseRead::fake("u", self.now, took, answer);
        self.api.note(&read);
        LeaseHistory::update(&mut self.history, &read);
        self.last = Some(read);
        self.now += took.max(seconds(0.25));
    }

    /// The same answer for all reads that are sent until this second, and for one read at that time.
    fn until(&mut self, second: f64, answer: &LeaseAnswer) -> &mut Self {
        let end = self.start + seconds(second);
        while self.now < end {
            self.read(QUICK, answer.clone());
        }
        self.now = end;
        self.read(QUICK, answer.clone());
        self
    }

    /// All requests hang until this second.
    fn frozen_until(&mut self, second: f64, answer: &LeaseAnswer) -> &mut Self {
        let took = (self.start + seconds(second)).duration_since(self.now);
        self.read(took, if took > seconds(2.0) { LeaseAnswer::NoAnswer } else { answer.clone() });
        self
    }

    fn judge(&self, ready: ReadyStatus) -> Kubelet {
        let read = self.last.as_ref().expect("a read");
        judge(read, self.history.as_ref(), ready, &self.api, true)
    }

    #[track_caller]
    fn is_silent(&self, silent: bool) {
        for ready in [ReadyStatus::True, ReadyStatus::False, ReadyStatus::Unknown] {
            let kubelet = self.judge(ready);
            assert_eq!(matches!(kubelet, Kubelet::Silent(_)), silent, "{ready:?}: {kubelet:?}");
        }
    }
}

#[test]
fn silence_leaves_room_for_a_late_renewal() {
    for (duration, silence) in [(1, 10.0), (10, 10.0), (40, 12.5), (600, 187.5)] {
        let silence_of = silence_of(Duration::from_secs(duration));
        assert!(silence_of.abs_diff(seconds(silence)) < seconds(0.001), "{duration}: {silence_of:?}");
    }
    for duration in 1..=600 {
        let duration = Duration::from_secs(duration);
        assert!(silence_of(duration) > renewal_interval(duration) + MAX_PAUSE, "{duration:?}");
    }
}

#[test]
fn a_kubelet_that_lives_keeps_its_node() {
    let mut seen = Observed::new();
    seen.until(12.4, &lease("a", 40)).is_silent(false);
    seen.until(12.51, &lease("a", 40)).is_silent(true);
    seen.until(12.8, &lease("b", 40)).is_silent(false);
    let Kubelet::Renews { silent_at } = seen.judge(ReadyStatus::False) else {
        panic!("it was seen renewing")
    };
    assert_eq!(silent_at, seen.history.as_ref().expect("a history").since + USUAL);
    // A renewal time in the past counts as a renewal too, since clocks may be set back.
    seen.until(25.0, &lease("a", 40)).is_silent(false);
    seen.until(26.0, &lease("a", 40)).is_silent(true);
}

#[test]
fn silence_ends_when_the_read_was_sent() {
    let mut seen = Observed::new();
    seen.until(12.0, &lease("a", 40));
    seen.now = seen.start + seconds(12.4);
    seen.read(seconds(1.9), lease("a", 40));
    seen.is_silent(false);
}

#[test]
fn a_frozen_api_server_is_no_silence() {
    for length in [2.2, 5.0, 9.0, 9.5, 11.0, 30.0, 300.0] {
        for begin in [0.5, 5.0, 8.0, 10.4, 12.3] {
            let mut seen = Observed::new();
            let thaw = begin + length;
            let same = lease("a", 40);
            seen.until(begin - 0.25, &same);
            seen.frozen_until(thaw, &same);
            // Kubelets have as much time as the outage took: at least the usual time, and at most the lease's
            // duration.
            let time = length.clamp(12.5, 40.0);
            seen.until(thaw + 0.01, &same).is_silent(false);
            seen.until(thaw + time - 0.1, &same).is_silent(false);
            seen.until(thaw + time + 0.8, &same).is_silent(true);
        }
    }
}

#[test]
fn a_short_freeze_that_nobody_notices_delays_no_kubelet_for_too_long() {
    // The kubelet renews every 10.4 s, except during the freeze, and is served right after it.
    for tenths in 0..20 {
        let (due, freeze) = (10.4, f64::from(tenths) / 10.0);
        let mut seen = Observed::new();
        seen.until(due - 0.01, &lease("a", 40));
        seen.frozen_until(due + freeze, &lease("a", 40));
        seen.is_silent(false);
        seen.until(due + freeze + 0.05, &lease("a", 40)).is_silent(false);
    }
}

#[test]
fn one_read_that_fails_or_hangs_decides_nothing() {
    for (took, answer) in [(QUICK, LeaseAnswer::NoAnswer), (seconds(9.0), lease("a", 40))] {
        let mut seen = Observed::new();
        seen.until(30.0, &lease("a", 40)).is_silent(true);
        seen.read(took, answer);
        seen.is_silent(false);
        let thaw = seen.now.duration_since(seen.start).as_secs_f64();
        seen.until(thaw + 12.0, &lease("a", 40)).is_silent(false);
        seen.until(thaw + 14.0, &lease("a", 40)).is_silent(true);
    }
}

#[test]
fn nobody_is_silent_to_whom_nobody_listened() {
    let mut seen = Observed::new();
    seen.until(20.0, &lease("a", 40)).is_silent(true);
    // The breaker was open for an hour, and no lease was read.
    seen.api = Availability::default();
    seen.api.listen_to(&[]);
    seen.now += seconds(3600.0);
    seen.read(QUICK, lease("a", 40));
    seen.is_silent(false);
    seen.until(3634.0, &lease("a", 40)).is_silent(true);
}

#[test]
fn a_long_duration_pins_no_node() {
    let mut seen = Observed::new();
    seen.until(187.0, &lease("a", 600)).is_silent(false);
    seen.until(188.0, &lease("a", 600)).is_silent(true);
}

#[test]
fn without_a_lease_upstreams_rule_holds() {
    let mut seen = Observed::new();
    seen.read(QUICK, LeaseAnswer::Missing);
    assert_eq!(seen.judge(ReadyStatus::True), Kubelet::ReadyWithoutLease);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Silent(_)));
    assert!(matches!(seen.judge(ReadyStatus::Unknown), Kubelet::Silent(_)));
    // A lease that appears was written by the kubelet.
    seen.read(QUICK, lease("a", 40));
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Renews { .. }));
}

#[test]
fn a_lease_that_vanishes_may_come_back() {
    let mut seen = Observed::new();
    seen.until(5.0, &lease("a", 40)).until(17.0, &LeaseAnswer::Missing);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Undecided(Undecided::Recent, _)));
    seen.until(19.0, &LeaseAnswer::Missing);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Silent(_)));
    assert_eq!(seen.judge(ReadyStatus::True), Kubelet::ReadyWithoutLease);
}

#[test]
fn who_renews_in_time_lives_whatever_is_known_of_the_api_server() {
    let mut seen = Observed::new();
    seen.until(5.0, &lease("a", 40)).until(6.0, &lease("b", 40));
    // The leases are not observed any more.
    seen.api = Availability::default();
    for second in [11.0, 15.0] {
        seen.until(second, &lease("b", 40));
        assert!(matches!(seen.judge(ReadyStatus::True), Kubelet::Renews { .. }), "{second}");
        assert!(seen.history.as_ref().is_some_and(LeaseHistory::is_in_time));
    }
    seen.read(QUICK, LeaseAnswer::NoAnswer);
    assert!(!seen.history.as_ref().is_some_and(LeaseHistory::is_in_time), "nobody knows");
    seen.until(15.5, &lease("b", 40));
    assert!(seen.history.as_ref().is_some_and(LeaseHistory::is_in_time));
    // The next renewal is due, so the lease has to be observed.
    seen.until(17.0, &lease("b", 40));
    assert!(!seen.history.as_ref().is_some_and(LeaseHistory::is_in_time));
    assert!(matches!(seen.judge(ReadyStatus::True), Kubelet::Undecided(Undecided::Unread, _)));
}

#[test]
fn a_lease_that_may_not_be_read_is_waited_for() {
    let mut seen = Observed::new();
    seen.until(12.0, &LeaseAnswer::Forbidden);
    assert_eq!(seen.judge(ReadyStatus::True), Kubelet::ReadyWithoutLease);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Undecided(Undecided::Recent, _)));
    seen.until(13.0, &LeaseAnswer::Forbidden);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Silent(_)));
    // A kubelet that was seen alive does not count as dead because the permission to read its lease is lost.
    let mut seen = Observed::new();
    seen.until(5.0, &lease("a", 40)).until(6.0, &lease("b", 40)).until(100.0, &LeaseAnswer::Forbidden);
    assert!(matches!(seen.judge(ReadyStatus::False), Kubelet::Undecided(Undecided::Unread, _)));
}

#[test]
fn silence_of_all_kubelets_is_not_that_of_one() {
    let mut seen = Observed::new();
    seen.api.listen_to(&["peer".into(), "x".into(), "y".into()]);
    let start = seen.start;
    let hear = |api: &mut Availability, second: f64, renew_time: &str| {
        api.hear("peer", &LeaseRead::fake("", start + seconds(second), QUICK, lease(renew_time, 40)));
    };
    hear(&mut seen.api, 0.0, "1");
    hear(&mut seen.api, 9.0, "1");
    hear(&mut seen.api, 9.5, "2");
    seen.until(14.0, &lease("a", 40));
    // The peer renewed at a time when this kubelet's renewal was not due yet.
    assert!(matches!(seen.judge(ReadyStatus::Unknown), Kubelet::Undecided(Undecided::NobodyHeard, _)));
    hear(&mut seen.api, 14.0, "2");
    hear(&mut seen.api, 14.25, "3");
    seen.until(23.0, &lease("a", 40));
    hear(&mut seen.api, 24.0, "4");
    for name in ["x", "y"] {
        seen.api.hear(name, &LeaseRead::fake("", start + seconds(24.0), QUICK, lease("1", 40)));
    }
    // A kubelet that was refused when the other one was served retries after a whole interval.
    seen.until(25.1, &lease("a", 40)).is_silent(false);
    seen.until(25.2, &lease("a", 40)).is_silent(true);
    // An operator's permission for one Node means that other kubelets do not matter.
    let mut alone = Observed::new();
    alone.api.listen_to(&["peer".into()]);
    alone.until(14.0, &lease("a", 40)).is_silent(false);
    let read = alone.last.as_ref().expect("a read");
    let kubelet = judge(read, alone.history.as_ref(), ReadyStatus::False, &alone.api, false);
    assert!(matches!(kubelet, Kubelet::Silent(_)));
}

#[test]
fn a_proof_is_for_one_node_and_for_a_moment() {
    let mut seen = Observed::new();
    seen.until(13.0, &lease("a", 40));
    let Kubelet::Silent(proof) = seen.judge(ReadyStatus::False) else { panic!("it is silent") };
    let node = |uid: &str| Node::from_json(serde_json::json!({"metadata": {"name": "n", "uid": uid}}));
    assert!(proof.proves(&node("u"), seen.start + seconds(13.1)));
    assert!(!proof.proves(&node("another"), seen.start + seconds(13.1)));
    assert!(!proof.proves(&node("u"), seen.start + seconds(17.0)));
}

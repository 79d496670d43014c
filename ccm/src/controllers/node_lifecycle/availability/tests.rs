use super::{super::lease::LeaseView, *};

const QUICK: Duration = Duration::from_millis(5);

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

fn found(renew_time: &str) -> LeaseAnswer {
    LeaseAnswer::Found(LeaseView { renew_time: renew_time.into(), duration: seconds(40.0) })
}

fn watched() -> Availability {
    Availability { is_watched: true, ..Availability::default() }
}

fn answered(sent: Instant) -> LeaseRead {
    LeaseRead::fake("", sent, QUICK, LeaseAnswer::Missing)
}

#[test]
fn a_stretch_begins_anew_after_each_outage() {
    let start = Instant::now();
    let mut api = Availability::default();
    api.note(&answered(start));
    assert_eq!(api.stretch(), None, "nobody wants to know");
    let mut api = watched();
    for n in 0..10 {
        api.note(&answered(start + seconds(1.9) * n));
    }
    let first = api.stretch().expect("it answers");
    assert_eq!((first.since, first.outage), (start + QUICK, Duration::ZERO));
    let last = start + seconds(1.9) * 9;
    // A response without information or a late one does not count.
    for bad in [
        LeaseRead::fake("", last + seconds(1.0), QUICK, LeaseAnswer::NoAnswer),
        LeaseRead::fake("", last + seconds(1.0), seconds(9.0), found("a")),
    ] {
        let mut api = Availability { stretch: api.stretch, ..watched() };
        api.note(&bad);
        assert_eq!(api.stretch(), None, "{bad:?}");
        let thawed = last + seconds(10.0);
        api.note(&answered(thawed));
        let again = api.stretch().expect("it answers again");
        assert_eq!((again.since, again.outage), (thawed + QUICK, seconds(10.0) + QUICK));
    }
}

#[test]
fn a_pause_is_an_outage_whoever_made_it() {
    let start = Instant::now();
    let mut api = watched();
    api.note(&answered(start));
    api.note(&answered(start + seconds(2.1)));
    let stretch = api.stretch().expect("it answers");
    assert_eq!((stretch.since, stretch.outage), (start + seconds(2.1) + QUICK, seconds(2.1) + QUICK));
    // Reads may end in another order than they began.
    api.note(&answered(start + seconds(1.0)));
    assert_eq!(api.stretch(), Some(stretch));
}

#[test]
fn kubelets_are_heard_when_somebody_renews_in_time() {
    let start = Instant::now() + seconds(100.0);
    let at = |second: f64| start + seconds(second);
    let mut api = watched();
    let heard = |api: &Availability, due: f64, sent: f64| {
        let since = at(due) - renewal_interval(seconds(40.0));
        api.kubelets_are_heard(since, seconds(40.0), at(sent))
    };
    // Two more kubelets, so that there are enough peers.
    let others = |api: &mut Availability, second: f64, renew_time: &str| {
        for name in ["x", "y"] {
            api.hear(name, &LeaseRead::fake("", at(second), QUICK, found(renew_time)));
        }
    };
    assert!(heard(&api, 0.0, 100.0), "there is nobody to be heard");
    api.listen_to(&["a".into(), "b".into()]);
    assert!(!heard(&api, 0.0, 100.0), "nobody was asked");
    api.hear("b", &LeaseRead::fake("", at(0.0), QUICK, LeaseAnswer::Missing));
    api.hear("a", &LeaseRead::fake("", at(0.0), QUICK, found("1")));
    api.hear("a", &LeaseRead::fake("", at(5.0), QUICK, found("1")));
    assert!(!heard(&api, 0.0, 100.0), "nobody renewed");
    api.hear("a", &LeaseRead::fake("", at(6.0), QUICK, found("2")));
    api.listen_to(&["a".into(), "b".into(), "x".into(), "y".into()]);
    others(&mut api, 6.0, "1");
    assert!(!heard(&api, 5.0, 16.8), "who was refused tries again after a whole interval");
    assert!(heard(&api, 5.0, 16.905), "10.4 s and half a second after it was heard");
    api.hear("a", &LeaseRead::fake("", at(17.0), QUICK, found("2")));
    assert!(!heard(&api, 5.0, 17.0), "another one is late itself");
    api.hear("a", &LeaseRead::fake("", at(60.0), QUICK, found("2")));
    others(&mut api, 60.0, "1");
    assert!(!heard(&api, 5.0, 60.0), "nobody is in time");
    api.hear("a", &LeaseRead::fake("", at(60.5), QUICK, found("3")));
    others(&mut api, 60.5, "3");
    assert!(!heard(&api, 6.1, 26.8), "it may have been before that");
    api.listen_to(&["b".into()]);
    assert!(heard(&api, 50.0, 100.0), "who has no lease cannot be heard");
}

#[test]
fn after_a_peer_that_was_late_others_may_still_be() {
    let start = Instant::now();
    let at = |second: f64| start + seconds(second);
    let mut api = watched();
    api.listen_to(&["a".into(), "b".into(), "c".into()]);
    let mut hear = |name: &str, second: f64, renew_time: &str| {
        api.hear(name, &LeaseRead::fake("", at(second) - QUICK, QUICK, found(renew_time)));
    };
    hear("a", 0.0, "1");
    hear("b", 0.0, "1");
    for second in 1..=10 {
        hear("a", f64::from(second), &second.to_string());
    }
    hear("a", 20.0, "20");
    hear("b", 20.4, "1");
    hear("b", 20.5, "2");
    hear("a", 30.0, "30");
    hear("b", 30.5, "3");
    hear("c", 30.5, "1");
    assert!(!api.kubelets_are_heard(at(0.0), seconds(40.0), at(31.3)), "b was refused until 20.5 s");
    assert!(api.kubelets_are_heard(at(0.0), seconds(40.0), at(31.4)));
}

#[test]
fn few_that_are_heard_prove_less() {
    let start = Instant::now();
    let at = |second: f64| start + seconds(second);
    let names = ["a", "b", "c"].map(str::to_owned);
    for (count, needed) in [(1, 50.5), (2, 50.5), (3, 41.0)] {
        let mut api = watched();
        api.listen_to(&names[..count]);
        for tenth in 0..7 {
            for name in &names[..count] {
                let read = LeaseRead::fake("", at(f64::from(tenth * 10)), QUICK, found(&tenth.to_string()));
                api.hear(name, &read);
            }
        }
        assert!(!api.kubelets_are_heard(at(0.0), seconds(40.0), at(needed - 0.2)), "{count}");
        assert!(api.kubelets_are_heard(at(0.0), seconds(40.0), at(needed)), "{count}");
    }
}

#[test]
fn who_has_no_lease_makes_room_for_others() {
    let start = Instant::now();
    let all: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    let names: HashSet<&str> = all.iter().map(String::as_str).collect();
    // Only one Node has a lease, and it is found at any position.
    let look_for = |living: &str| {
        let (mut api, mut peers) = (watched(), Vec::new());
        for _ in 0..3 {
            peers = choose_peers(&peers, &names, api.mute(), 10);
            assert_eq!(peers.len(), 10);
            api.listen_to(&peers);
            for name in &peers {
                let answer = if name == living { found("1") } else { LeaseAnswer::Missing };
                api.hear(name, &LeaseRead::fake("", start, QUICK, answer));
            }
        }
        (api, peers)
    };
    for name in &all {
        let (api, peers) = look_for(name);
        assert!(choose_peers(&peers, &names, api.mute(), 10).contains(name));
    }
    let (api, peers) = look_for("17");
    let last = choose_peers(&peers, &names, api.mute(), 10);
    assert!(last.contains(&"17".to_owned()), "{last:?}");
    assert_eq!(
        choose_peers(&last, &names, api.mute(), 10).iter().find(|name| *name == "17"),
        Some(&"17".into())
    );
    let few: HashSet<&str> = ["17"].into();
    assert_eq!(choose_peers(&last, &few, api.mute(), 10), ["17"]);
    let many: HashSet<String> = (0..MAX_MUTE).map(|n| n.to_string()).collect();
    let same: HashSet<String> = choose_peers(&peers, &names, &many, 10).into_iter().collect();
    assert_eq!(same, peers.into_iter().collect(), "hardly anybody has one");
}

#[test]
fn silence_of_all_together_is_an_outage() {
    let start = Instant::now();
    let mut api = watched();
    api.listen_to(&["a".into()]);
    let mut sent = start;
    let mut read = |api: &mut Availability, until: f64, renew_time: &str| {
        while sent < start + seconds(until) {
            let read = LeaseRead::fake("", sent, QUICK, found(renew_time));
            api.note(&read);
            api.hear("a", &read);
            sent += seconds(0.25);
        }
    };
    read(&mut api, 10.5, "1");
    read(&mut api, 21.0, "2");
    assert_eq!(api.stretch().map(|stretch| stretch.outage), Some(Duration::ZERO));
    read(&mut api, 36.0, "3");
    read(&mut api, 36.25, "4");
    let stretch = api.stretch().expect("it answers");
    assert_eq!((stretch.since, stretch.outage), (start + seconds(36.0) + QUICK, seconds(15.0)));
}

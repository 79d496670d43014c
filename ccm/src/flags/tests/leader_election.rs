//! The flags of the leader election.

use std::time::Duration;

use crate::flags::{Flags, parse};

fn flags(args: &[&str]) -> Flags {
    let all = ["ccm", "--cloud-provider=x"].iter().chain(args);
    parse(all.map(|arg| (*arg).to_owned())).expect("a good command line")
}

#[test]
fn upstreams_defaults() {
    let flags = flags(&[]);
    assert!(flags.leader_election.enabled && flags.faults().is_empty());
    let options = flags.leader_election.options("me".into());
    assert_eq!(
        (options.namespace.as_str(), options.name.as_str()),
        ("kube-system", "cloud-controller-manager")
    );
    let seconds = [options.lease_duration, options.renew_deadline, options.retry_period];
    assert_eq!(seconds.map(|duration| duration.as_secs()), [15, 10, 2]);
}

#[test]
fn another_daemon_leads_a_lease_after_the_last_renewal() {
    let after = |args: &[&str]| flags(args).leader_election.takeover_after();
    assert_eq!(after(&[]), Some(Duration::from_secs(13)));
    assert_eq!(after(&["--leader-elect-lease-duration=30s"]), Some(Duration::from_secs(28)));
    assert_eq!(after(&["--leader-elect=false"]), None);
}

#[test]
fn booleans_as_in_go() {
    for (argument, expected) in [
        ("--leader-elect", true),
        ("--leader_elect=true", true),
        ("--leader-elect=T", true),
        ("--leader-elect=false", false),
        ("--leader-elect=0", false),
    ] {
        assert_eq!(
            flags(&["--leader-elect=false", "--leader-elect", argument]).leader_election.enabled,
            expected
        );
    }
    // A value is never taken from the next argument, which upstream refuses too.
    for wrong in [vec!["--leader-elect", "false"], vec!["--leader-elect=yes"], vec!["--leader-elect="]] {
        let all = ["ccm"].iter().chain(&wrong).map(|arg| (*arg).to_owned());
        assert!(parse(all).is_err(), "{wrong:?}");
    }
}

#[test]
fn all_faults_at_once() {
    let wrong = [
        "--leader-elect-lease-duration=10s",
        "--leader-elect-retry-period=9s",
        "--leader-elect-resource-lock=endpoints",
        "--leader-elect-resource-name=",
    ];
    assert_eq!(
        flags(&wrong).faults(),
        [
            "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline",
            "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period",
            "resourceLock value must be \"leases\" (--leader-elect-resource-lock), but is \"endpoints\"",
            "--leader-elect-resource-name cannot be empty",
        ]
    );
    let without: Vec<&str> = wrong.into_iter().chain(["--leader-elect=false"]).collect();
    assert!(flags(&without).faults().is_empty());
    assert_eq!(flags(&["--leader-elect-retry-period=0s"]).faults().len(), 1);
}

#[test]
fn without_an_election_there_is_a_warning() {
    let warnings = flags(&["--leader-elect=false"]).warnings();
    assert!(warnings.len() == 1 && warnings[0].starts_with("--leader-elect=false: "), "{warnings:?}");
    assert!(flags(&["--leader-elect=false", "--dry-run"]).warnings().is_empty());
}

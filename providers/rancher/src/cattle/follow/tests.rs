//! The server is a script, and time is paused.

use std::sync::{Arc, atomic::Ordering};

use cloudprovider::ErrorKind;

use super::*;
use crate::cattle::source::testing::{Script, host};

const INTERVALS: Intervals =
    Intervals { with_events: Duration::from_secs(300), without_events: Duration::from_secs(30) };

/// A script that is followed until the token is cancelled.
fn start(hosts: Vec<Host>) -> (Arc<Script>, Arc<Hosts>, CancellationToken) {
    let (script, hosts) = (Arc::new(Script::with_hosts(hosts)), Arc::new(Hosts::new()));
    let stop = CancellationToken::new();
    let (of_task, followed, token) = (Arc::clone(&script), Arc::clone(&hosts), stop.clone());
    tokio::spawn(async move { run(&*of_task, &followed, INTERVALS, token).await });
    (script, hosts, stop)
}

async fn after(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn thousands_of_hosts_cost_one_listing() {
    let (script, hosts, stop) = start((0..5000).map(|n| host(n, &format!("node-{n}"))).collect());
    after(1).await;
    assert_eq!(hosts.state().inventory.len(), 5000);
    for n in 0..100 {
        let changed = Host { state: Some("inactive".to_owned()), ..host(n, &format!("node-{n}")) };
        script.send(&HostEvent::Host(Box::new(changed)));
    }
    after(1).await;
    let known = hosts.state().inventory.with_uuid("uuid-7").expect("one").expect("there");
    assert_eq!(known.host.state.as_deref(), Some("inactive"));
    assert_eq!(script.listings.load(Ordering::Relaxed), 1, "events cost no listing");
    assert_eq!(script.address_reads.load(Ordering::Relaxed), 0, "hosts cost no call");
    after(300).await;
    assert_eq!(script.listings.load(Ordering::Relaxed), 2, "the safety net");
    assert_eq!(script.subscriptions.load(Ordering::Relaxed), 1);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn only_hosts_without_an_agents_address_are_asked_for_theirs() {
    let silent = Host { agent_ip_address: None, ..host(2, "b") };
    let (script, hosts, stop) = start(vec![host(1, "a"), silent]);
    after(1).await;
    assert_eq!(script.address_reads.load(Ordering::Relaxed), 1);
    let known = hosts.state().inventory.with_name("b").expect("one").expect("there");
    assert_eq!(known.ips.as_ref().expect("read")[0].to_string(), "192.0.2.9");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_a_minute_loses_no_host() {
    let (script, hosts, stop) = start(vec![host(1, "a"), host(2, "b")]);
    after(1).await;
    script.go_away(Error::new(ErrorKind::Unavailable, "connection refused"));
    for _ in 0..60 {
        after(1).await;
        let state = hosts.state();
        assert!(state.trouble.is_some() && state.inventory.len() == 2, "{:?}", state.trouble);
    }
    let tries = script.listings.load(Ordering::Relaxed);
    assert!((6..20).contains(&tries), "{tries} tries in a minute");
    script.hosts.lock().pop();
    script.come_back();
    after(13).await;
    {
        let state = hosts.state();
        assert!(state.trouble.is_none() && state.inventory.len() == 1, "what happened meanwhile is seen");
    }
    after(30).await;
    let subscriptions = script.subscriptions.load(Ordering::Relaxed);
    assert!((3..=5).contains(&subscriptions), "{subscriptions}: one try for each poll interval");
    let changed = Host { state: Some("inactive".to_owned()), ..host(1, "a") };
    script.send(&HostEvent::Host(Box::new(changed)));
    after(1).await;
    let known = hosts.state().inventory.with_name("a").expect("one").expect("there");
    assert_eq!(known.host.state.as_deref(), Some("inactive"), "events are followed again");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn the_servers_wish_for_a_pause_is_obeyed() {
    let (script, hosts, stop) = start(vec![host(1, "a")]);
    after(1).await;
    let error = Error::new(ErrorKind::RateLimited, "too many").with_retry_after(Duration::from_secs(120));
    script.go_away(error);
    after(100).await;
    assert_eq!(script.listings.load(Ordering::Relaxed), 2, "one try, and then a pause of two minutes");
    assert!(hosts.state().trouble.is_some());
    script.come_back();
    after(30).await;
    assert!(hosts.state().trouble.is_none());
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn without_events_the_hosts_are_listed_more_often() {
    let script = Arc::new(Script::with_hosts(vec![host(1, "a")]));
    *script.no_events.lock() = true;
    let hosts = Arc::new(Hosts::new());
    let stop = CancellationToken::new();
    let (of_task, followed, token) = (Arc::clone(&script), Arc::clone(&hosts), stop.clone());
    tokio::spawn(async move { run(&*of_task, &followed, INTERVALS, token).await });
    after(100).await;
    assert_eq!(script.listings.load(Ordering::Relaxed), 4);
    *script.no_events.lock() = false;
    after(100).await;
    assert_eq!(script.listings.load(Ordering::Relaxed), 5, "events came back");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn an_event_without_its_host_is_a_reason_to_list() {
    let (script, hosts, stop) = start(vec![host(1, "a")]);
    after(1).await;
    script.hosts.lock().push(host(2, "b"));
    script.send(&HostEvent::Unclear);
    after(3).await;
    assert_eq!(hosts.state().inventory.len(), 2);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_no_proof_of_anything() {
    let (script, hosts, stop) = start(vec![host(1, "a")]);
    after(1).await;
    script.hosts.lock().clear();
    hosts.want_listing();
    after(2).await;
    let state = hosts.state();
    assert!(state.inventory.len() == 1 && state.trouble.is_some());
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_no_pause_is_no_reason_for_a_hot_loop() {
    let (script, _hosts, stop) = start(vec![host(1, "a")]);
    after(1).await;
    script.go_away(Error::new(ErrorKind::RateLimited, "too many").with_retry_after(Duration::ZERO));
    after(60).await;
    let tries = script.listings.load(Ordering::Relaxed);
    assert!((6..20).contains(&tries), "{tries} tries in a minute");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn addresses_do_not_hold_up_a_listing_and_their_refusal_is_obeyed() {
    let silent = |n| Host { agent_ip_address: None, ..host(n, &format!("silent-{n}")) };
    let (script, hosts, stop) = start((1..100).map(silent).chain([host(100, "a")]).collect());
    let error = Error::new(ErrorKind::RateLimited, "too many").with_retry_after(Duration::from_secs(120));
    *script.address_fault.lock() = Some(error);
    after(100).await;
    assert_eq!(hosts.state().inventory.len(), 100, "the listing counts");
    assert!(script.address_reads.load(Ordering::Relaxed) <= ADDRESS_READS, "the others wait");
    assert_eq!(script.listings.load(Ordering::Relaxed), 1, "the server is left alone");
    *script.address_fault.lock() = None;
    after(100).await;
    let reads = script.address_reads.load(Ordering::Relaxed);
    assert!(reads >= 99, "{reads}");
    {
        let state = hosts.state();
        let known = state.inventory.with_name("silent-7").expect("one").expect("there");
        assert_eq!(known.ips.as_ref().expect("read")[0].to_string(), "192.0.2.9");
    }
    // A listing that somebody asks for reads nothing again, and forgets nothing.
    *script.address_fault.lock() = Some(Error::new(ErrorKind::Unavailable, "no such link"));
    hosts.want_listing();
    after(5).await;
    assert_eq!(script.address_reads.load(Ordering::Relaxed), reads);
    let known = hosts.state().inventory.with_name("silent-7").expect("one").expect("there");
    assert!(is_addressed(&known));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_an_answer_does_not_hold_up_listings() {
    let (script, hosts, stop) = start(vec![host(1, "a")]);
    *script.silent_events.lock() = true;
    after(4).await;
    assert_eq!(hosts.state().inventory.len(), 1);
    for _ in 0..10 {
        hosts.want_listing();
        after(2).await;
    }
    assert!(script.listings.load(Ordering::Relaxed) >= 8, "absences are confirmed");
    assert_eq!(script.subscriptions.load(Ordering::Relaxed), 1, "one try for each poll interval");
    stop.cancel();
}

#[test]
fn no_pause_is_longer_than_the_poll_interval() {
    let intervals = |seconds| Intervals { without_events: Duration::from_secs(seconds), ..INTERVALS };
    let backoff = |seconds| (intervals(seconds).backoff().first, intervals(seconds).backoff().most);
    assert_eq!(backoff(30), (BACKOFF.first, BACKOFF.most));
    assert_eq!(backoff(5), (BACKOFF.first, Duration::from_secs(5)));
    assert_eq!((intervals(5).least(), intervals(0).least()), (MIN_INTERVAL, Duration::ZERO));
}

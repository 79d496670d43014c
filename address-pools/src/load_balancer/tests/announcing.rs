//! The daemon announces addresses itself.

use std::sync::atomic::{AtomicU8, Ordering};

use cloudprovider::ExternalTrafficPolicy;
use futures::{FutureExt as _, future::FusedFuture as _};

use super::{super::upkeep::FAULT_CHECK_INTERVAL, *};
use crate::local::CHECK_INTERVAL;

/// Says what a test set: 0 for nothing, 1 for no endpoints, 2 for endpoints.
#[derive(Clone, Debug, Default)]
struct Endpoints(Arc<AtomicU8>);

#[async_trait]
impl LocalEndpoints for Endpoints {
    async fn are_there(&self, _: u16) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            number => Some(number == 2),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_too_short_for_the_life_of_an_address_is_refused() {
    let start = |json: &str, takeover_after: Option<u64>| {
        let balancer = PooledLoadBalancer::with_parts(
            config(json),
            FakeAnnouncer::new(),
            Box::new(Endpoints::default()),
        );
        let context = StartContext::new(CancellationToken::new(), CLUSTER)
            .with_takeover_after(takeover_after.map(Duration::from_secs));
        balancer.start(&context, &TaskTracker::new())
    };
    for seconds in [None, Some(9), Some(13)] {
        start(SMALL_ANNOUNCED, seconds).expect("started");
    }
    start(SMALL, Some(1)).expect("nothing is announced");
    let error = start(SMALL_ANNOUNCED, Some(8)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    assert_eq!(
        error.to_string(),
        "addressPools.announce: another daemon may lead 8 s after this one was killed, and addresses must be gone by then, so \
         they would live too short to survive a failed renewal of the Lease; make --leader-elect-lease-duration at least 9s longer than --leader-elect-retry-period"
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_live_as_long_as_the_daemon_leads_alone() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    assert_eq!(announcer.limit(), None);
    let _first = announcing(&cluster, &announcer);
    assert_eq!(announcer.limit(), Some(Duration::MAX), "without an election");
    for seconds in [13, 4, 0] {
        cluster.set_alone_for(Duration::from_secs(seconds));
        assert_eq!(announcer.limit(), Some(Duration::from_secs(seconds)));
    }
}

fn announcing(cluster: &FakeServiceAccess, announcer: &Arc<FakeAnnouncer>) -> Daemon {
    Daemon::with(cluster, SMALL_ANNOUNCED, Arc::clone(announcer), Box::new(Endpoints::default()))
}

fn on_eth1(addresses: &[&str]) -> Vec<(IpAddr, String)> {
    addresses.iter().map(|address| (ip(address), "eth1".to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn addresses_are_held_until_the_service_or_the_term_ends() {
    let (cluster, announcer) = (cluster(&["a", "b"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    for name in ["a", "b"] {
        daemon.addresses(&service(name)).await;
    }
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.1", "10.0.0.2"]));
    let asking = annotated(service("a"), &[(KUBE_VIP_IPS, "10.0.0.3")]);
    daemon.addresses(&asking).await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.2", "10.0.0.3"]));
    daemon.delete(&service("b")).await.expect("deleted");
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.3"]));
    cluster.end_term().await.expect("all released");
    assert_eq!(announcer.addresses(), []);
    // The next term begins like a new process.
    daemon.addresses(&service("a")).await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.3"]));
    daemon.end().await;
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_release_an_address_does_not_stand_down() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    daemon.addresses(&service("a")).await;
    announcer.fail_release.lock().insert(ip("10.0.0.1"));
    let error = cluster.end_term().await.expect_err("the address stays");
    assert_eq!(error.to_string(), "this host may still answer for 10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn the_old_address_answers_until_the_status_shows_the_new_one() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    let status = daemon.ensure(&service("a")).await.expect("a status");
    let asking = annotated(service("a"), &[(KUBE_VIP_IPS, "10.0.0.3")]);
    let shown = LoadBalancerService { status, ..asking.clone() };
    let status = daemon.ensure(&shown).await.expect("a status");
    assert_eq!(addresses_of(&status), ips(&["10.0.0.3"]));
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(cluster.stored_claims().len(), 2);
    // The controller has written the status, and asks again.
    daemon.addresses(&LoadBalancerService { status, ..asking }).await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.3"]));
    assert_eq!(cluster.stored_claims().into_keys().collect::<Vec<_>>(), ips(&["10.0.0.3"]));
}

#[tokio::test(start_paused = true)]
async fn an_address_is_announced_only_when_it_is_claimed_and_not_after_the_term() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    cluster.fault_with(|call| match call {
        AccessCall::WriteClaim(_) => AccessFault::Before,
        _ => AccessFault::None,
    });
    daemon.ensure(&service("a")).await.expect_err("not claimed");
    assert_eq!(announcer.addresses(), []);
    cluster.heal();
    // The term ends at each point of a call, which then goes on.
    for steps in 0..20 {
        let asked = service("a");
        let mut ensuring = std::pin::pin!(daemon.ensure(&asked).fuse());
        for _ in 0..steps {
            let _ = futures::poll!(ensuring.as_mut());
        }
        cluster.end_term().await.expect("all released");
        if !ensuring.is_terminated() {
            let _ = ensuring.await;
        }
        // Either the call saw the end, or it began again in the next term; then that has to be ended too.
        if !announcer.addresses().is_empty() {
            assert!(daemon.balancer.inner.ledger.get().is_some_and(Ledger::is_known), "{steps}");
            cluster.end_term().await.expect("all released");
        }
        assert_eq!(announcer.addresses(), [], "{steps}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_takes_the_addresses_over_before_they_are_given_up() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let old = announcing(&cluster, &announcer);
    old.addresses(&service("a")).await;
    let new = announcing(&cluster, &announcer);
    old.end().await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.1"]));
    assert_eq!(announcer.darkened(), ips(&[]));
    // The new one knows whose address it is.
    new.delete(&service("a")).await.expect("deleted");
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_a_new_configuration_is_tried_is_handed_over_as_it_is() {
    let (cluster, announcer) = (cluster(&["a", "gone", "made"]), FakeAnnouncer::new());
    let old = announcing(&cluster, &announcer);
    for name in ["a", "gone"] {
        old.addresses(&service(name)).await;
    }
    let new = announcing(&cluster, &announcer);
    sleep(Duration::from_secs(60)).await;
    old.delete(&service("gone")).await.expect("deleted");
    assert_eq!(announcer.darkened(), ips(&["10.0.0.2"]));
    old.addresses(&annotated(service("made"), &[(KUBE_VIP_IPS, "10.0.0.3")])).await;
    // The new one is in force, and already has calls when the old one is stopped.
    new.addresses(&service("a")).await;
    old.end().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(announcer.darkened(), ips(&["10.0.0.2"]));
    new.end().await;
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_over_too_late_does_not_stay() {
    let (cluster, announcer) = (cluster(&["a", "b"]), FakeAnnouncer::new());
    let old = announcing(&cluster, &announcer);
    for name in ["a", "b"] {
        old.addresses(&service(name)).await;
    }
    let new = announcing(&cluster, &announcer);
    // Before the old one is stopped, the new one moves a Service and deletes another one.
    new.addresses(&annotated(service("a"), &[(KUBE_VIP_IPS, "10.0.0.3")])).await;
    new.delete(&service("b")).await.expect("deleted");
    old.end().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.3"]));
}

#[tokio::test(start_paused = true)]
async fn an_address_whose_claim_somebody_deleted_is_announced_no_longer() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    daemon.addresses(&service("a")).await;
    cluster.set_claims(vec![claim("10.0.0.1", "b")]);
    sleep(SWEEP_INTERVAL + Duration::from_secs(60)).await;
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_announces_also_what_a_service_has_that_asks_in_vain() {
    let asking = |text: &str| annotated(service("a"), &[(KUBE_VIP_IPS, text)]);
    let full = annotated(service("a"), &[(crate::POOL, "tiny")]);
    let both = dual_stack("a", cloudprovider::IpFamilyPolicy::RequireDualStack);
    let wishes =
        [asking("172.16.0.1"), asking("no address"), asking("0.0.0.0"), asking("10.0.0.3"), full, both];
    let pools = r#"{"announce": true, "pools": [
        {"name": "main", "addresses": ["10.0.0.1-10.0.0.3"], "interface": "eth1"},
        {"name": "tiny", "addresses": ["10.0.1.1"], "autoAssign": false}]}"#;
    for wish in wishes {
        let (cluster, announcer) = (cluster(&["a", "b"]), FakeAnnouncer::new());
        cluster.set_claims(vec![claim("10.0.0.2", "a"), claim("10.0.0.3", "b"), claim("10.0.1.1", "b")]);
        let daemon = Daemon::with(&cluster, pools, Arc::clone(&announcer), Box::new(Endpoints::default()));
        // The second time, what is announced stays.
        for _ in 0..2 {
            daemon.ensure(&wish).await.expect_err("refused");
            assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.2"]), "{wish:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_announced_hides_no_refusal() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    cluster.set_claims(vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "a")]);
    announcer.broken.lock().insert(ip("10.0.0.1"));
    let daemon = announcing(&cluster, &announcer);
    let asking = annotated(service("a"), &[(KUBE_VIP_IPS, "172.16.0.1")]);
    assert_eq!(daemon.ensure(&asking).await.expect_err("refused").kind(), ErrorKind::InvalidInput);
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_cannot_be_held_is_an_error_and_stays_claimed() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    announcer.broken.lock().insert(ip("10.0.0.1"));
    let error = daemon.ensure(&service("a")).await.expect_err("not held");
    assert_eq!(error.to_string(), "the kernel does not set 10.0.0.1");
    announcer.broken.lock().clear();
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.1"]));
    assert_eq!(announcer.addresses(), on_eth1(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn services_that_are_gone_are_announced_no_longer() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    daemon.addresses(&service("a")).await;
    cluster.remove_service("a");
    sleep(2 * SWEEP_INTERVAL + Duration::from_secs(60)).await;
    assert_eq!(announcer.addresses(), []);
    assert!(cluster.stored_claims().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_address_leaves_the_interface_before_its_claim_is_given_back() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    daemon.addresses(&service("a")).await;
    cluster.remove_service("a");
    let watched = Arc::clone(&announcer);
    cluster.fault_with(move |call| {
        if matches!(call, AccessCall::DeleteClaim(_)) {
            assert_eq!(watched.addresses(), []);
        }
        AccessFault::None
    });
    for _ in 0..2 {
        daemon.sweep().await;
    }
    assert!(cluster.stored_claims().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_local_endpoints_is_told_on_each_change() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let endpoints = Endpoints::default();
    let daemon = Daemon::with(&cluster, SMALL_ANNOUNCED, Arc::clone(&announcer), Box::new(endpoints.clone()));
    let local = LoadBalancerService {
        external_traffic_policy: ExternalTrafficPolicy::Local,
        health_check_node_port: Some(30000),
        ..service("a")
    };
    let mut told = 0;
    for (number, is_told) in [(0, false), (1, true), (1, false), (2, false), (0, false), (1, true)] {
        endpoints.0.store(number, Ordering::Relaxed);
        daemon.addresses(&local).await;
        sleep(3 * CHECK_INTERVAL).await;
        told += usize::from(is_told);
        assert_eq!(cluster.warnings().len(), told, "{number}");
    }
    let (of, reason, _) = cluster.warnings().remove(0);
    assert_eq!((of, reason), (service_ref("a"), "NoLocalEndpoints"));
    // Not of interest any more.
    daemon.addresses(&service("a")).await;
    endpoints.0.store(2, Ordering::Relaxed);
    sleep(2 * CHECK_INTERVAL).await;
    endpoints.0.store(1, Ordering::Relaxed);
    sleep(2 * CHECK_INTERVAL).await;
    assert_eq!(cluster.warnings().len(), told);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_leaves_its_interface_is_told_each_time() {
    let (cluster, announcer) = (cluster(&["a", "b"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    for name in ["a", "b"] {
        daemon.addresses(&service(name)).await;
    }
    for told in 1..=2 {
        // One of another load balancer, which this one does not tell of.
        announcer.lost.lock().extend(ips(&["10.0.0.2", "192.0.2.1"]));
        sleep(4 * FAULT_CHECK_INTERVAL).await;
        assert_eq!(cluster.warnings().len(), told);
        announcer.lost.lock().clear();
        sleep(2 * FAULT_CHECK_INTERVAL).await;
    }
    let words = "10.0.0.2 is not announced at the moment: there is no interface eth1; it is announced again when that is remedied";
    assert_eq!(cluster.warnings()[0], (service_ref("b"), "AddressNotAnnounced", words.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_could_not_be_held_is_held_when_that_is_possible() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announcing(&cluster, &announcer);
    announcer.broken.lock().insert(ip("10.0.0.1"));
    daemon.ensure(&service("a")).await.expect_err("not held");
    sleep(2 * FAULT_CHECK_INTERVAL).await;
    assert_eq!((announcer.addresses(), cluster.retries()), (Vec::new(), 0));
    announcer.broken.lock().clear();
    sleep(2 * FAULT_CHECK_INTERVAL).await;
    assert_eq!((announcer.addresses(), cluster.retries()), (on_eth1(&["10.0.0.1"]), 1));
}

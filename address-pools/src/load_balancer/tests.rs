//! Tests of the whole load balancer over a cluster in memory.

mod announcing;
mod conformance;
mod crashes;
mod families;
mod histories;
mod in_use;
mod many;
mod takeover;
mod two_leaders;

use std::time::Duration;

use cloudprovider::{
    LoadBalancer as _,
    testing::{AccessCall, AccessFault, FakeServiceAccess},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{upkeep::SWEEP_INTERVAL, *};
use crate::{
    conventions::{KUBE_VIP_IPS, PICKED},
    testing::{FakeAnnouncer, annotated, claim, config, dual_stack, ip, ips, service, service_ref},
};

const CLUSTER: &str = "kubernetes";

/// A pool of three addresses of each family.
const SMALL: &str = r#"{"pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.3", "fd00::1-fd00::3"], "interface": "eth1"}]}"#;
const SMALL_ANNOUNCED: &str = r#"{"announce": true, "pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.3", "fd00::1-fd00::3"], "interface": "eth1"}]}"#;

/// A daemon: a load balancer that was started.
struct Daemon {
    balancer: PooledLoadBalancer,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Daemon {
    fn start(cluster: &FakeServiceAccess, json: &str) -> Self {
        Self::with(cluster, json, FakeAnnouncer::new(), Box::new(KubeProxy))
    }

    fn with(
        cluster: &FakeServiceAccess,
        json: &str,
        announcer: Arc<FakeAnnouncer>,
        endpoints: Box<dyn LocalEndpoints>,
    ) -> Self {
        let balancer = PooledLoadBalancer::with_parts(config(json), announcer, endpoints);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let context = StartContext::new(stop.clone(), CLUSTER).with_services(Arc::new(cluster.clone()));
        balancer.start(&context, &tasks).expect("started");
        Self { balancer, stop, tasks }
    }

    async fn ensure(&self, service: &LoadBalancerService) -> Result<LoadBalancerStatus> {
        self.balancer.ensure(CLUSTER, service, &[]).await
    }

    /// The addresses after `ensure`.
    async fn addresses(&self, service: &LoadBalancerService) -> Vec<IpAddr> {
        let status = self.ensure(service).await.unwrap_or_else(|error| panic!("{}", error.report()));
        addresses_of(&status)
    }

    /// Why the status is left to another component.
    async fn told_elsewhere(&self, service: &LoadBalancerService) -> String {
        let error = self.ensure(service).await.expect_err("the status is left to another component");
        assert_eq!(error.kind(), ErrorKind::ImplementedElsewhere, "{}", error.report());
        error.to_string()
    }

    async fn get(&self, service: &LoadBalancerService) -> Option<LoadBalancerStatus> {
        self.balancer.get(CLUSTER, service).await.expect("an answer")
    }

    async fn delete(&self, service: &LoadBalancerService) -> Result<()> {
        self.balancer.delete(CLUSTER, service).await
    }

    async fn sweep(&self) {
        let inner = &self.balancer.inner;
        inner.sweep(inner.ledger().expect("started")).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn addresses_of(status: &LoadBalancerStatus) -> Vec<IpAddr> {
    status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect()
}

/// A cluster with these Services.
fn cluster(names: &[&str]) -> FakeServiceAccess {
    let cluster = FakeServiceAccess::new();
    for name in names {
        cluster.add_service(service_ref(name));
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_keeps_and_gives_back_an_address() {
    let cluster = cluster(&["a", "b"]);
    let daemon = Daemon::start(&cluster, SMALL);
    assert_eq!(daemon.get(&service("a")).await, None);
    let status = daemon.ensure(&service("a")).await.expect("a status");
    let expected = LoadBalancerIngress {
        ip: Some("10.0.0.1".to_owned()),
        ip_mode: Some(IpMode::Vip),
        ..LoadBalancerIngress::default()
    };
    assert_eq!(status.ingress, [expected]);
    assert_eq!(daemon.get(&service("a")).await, Some(status.clone()));
    cluster.forget_calls();
    let known = LoadBalancerService { status: status.clone(), ..service("a") };
    assert_eq!(daemon.ensure(&known).await.expect("a status"), status);
    let told = daemon.balancer.update(CLUSTER, &known, &[]).await.expect_err("it needs no Nodes");
    assert_eq!(told.kind(), ErrorKind::ImplementedElsewhere);
    assert_eq!(cluster.calls(), []);
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.0.0.2"]));
    daemon.delete(&known).await.expect("deleted");
    daemon.delete(&known).await.expect("deleted already");
    assert_eq!(daemon.get(&service("a")).await, None);
    assert_eq!(cluster.stored_claims().keys().copied().collect::<Vec<_>>(), ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn another_daemon_finds_what_one_before_claimed() {
    let cluster = cluster(&["a"]);
    Daemon::start(&cluster, SMALL).addresses(&service("a")).await;
    let daemon = Daemon::start(&cluster, SMALL);
    assert_eq!(daemon.get(&service("a")).await.map(|status| addresses_of(&status)), Some(ips(&["10.0.0.1"])));
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.1"]));
    Daemon::start(&cluster, SMALL).delete(&service("a")).await.expect("deleted");
    assert!(cluster.stored_claims().is_empty());
    // Who does not know of it meets a conflict, looks, and goes on.
    cluster.set_claims(vec![claim("10.0.0.1", "x")]);
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_something_else_uses_is_passed_over() {
    let cluster = cluster(&["a"]);
    cluster.use_elsewhere(ip("10.0.0.1"));
    let daemon = Daemon::start(&cluster, SMALL);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    let asking = annotated(service("b"), &[(KUBE_VIP_IPS, "10.0.0.1")]);
    let error = daemon.ensure(&asking).await.expect_err("refused");
    assert_eq!(error.to_string(), "10.0.0.1 is asked for, and something else in the cluster uses it");
    // With each try it is asked for again: nobody tells when it is free.
    cluster.free_elsewhere(ip("10.0.0.1"));
    assert_eq!(daemon.addresses(&asking).await, ips(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_addresses_something_else_uses_is_searched_to_its_end() {
    let cluster = cluster(&["a"]);
    for last in 1..=40 {
        cluster.use_elsewhere(IpAddr::from([10, 0, 0, last]));
    }
    let pools = r#"{"pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.41"]}]}"#;
    let daemon = Daemon::start(&cluster, pools);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.41"]));
    let error = daemon.ensure(&service("b")).await.expect_err("full");
    assert!(
        error.to_string().starts_with("the pool \"main\" (41 addresses) has no free IPv4 address"),
        "{error}"
    );
    // When the pool is full, all is read anew.
    cluster.free_elsewhere(ip("10.0.0.7"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.0.0.7"]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_wish_moves_the_service_without_a_moment_without_a_claim() {
    let cluster = cluster(&["a"]);
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.addresses(&service("a")).await;
    cluster.forget_calls();
    let asking = LoadBalancerService { load_balancer_ip: Some("10.0.0.3".to_owned()), ..service("a") };
    assert_eq!(daemon.addresses(&asking).await, ips(&["10.0.0.3"]));
    let calls = cluster.calls();
    assert!(
        matches!(&calls[..], [AccessCall::WriteClaim(new), AccessCall::DeleteClaim(old)]
        if new.address == ip("10.0.0.3") && old.address == ip("10.0.0.1")),
        "{calls:?}"
    );
    // The wish goes: the address stays.
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.3"]));
    assert_eq!(
        daemon.addresses(&dual_stack("a", cloudprovider::IpFamilyPolicy::PreferDualStack)).await,
        ips(&["10.0.0.3", "fd00::1"])
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_is_not_given_back_while_the_status_shows_it() {
    let cluster = cluster(&["a", "b"]);
    // The second one has no claim, only the status.
    cluster.set_assigned(vec![(service_ref("b"), ip("10.0.0.2"))]);
    let daemon = Daemon::start(&cluster, SMALL);
    let shows = |service: LoadBalancerService, address: &str| {
        let shown = LoadBalancerIngress { ip: Some(address.to_owned()), ..LoadBalancerIngress::default() };
        LoadBalancerService { status: LoadBalancerStatus { ingress: vec![shown] }, ..service }
    };
    let asks = |name: &str, address: &str| LoadBalancerService {
        load_balancer_ip: Some(address.to_owned()),
        ..service(name)
    };
    daemon.addresses(&service("a")).await;
    for (name, shown, wanted) in [("a", "10.0.0.1", "10.0.0.3"), ("b", "10.0.0.2", "10.0.0.1")] {
        let moving = shows(asks(name, wanted), shown);
        // Also if the write of the new status fails.
        for _ in 0..2 {
            assert_eq!(daemon.addresses(&moving).await, ips(&[wanted]));
            let refused = daemon.ensure(&asks("c", shown)).await.expect_err("it is shown");
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{}", refused.report());
        }
        let moved = shows(asks(name, wanted), wanted);
        assert_eq!(daemon.addresses(&moved).await, ips(&[wanted]));
        assert_eq!(daemon.get(&moved).await.map(|status| addresses_of(&status)), Some(ips(&[wanted])));
    }
    assert_eq!(daemon.addresses(&asks("c", "10.0.0.2")).await, ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn in_a_full_pool_services_that_are_gone_make_room() {
    let cluster = cluster(&["a", "b"]);
    // Somebody removed the finalizer of `gone` by force.
    cluster.set_claims(vec![claim("10.0.0.1", "gone")]);
    let daemon = Daemon::start(&cluster, SMALL);
    for name in ["a", "b"] {
        daemon.addresses(&service(name)).await;
    }
    cluster.add_service(service_ref("c"));
    cluster.forget_calls();
    assert_eq!(daemon.addresses(&service("c")).await, ips(&["10.0.0.1"]));
    let asked: Vec<_> =
        cluster.calls().into_iter().filter(|call| matches!(call, AccessCall::Exists(_))).collect();
    assert_eq!(asked, [AccessCall::Exists(service_ref("gone"))], "only those that were not seen");
    // Many at once look once.
    sleep(Duration::from_secs(60)).await;
    cluster.forget_calls();
    let many: Vec<_> = (0..20).map(|number| service(&format!("m{number}"))).collect();
    let refused = futures::future::join_all(many.iter().map(|service| daemon.ensure(service))).await;
    assert!(refused.iter().all(Result::is_err));
    assert_eq!(cluster.calls(), [AccessCall::Claims]);
    // Really full: told with an error, and not looked for again at once.
    for _ in 0..2 {
        cluster.forget_calls();
        let error = daemon.ensure(&service("d")).await.expect_err("full");
        assert!(
            error.is_retryable() && error.to_string().contains("held by default/c, default/a, default/b"),
            "{error}"
        );
        assert_eq!(cluster.calls(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn once_an_hour_what_services_hold_that_are_gone_is_given_up() {
    let cluster = cluster(&["a"]);
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.addresses(&service("a")).await;
    cluster.set_claims(vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "gone")]);
    cluster.fault_with(|call| match call {
        AccessCall::Exists(_) => AccessFault::Before,
        _ => AccessFault::None,
    });
    sleep(SWEEP_INTERVAL + Duration::from_secs(60)).await;
    assert_eq!(cluster.stored_claims().len(), 2, "no answer is no");
    cluster.heal();
    sleep(SWEEP_INTERVAL).await;
    assert_eq!(cluster.stored_claims().keys().copied().collect::<Vec<_>>(), ips(&["10.0.0.1"]));
    // The Service that was used before is asked for too, and lives.
    cluster.remove_service("a");
    sleep(2 * SWEEP_INTERVAL).await;
    assert!(cluster.stored_claims().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_service_that_cannot_be_asked_for_does_not_keep_others_from_being_given_up() {
    let cluster = cluster(&[]);
    cluster.set_claims(vec![claim("10.0.0.1", "gone"), claim("10.0.0.2", "unknown")]);
    cluster.fault_with(|call| match call {
        AccessCall::Exists(service) if service.uid == "unknown" => AccessFault::Before,
        _ => AccessFault::None,
    });
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.get(&service("none")).await;
    daemon.sweep().await;
    assert_eq!(cluster.stored_claims().into_keys().collect::<Vec<_>>(), ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn claims_without_uids_are_given_up_one_by_one() {
    let cluster = cluster(&["a"]);
    let lost = |address, name| {
        let mut lost = claim(address, name);
        lost.holders[0].service.uid.clear();
        lost
    };
    cluster.set_claims(vec![lost("10.0.0.1", "gone"), lost("10.0.0.2", "a")]);
    let daemon = Daemon::start(&cluster, SMALL);
    // The Service gets it by its name, and its UID is written.
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    daemon.sweep().await;
    assert_eq!(
        cluster.stored_claims().into_values().map(|claim| claim.holders).collect::<Vec<_>>(),
        [claim("10.0.0.2", "a").holders]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_term_reads_the_claims_again() {
    let cluster = cluster(&["a"]);
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.addresses(&service("a")).await;
    cluster.end_term().await.expect("all released");
    cluster.set_claims(vec![claim("10.0.0.2", "a"), claim("10.0.0.1", "b")]);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn kube_vip_is_told_by_annotation_and_writes_the_status() {
    let cluster = cluster(&["a"]);
    let pools = r#"{"announcedBy": "kube-vip", "pools": [{"name": "main", "addresses": ["10.0.0.1"], "interface": "eth1"}]}"#;
    let daemon = Daemon::start(&cluster, pools);
    assert_eq!(
        daemon.told_elsewhere(&service("a")).await,
        "kube-vip announces 10.0.0.1 and writes the status"
    );
    let changes = cluster.changes();
    let [(of, change)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((of, change.load_balancer_ip.clone()), (&service_ref("a"), Some(Some("10.0.0.1".to_owned()))));
    let written = annotated(
        LoadBalancerService {
            load_balancer_ip: Some("10.0.0.1".to_owned()),
            labels: [("implementation".to_owned(), "kube-vip".to_owned())].into(),
            ..service("a")
        },
        &[
            (KUBE_VIP_IPS, "10.0.0.1"),
            (PICKED, "10.0.0.1"),
            ("kube-vip.io/serviceInterface", "eth1"),
            (crate::conventions::PICKED_INTERFACE, "eth1"),
        ],
    );
    assert!(change.annotations.iter().all(|(key, value)| written.annotations.get(key) == value.as_ref()));
    cluster.forget_calls();
    let written = LoadBalancerService {
        status: LoadBalancerStatus {
            ingress: vec![LoadBalancerIngress {
                ip: Some("10.0.0.1".to_owned()),
                ..LoadBalancerIngress::default()
            }],
        },
        ..written
    };
    daemon.told_elsewhere(&written).await;
    assert_eq!(daemon.get(&written).await, Some(written.status.clone()));
    assert_eq!(cluster.calls(), []);
    daemon.delete(&written).await.expect("deleted");
    assert_eq!(cluster.changes().len(), 2);
    // The Service itself is gone already: its claims go all the same.
    daemon.told_elsewhere(&service("a")).await;
    cluster.remove_service("a");
    daemon.delete(&written).await.expect("deleted");
    assert!(cluster.stored_claims().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pools_of_a_config_map_change_while_the_daemon_runs() {
    let cluster = cluster(&["a", "b"]);
    let name =
        cloudprovider::ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let daemon = Daemon::start(&cluster, r#"{"kubeVipConfigMap": {}, "announcedBy": "none"}"#);
    assert_eq!(daemon.balancer.needs().config_maps, std::slice::from_ref(&name));
    let error = daemon.ensure(&service("a")).await.expect_err("no pools");
    assert_eq!(
        error.to_string(),
        "no pool gives IPv4 addresses to the namespace default; see ConfigMap kube-system/kubevip, which does not exist"
    );
    let set = |key: &str, value: &str| {
        cluster.set_config_map(&name, Some([(key.to_owned(), value.to_owned())].into()));
    };
    set("cidr-global", "10.1.0.0/24");
    let retries = cluster.retries();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.retries(), retries + 1, "Services that wait are tried again");
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.1.0.1"]));
    set("cidr-global", "10.1.0.0/24");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.retries(), retries + 1, "nothing has changed");
    set("range-default", "10.2.0.5-10.2.0.6");
    sleep(Duration::from_millis(1)).await;
    // What is held is kept, and a warning says once that it is in no pool any more.
    for _ in 0..2 {
        assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.1.0.1"]));
    }
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.2.0.5"]));
    let warnings = cluster.warnings();
    let [(of, reason, message)] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!((of, *reason), (&service_ref("a"), "LoadBalancerAddressOutsidePools"));
    assert!(
        message.starts_with("10.1.0.1 is kept, and is in no pool for the namespace default any more"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn with_kube_vips_pools_and_kube_vip_any_address_may_be_asked_for_where_that_is_allowed() {
    let asking = annotated(service("a"), &[(KUBE_VIP_IPS, "192.0.2.9")]);
    let by_field = LoadBalancerService { load_balancer_ip: Some("192.0.2.9".to_owned()), ..service("b") };
    let others = [
        r#"{"kubeVipConfigMap": {}}"#,
        r#"{"kubeVipConfigMap": {}, "announcedBy": "none"}"#,
        r#"{"announcedBy": "kube-vip", "pools": [{"name": "main", "addresses": ["10.0.0.1"]}]}"#,
    ];
    for json in others {
        let daemon = Daemon::start(&cluster(&["a"]), json);
        let error = daemon.ensure(&asking).await.expect_err("in no pool");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{json}");
    }
    let cluster = cluster(&["a", "b"]);
    let daemon = Daemon::start(&cluster, r#"{"kubeVipConfigMap": {"allowOutsidePools": true}}"#);
    for _ in 0..2 {
        daemon.told_elsewhere(&asking).await;
    }
    assert_eq!(cluster.stored_claims().into_keys().collect::<Vec<_>>(), ips(&["192.0.2.9"]));
    let reasons: Vec<_> = cluster.warnings().into_iter().map(|(of, reason, _)| (of.name, reason)).collect();
    assert_eq!(reasons, [("a".to_owned(), "LoadBalancerAddressOutsidePools")]);
    // It is claimed like any other.
    assert_eq!(daemon.ensure(&by_field).await.expect_err("held").kind(), ErrorKind::Conflict);
    daemon.delete(&asking).await.expect("deleted");
    daemon.told_elsewhere(&by_field).await;
}

#[tokio::test(start_paused = true)]
async fn dhcp_needs_kube_vip() {
    let cluster = cluster(&["a"]);
    let asking = annotated(service("a"), &[(KUBE_VIP_IPS, "0.0.0.0")]);
    let daemon = Daemon::start(&cluster, SMALL);
    assert_eq!(daemon.ensure(&asking).await.expect_err("refused").kind(), ErrorKind::Unsupported);
    let name =
        cloudprovider::ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    cluster.set_config_map(&name, Some([("cidr-global".to_owned(), "0.0.0.0/32".to_owned())].into()));
    let daemon = Daemon::start(&cluster, r#"{"kubeVipConfigMap": {}}"#);
    assert_eq!(daemon.get(&service("a")).await, None);
    daemon.told_elsewhere(&service("a")).await;
    let (_, change) = cluster.changes().pop().expect("a change");
    assert_eq!(change.annotations.get(KUBE_VIP_IPS), Some(&Some("0.0.0.0".to_owned())));
    assert!(cluster.stored_claims().is_empty());
    assert_eq!(daemon.get(&asking).await, None, "a person's wish is no load balancer");
    let written = annotated(asking.clone(), &[(PICKED, "0.0.0.0")]);
    assert_eq!(daemon.get(&written).await, Some(LoadBalancerStatus::default()));
    daemon.delete(&asking).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn before_the_start_every_call_fails() {
    let balancer = PooledLoadBalancer::new(config(SMALL));
    assert!(balancer.ensure(CLUSTER, &service("a"), &[]).await.is_err());
    assert!(balancer.get(CLUSTER, &service("a")).await.is_err());
    assert!(balancer.delete(CLUSTER, &service("a")).await.is_err());
}

//! Addresses that something else uses are passed over.

use cloudprovider::{AddressUser, UsedAddresses};

use super::*;

const NETWORKS: &str = r#"{"pools": [
    {"name": "main", "addresses": ["10.0.0.1-10.0.0.4"]},
    {"name": "shop", "addresses": ["10.0.1.1-10.0.1.2"], "namespaces": ["shop"]}
]}"#;

fn of(namespace: &str, name: &str) -> ServiceRef {
    ServiceRef { namespace: namespace.to_owned(), ..service_ref(name) }
}

fn node() -> AddressUser {
    AddressUser::Node("secret-node".to_owned())
}

fn node_of(number: u8) -> AddressUser {
    AddressUser::Node(format!("node-{number}"))
}

fn external(namespace: &str, name: &str) -> AddressUser {
    AddressUser::ExternalIp(of(namespace, name))
}

fn uses(cluster: &FakeServiceAccess, used: &[(&str, AddressUser)]) {
    cluster.set_in_use(used.iter().map(|(address, user)| (ip(address), user.clone())).collect());
}

fn asking(name: &str, address: &str) -> LoadBalancerService {
    annotated(service(name), &[(KUBE_VIP_IPS, address)])
}

async fn refusal(daemon: &Daemon, service: &LoadBalancerService) -> String {
    daemon.ensure(service).await.expect_err("refused").to_string()
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_shows_in_use_is_passed_over_and_told() {
    let cluster = cluster(&["a", "b"]);
    let elsewhere = AddressUser::OtherLoadBalancer(of("other", "secret-service"));
    uses(&cluster, &[("10.0.0.1", node()), ("10.0.0.2", AddressUser::ApiServer), ("10.0.0.3", elsewhere)]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.4"]));
    let warnings = cluster.warnings();
    let [(of, reason, message)] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!((of.name.as_str(), *reason), ("a", "LoadBalancerAddressInUse"));
    assert_eq!(
        message,
        "addresses of the pools that are in use were passed over: 10.0.0.1 (it is an address of a Node), \
         10.0.0.2 (it is an address of the API server), \
         10.0.0.3 (a Service of another namespace has it from a load balancer of another class); take them out of the pools"
    );
    for (address, why) in [
        ("10.0.0.1", "it is an address of a Node"),
        ("10.0.0.2", "it is an address of the API server"),
        ("10.0.0.3", "a Service of another namespace has it from a load balancer of another class"),
    ] {
        assert_eq!(
            refusal(&daemon, &asking("b", address)).await,
            format!("{address} is asked for, and {why}")
        );
    }
    // It ends with the use.
    uses(&cluster, &[]);
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn external_ips_block_the_pools_of_their_namespace_only() {
    let cluster = cluster(&["a", "b"]);
    let shop = LoadBalancerService { namespace: "shop".to_owned(), ..service("c") };
    cluster.add_service(of("shop", "c"));
    uses(
        &cluster,
        &[
            // A tenant of the common pool, one of no pool but that, and the Service itself.
            ("10.0.0.1", external("default", "x")),
            ("10.0.1.1", external("default", "x")),
            ("10.0.0.2", external("default", "a")),
        ],
    );
    let daemon = Daemon::start(&cluster, NETWORKS);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    assert_eq!(daemon.addresses(&shop).await, ips(&["10.0.1.1"]));
    let why = refusal(&daemon, &asking("b", "10.0.0.1")).await;
    assert_eq!(why, "10.0.0.1 is asked for, and the Service default/x has it as an external IP");
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_what_it_holds_though_something_else_uses_it_later() {
    let cluster = cluster(&["a"]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.1"]));
    uses(&cluster, &[("10.0.0.1", node())]);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.1"]));
    let message =
        "10.0.0.1 is kept, and it is an address of a Node as well; give one of the two another address";
    let warning = (service_ref("a"), "LoadBalancerAddressInUse", message.to_owned());
    assert_eq!(cluster.warnings(), [warning]);
}

#[tokio::test(start_paused = true)]
async fn addresses_of_the_cloud_are_passed_over() {
    let cluster = cluster(&["a"]);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let balancer = PooledLoadBalancer::new_beside(config(NETWORKS), ips(&["10.0.0.1"]));
    let context = StartContext::new(stop.clone(), CLUSTER).with_services(Arc::new(cluster.clone()));
    balancer.start(&context, &tasks).expect("started");
    let status = balancer.ensure(CLUSTER, &service("a"), &[]).await.expect("a status");
    assert_eq!(addresses_of(&status), ips(&["10.0.0.2"]));
    stop.cancel();
}

/// kube-vip's pools in a `ConfigMap`, with kube-vip announcing.
fn with_kube_vip(cluster: &FakeServiceAccess, json: &str) -> Daemon {
    let name = cloudprovider::ConfigMapName { namespace: "kube-system".into(), name: "kubevip".into() };
    let data = [("range-global".to_owned(), "10.0.0.1-10.0.0.4".to_owned())];
    cluster.set_config_map(&name, Some(data.into()));
    Daemon::start(cluster, json)
}

#[tokio::test(start_paused = true)]
async fn addresses_outside_of_all_pools_are_refused_unless_allowed() {
    let used = [("192.0.2.2", node()), ("192.0.2.10", AddressUser::ApiServer)];
    for (json, outside) in [
        (r#"{"kubeVipConfigMap": {}}"#, false),
        (r#"{"kubeVipConfigMap": {"allowOutsidePools": true}}"#, true),
    ] {
        let cluster = cluster(&["a"]);
        uses(&cluster, &used);
        let daemon = with_kube_vip(&cluster, json);
        for address in ["192.0.2.2", "192.0.2.10"] {
            let why = refusal(&daemon, &asking("a", address)).await;
            assert!(why.starts_with(&format!("{address} is asked for, and i")), "{why}");
            assert!(!why.contains("secret-node"), "{why}");
        }
        let error = daemon.ensure(&asking("a", "192.0.2.20")).await.expect_err("kube-vip writes the status");
        assert_eq!(error.kind() == ErrorKind::ImplementedElsewhere, outside, "{}", error.report());
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_reserves_only_when_a_term_begins() {
    let cluster = cluster(&["a", "b"]);
    let daemon = with_kube_vip(&cluster, r#"{"kubeVipConfigMap": {}}"#);
    daemon.told_elsewhere(&service("b")).await;
    // Somebody writes the status, and asks for what it shows.
    let status = LoadBalancerStatus {
        ingress: vec![LoadBalancerIngress {
            ip: Some("192.0.2.20".to_owned()),
            ..LoadBalancerIngress::default()
        }],
    };
    let claiming = LoadBalancerService { status, ..asking("a", "192.0.2.20") };
    cluster.set_assigned(vec![(service_ref("a"), ip("192.0.2.20")), (service_ref("a"), ip("10.0.0.2"))]);
    daemon.sweep().await;
    let why = refusal(&daemon, &claiming).await;
    assert!(why.contains("is in no pool"), "{why}");
    // Nor does it keep others from an address.
    cluster.add_service(service_ref("c"));
    daemon.told_elsewhere(&asking("c", "10.0.0.2")).await;
    // The next term takes over what is there.
    cluster.end_term().await.expect("ended");
    let said = daemon.told_elsewhere(&claiming).await;
    assert!(said.contains("192.0.2.20"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_status_with_the_address_of_a_node_is_not_taken_over() {
    let cluster = cluster(&["a", "b"]);
    uses(&cluster, &[("10.0.0.2", node()), ("10.0.0.3", external("default", "x"))]);
    cluster.set_assigned(vec![(service_ref("a"), ip("10.0.0.2")), (service_ref("b"), ip("10.0.0.3"))]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    let shown = |name: &str, address: &str| LoadBalancerService {
        status: LoadBalancerStatus {
            ingress: vec![LoadBalancerIngress { ip: Some(address.into()), ..LoadBalancerIngress::default() }],
        },
        ..service(name)
    };
    assert_eq!(daemon.addresses(&shown("a", "10.0.0.2")).await, ips(&["10.0.0.1"]));
    // Clients use this one, whatever another Service says.
    assert_eq!(daemon.addresses(&shown("b", "10.0.0.3")).await, ips(&["10.0.0.3"]));
}

fn announced(cluster: &FakeServiceAccess, announcer: &Arc<FakeAnnouncer>, probe: &str) -> Daemon {
    let json = format!(
        r#"{{"announce": true, "pools": [{{"name": "main", "addresses": ["10.0.0.1-10.0.0.3"]{probe}}}]}}"#
    );
    Daemon::with(cluster, &json, Arc::clone(announcer), Box::new(KubeProxy))
}

#[tokio::test(start_paused = true)]
async fn the_network_is_asked_for_an_address_before_it_is_taken() {
    let (cluster, announcer) = (cluster(&["a", "b"]), FakeAnnouncer::new());
    announcer.on_network.lock().insert(ip("10.0.0.1"));
    let daemon = announced(&cluster, &announcer, "");
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    let claims: Vec<_> = cluster.stored_claims().into_keys().collect();
    assert_eq!(claims, ips(&["10.0.0.2"]), "what was given back");
    let message = "10.0.0.1 is passed over: a host on the network has it; take it out of the pool";
    let warning = (service_ref("a"), "LoadBalancerAddressInUse", message.to_owned());
    assert_eq!(cluster.warnings(), [warning]);
    // It is not asked for again by each Service, and what is held is not asked for at all.
    let mut kept = service("a");
    kept.status = daemon.ensure(&kept).await.expect("a status");
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.0.0.3"]));
    assert_eq!(*announcer.probed.lock(), ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    // Who asks for it is told, and gets it when it is free.
    daemon.delete(&service("b")).await.expect("deleted");
    let asked = asking("b", "10.0.0.1");
    assert_eq!(refusal(&daemon, &asked).await, "10.0.0.1 is asked for, and a host on the network has it");
    announcer.on_network.lock().clear();
    assert_eq!(daemon.addresses(&asked).await, ips(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_shows_its_address_is_announced_without_a_question() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    cluster.set_claims(vec![claim("10.0.0.1", "a")]);
    announcer.on_network.lock().insert(ip("10.0.0.1"));
    let daemon = announced(&cluster, &announcer, "");
    let mut shown = service("a");
    shown.status.ingress =
        vec![LoadBalancerIngress { ip: Some("10.0.0.1".into()), ..LoadBalancerIngress::default() }];
    assert_eq!(daemon.addresses(&shown).await, ips(&["10.0.0.1"]));
    assert!(announcer.probed.lock().is_empty());
    // One that was claimed before a crash was never shown, so it is asked for.
    daemon.end().await;
    let daemon = announced(&cluster, &announcer, "");
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn questions_can_be_switched_off() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    let daemon = announced(&cluster, &announcer, r#", "probe": false"#);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.1"]));
    assert!(announcer.probed.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_this_host_cannot_announce_is_not_kept() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    announcer.foreign.lock().insert(ip("10.0.0.1"));
    let daemon = announced(&cluster, &announcer, r#", "probe": false"#);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    assert_eq!(cluster.stored_claims().into_keys().collect::<Vec<_>>(), ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_hosts_have_is_full() {
    let (cluster, announcer) = (cluster(&["a"]), FakeAnnouncer::new());
    announcer.on_network.lock().extend(ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    let daemon = announced(&cluster, &announcer, "");
    let why = refusal(&daemon, &service("a")).await;
    assert!(why.contains("has no free IPv4 address; held by others"), "{why}");
    assert!(cluster.stored_claims().is_empty() && announcer.addresses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_addresses_in_use_cost_one_look_each() {
    let cluster = cluster(&["a"]);
    let used: UsedAddresses = (1..=250).map(|last| (IpAddr::from([10, 2, 0, last]), node_of(last))).collect();
    cluster.set_in_use(used);
    let daemon =
        Daemon::start(&cluster, r#"{"pools": [{"name": "main", "addresses": ["10.2.0.1-10.2.0.254"]}]}"#);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.2.0.251"]));
}

/// Two networks for all, and what lists all addresses of the first one.
const WIDE: &str = r#"{"pools": [
    {"name": "main", "addresses": ["10.2.0.1-10.2.0.254"]},
    {"name": "further", "addresses": ["10.3.0.1-10.3.0.9"], "autoAssign": false}
]}"#;

fn lists_all(user: impl Fn(u8) -> AddressUser) -> UsedAddresses {
    (1..=254).map(|last| (IpAddr::from([10, 2, 0, last]), user(last))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lists_a_whole_pool_blocks_a_few_addresses_of_it() {
    let cluster = cluster(&["a", "b", "c"]);
    let mut used = lists_all(|_| node());
    // What is in no pool does not count, and the Node's neighbour has its own addresses all the same.
    used.extend((1..=99).map(|last| (IpAddr::from([10, 1, 0, last]), node())));
    used.extend([(ip("10.2.0.9"), node_of(2)), (ip("10.2.0.11"), node_of(2))]);
    cluster.set_in_use(used);
    let daemon = Daemon::start(&cluster, WIDE);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.2.0.10"]));
    assert_eq!(daemon.addresses(&service("b")).await, ips(&["10.2.0.12"]));
    // Nothing says that one of these is kept although the Node has it.
    let messages: Vec<_> = cluster.warnings().into_iter().map(|(_, _, message)| message).collect();
    assert!(messages.iter().all(|message| message.contains("were passed over")), "{messages:?}");
    // Who asks for an address of them by name is refused it, whatever the limit.
    for address in ["10.2.0.8", "10.2.0.200"] {
        let why = refusal(&daemon, &asking("c", address)).await;
        assert_eq!(why, format!("{address} is asked for, and it is an address of a Node"));
    }
    // Another list counts at once.
    cluster.set_in_use([(ip("10.3.0.1"), node())].into_iter().collect());
    refusal(&daemon, &asking("c", "10.3.0.1")).await;
}

#[tokio::test(start_paused = true)]
async fn the_external_ips_of_a_namespace_block_a_few_addresses_for_others() {
    let cluster = cluster(&["a", "b"]);
    let own = LoadBalancerService { namespace: "evil".to_owned(), ..service("c") };
    cluster.add_service(of("evil", "c"));
    // However many Services they are in.
    cluster.set_in_use(lists_all(|last| external("evil", &format!("x{}", last % 50))));
    let daemon = Daemon::start(&cluster, WIDE);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.2.0.17"]));
    for address in ["10.2.0.16", "10.2.0.200"] {
        let why = refusal(&daemon, &asking("b", address)).await;
        let expected = "is asked for, and a Service of another namespace has it as an external IP";
        assert_eq!(why, format!("{address} {expected}"));
    }
    // Its own Services get none of them.
    let why = refusal(&daemon, &own).await;
    assert!(why.contains("has no free IPv4 address"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn what_services_have_leaves_room_for_the_own_address_of_a_node() {
    let cluster = cluster(&["a"]);
    let holders: Vec<_> = (1..=20).map(|last| (format!("10.2.0.{last}"), format!("holder-{last}"))).collect();
    for (_, holder) in &holders {
        cluster.add_service(service_ref(holder));
    }
    cluster.set_claims(holders.iter().map(|(address, holder)| claim(address, holder)).collect());
    // A host that announces addresses has them beside its own one.
    cluster.set_in_use((1..=21).map(|last| (IpAddr::from([10, 2, 0, last]), node())).collect());
    let daemon = Daemon::start(&cluster, WIDE);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.2.0.22"]));
}

#[tokio::test(start_paused = true)]
async fn services_join_an_address_though_a_node_lists_all() {
    let cluster = cluster(&["a", "b"]);
    let daemon = Daemon::start(
        &cluster,
        r#"{"pools": [{"name": "main", "addresses": ["10.2.0.1-10.2.0.254"], "allowSharing": true}]}"#,
    );
    cluster.set_in_use(lists_all(|_| node()));
    let web = |name: &str, number: u16| {
        let shared = annotated(service(name), &[(crate::conventions::SHARING_KEY, "web")]);
        LoadBalancerService { ports: vec![crate::testing::port(number)], ..shared }
    };
    assert_eq!(daemon.addresses(&web("a", 80)).await, ips(&["10.2.0.9"]));
    assert_eq!(daemon.addresses(&web("b", 443)).await, ips(&["10.2.0.9"]));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_node_lists_among_many_is_taken_over() {
    let cluster = cluster(&["a"]);
    cluster.set_in_use(lists_all(|_| node()));
    cluster.set_assigned(vec![(service_ref("a"), ip("10.2.0.20"))]);
    let daemon = Daemon::start(&cluster, WIDE);
    let mut shown = service("a");
    shown.status.ingress =
        vec![LoadBalancerIngress { ip: Some("10.2.0.20".into()), ..LoadBalancerIngress::default() }];
    assert_eq!(daemon.addresses(&shown).await, ips(&["10.2.0.20"]));
    assert!(cluster.warnings().is_empty(), "{:?}", cluster.warnings());
}

fn endpoint(namespace: &str, name: &str) -> AddressUser {
    AddressUser::ControlPlane { namespace: namespace.into(), name: name.into() }
}

fn in_namespace(namespace: &str, service: LoadBalancerService) -> LoadBalancerService {
    LoadBalancerService { namespace: namespace.to_owned(), ..service }
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_of_a_cluster_is_picked_for_nobody_and_given_to_its_namespace() {
    let cluster = cluster(&["a", "b"]);
    for name in ["c", "d"] {
        cluster.add_service(of("clusters", name));
    }
    uses(&cluster, &[("10.0.0.1", endpoint("clusters", "secret-cluster"))]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.0.0.2"]));
    assert_eq!(daemon.addresses(&in_namespace("clusters", service("c"))).await, ips(&["10.0.0.3"]));
    let passed_over = |why: &str| {
        format!(
            "addresses of the pools that are in use were passed over: 10.0.0.1 ({why}); take them out of the pools"
        )
    };
    let (of_others, own) = ("something else uses it", "it is the address of a cluster's control plane");
    let messages: Vec<_> = cluster.warnings().into_iter().map(|(_, _, message)| message).collect();
    assert_eq!(messages, [passed_over(of_others), passed_over(own)]);
    let why = refusal(&daemon, &asking("b", "10.0.0.1")).await;
    assert_eq!(why, format!("10.0.0.1 is asked for, and {of_others}"));
    // A control plane that is a Service asks for its address, and keeps it. Another namespace's Cluster with the same endpoint changes
    // nothing.
    uses(
        &cluster,
        &[("10.0.0.1", endpoint("clusters", "secret-cluster")), ("10.0.0.1", endpoint("evil", "copy"))],
    );
    let control_plane = in_namespace("clusters", asking("d", "10.0.0.1"));
    assert_eq!(daemon.addresses(&control_plane).await, ips(&["10.0.0.1"]));
    assert_eq!(cluster.warnings().len(), 2, "{:?}", cluster.warnings());
}

#[tokio::test(start_paused = true)]
async fn the_clusters_of_a_namespace_block_a_few_addresses_for_others() {
    let cluster = cluster(&["a", "b"]);
    cluster.set_in_use(lists_all(|last| endpoint("clusters", &last.to_string())));
    let daemon = Daemon::start(&cluster, WIDE);
    assert_eq!(daemon.addresses(&service("a")).await, ips(&["10.2.0.17"]));
    let why = refusal(&daemon, &asking("b", "10.2.0.200")).await;
    assert_eq!(why, "10.2.0.200 is asked for, and something else uses it");
}

#[tokio::test(start_paused = true)]
async fn clusters_block_the_pools_of_their_namespace_only() {
    let cluster = cluster(&[]);
    for name in ["a", "b"] {
        cluster.add_service(of("shop", name));
    }
    uses(&cluster, &[("10.0.1.1", endpoint("default", "x")), ("10.0.1.2", endpoint("default", "y"))]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    assert_eq!(daemon.addresses(&in_namespace("shop", service("a"))).await, ips(&["10.0.1.1"]));
    assert_eq!(daemon.addresses(&in_namespace("shop", asking("b", "10.0.1.2"))).await, ips(&["10.0.1.2"]));
    assert!(cluster.warnings().is_empty(), "{:?}", cluster.warnings());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_taken_over_whatever_clusters_say() {
    let cluster = cluster(&["a"]);
    uses(&cluster, &[("10.0.0.3", endpoint("clusters", "x"))]);
    cluster.set_assigned(vec![(service_ref("a"), ip("10.0.0.3"))]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    let mut shown = service("a");
    shown.status.ingress =
        vec![LoadBalancerIngress { ip: Some("10.0.0.3".into()), ..LoadBalancerIngress::default() }];
    assert_eq!(daemon.addresses(&shown).await, ips(&["10.0.0.3"]));
}

#[tokio::test(start_paused = true)]
async fn metallbs_annotation_says_the_same_of_the_pool_of_others_and_of_none() {
    let cluster = cluster(&["a", "b"]);
    let daemon = Daemon::start(&cluster, NETWORKS);
    for (name, pool) in [("a", "shop"), ("b", "none")] {
        daemon
            .ensure(&annotated(service(name), &[("metallb.io/address-pool", pool)]))
            .await
            .expect("an address");
    }
    let told: Vec<_> = cluster.warnings().into_iter().map(|(of, _, message)| (of.name, message)).collect();
    let [(a, of_others), (b, none)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((a.as_str(), b.as_str(), of_others), ("a", "b", none));
    assert!(none.contains("without an effect"), "{none}");
}

//! Pod routes in the kernel of a network namespace.

use std::sync::Arc;

use cloudprovider::{
    CloudProvider, ErrorKind, InstanceLookup, Instances, NodeAddress, NodeIdentity, Result, Route, Routes,
    async_trait,
    testing::conformance::{self, Hook, HookError, Hooks, Suite},
};
use cloudprovider_libvirt::{Config, LibvirtProvider, ROUTE_PROTOCOL};
use parking_lot::Mutex;
use tempfile::NamedTempFile;

use crate::{
    namespace::{Guest, ip, on_a_hypervisor, sysctl},
    support::{Cloud, RUNNING, domain, host, new_node, uuid},
};

const CLUSTER: &str = "kubernetes";
const ENABLED: &str = "routes: {enabled: true}\n";

struct Hypervisor {
    file: NamedTempFile,
    latest: Mutex<Option<Arc<LibvirtProvider>>>,
}

fn node(n: u32) -> NodeIdentity {
    new_node(&format!("node-{n}"), &uuid(n))
}

#[async_trait]
impl Hooks for Hypervisor {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let path = self.file.path().display();
        let config = format!("hypervisors: [{{name: kvm0, uri: 'test://{path}'}}]\n{ENABLED}");
        let provider = Arc::new(LibvirtProvider::new(Config::parse(&config, None)?));
        *self.latest.lock() = Some(provider.clone());
        Ok(provider)
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((1..5).map(node).collect())
    }

    async fn routes(&self) -> Hook<Vec<Route>> {
        let latest = self.latest.lock().clone();
        let latest = latest.ok_or_else(|| HookError::failed("no provider was made"))?;
        let mut routes = Vec::new();
        for n in 1..5 {
            let InstanceLookup::Present(instance) = latest.lookup(&[&node(n)]).await.remove(0) else {
                return Err(HookError::failed("no such node"));
            };
            routes.push(Route {
                target_node: format!("node-{n}"),
                target_node_addresses: instance.metadata.addresses,
                destination_cidr: format!("10.244.{n}.0/24"),
                ..Route::default()
            });
        }
        Ok(routes)
    }
}

/// The routes that the provider made, as `ip` shows them.
fn shown() -> Vec<String> {
    let both = ["-4", "-6"].map(|family| ip(&format!("{family} route show proto {ROUTE_PROTOCOL}")));
    both.concat()
        .lines()
        .map(|line| line.split(" metric").next().unwrap_or_default().trim().to_owned())
        .collect()
}

/// The metric of the routes that there are.
fn metric() -> String {
    let shown = ip(&format!("-4 route show proto {ROUTE_PROTOCOL}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "metric");
    words.nth(1).expect("a metric").to_owned()
}

fn route(node: &str, cidr: &str, address: &str) -> Route {
    Route {
        target_node: node.to_owned(),
        target_node_addresses: vec![NodeAddress::internal_ip(address), NodeAddress::hostname(node)],
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    }
}

async fn cloud(domains: u32) -> Cloud {
    let domains: Vec<_> = (1..=domains).map(|n| domain(n, &format!("node-{n}"), RUNNING)).collect();
    Cloud::start_with(&[domains], ENABLED).await
}

#[test]
fn the_rules_for_routes() {
    on_a_hypervisor(|| async {
        let domains: Vec<_> = (1..5).map(|n| domain(n, &format!("node-{n}"), RUNNING)).collect();
        let hypervisor = Hypervisor { file: host(&domains), latest: Mutex::default() };
        let report = conformance::run_suites(&hypervisor, &[Suite::Routes]).await;
        report.print_and_assert();
        let not_checked: Vec<_> = report.not_checked().map(|(rule, _)| rule.to_string()).collect();
        assert_eq!(not_checked, ["routes/disconnected"]);
        assert_eq!(shown(), [""; 0]);
    });
}

#[test]
fn pods_reach_each_other_until_a_node_goes() {
    on_a_hypervisor(|| async {
        let (first, _second) = (Guest::start(11), Guest::start(12));
        ip("route add 10.99.0.0/16 via 192.168.122.12 proto static");
        let cloud = cloud(0).await;
        let routes: &dyn Routes = cloud.provider.routes().expect("routes");
        let wanted = [
            route("node-11", "10.244.11.0/24", "192.168.122.11"),
            route("node-12", "10.244.12.0/24", "192.168.122.12"),
            route("node-11", "fd10:11::/64", "fd00:122::11"),
            route("node-12", "fd10:12::/64", "fd00:122::12"),
        ];
        assert!(!first.pings("10.244.11.1", "10.244.12.1"));
        for route in &wanted {
            routes.create(CLUSTER, "uid", route).await.expect("a route");
        }
        assert!(first.reaches("10.244.11.1", "10.244.12.1"));
        assert!(first.reaches("fd10:11::1", "fd10:12::1"));
        let listed = routes.list(CLUSTER).await.expect("a list");
        assert_eq!(listed.len(), 4);

        // node-12 is removed
        for route in listed.iter().filter(|route| route.target_node == "node-12") {
            routes.delete(CLUSTER, route).await.expect("deleted");
        }
        assert!(!first.pings("10.244.11.1", "10.244.12.1"));
        assert_eq!(
            shown(),
            ["10.244.11.0/24 via 192.168.122.11 dev virbr0", "fd10:11::/64 via fd00:122::11 dev virbr0"]
        );
        assert!(ip("route show").contains("10.99.0.0/16 via 192.168.122.12 dev virbr0 proto static"));
    });
}

#[test]
fn routes_of_others_are_neither_listed_nor_touched() {
    on_a_hypervisor(|| async {
        let foreign = "10.244.0.0/16 via 192.168.122.99 dev virbr0 proto static";
        ip("route add 10.244.0.0/16 via 192.168.122.99 proto static");
        // even with our number, the metric of no cluster
        ip(&format!("route add 10.246.0.0/24 via 192.168.122.99 proto {ROUTE_PROTOCOL}"));
        let cloud = cloud(0).await;
        let routes: &dyn Routes = cloud.provider.routes().expect("routes");
        let wanted = route("node-11", "10.244.11.0/24", "192.168.122.11");
        let error = routes.create(CLUSTER, "uid", &wanted).await.expect_err("an overlap");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains(foreign), "{error}");
        assert_eq!(routes.list(CLUSTER).await.expect("a list"), []);
        // somebody asks for a deletion of what was never listed
        let not_ours =
            Route { name: String::new(), destination_cidr: "10.244.0.0/16".to_owned(), ..wanted.clone() };
        routes.delete(CLUSTER, &not_ours).await.expect("nothing to do");
        assert!(ip("route show").contains(foreign));
    });
}

#[test]
fn a_node_that_is_the_hypervisor_itself_needs_no_route() {
    on_a_hypervisor(|| async {
        let cloud = cloud(0).await;
        let routes: &dyn Routes = cloud.provider.routes().expect("routes");
        // as a network plugin on this host makes it
        ip("link add cni0 type bridge");
        ip("link set cni0 up");
        ip("address add 10.244.7.1/24 dev cni0");
        let wanted = [
            route("kvm", "10.244.7.0/24", "192.168.122.1"),
            route("kvm", "fd10:7::/64", "fd00:122::1"),
            route("node-11", "10.244.11.0/24", "192.168.122.11"),
        ];
        for route in &wanted {
            routes.create(CLUSTER, "uid", route).await.expect("a route");
        }
        let cidrs = async || {
            let mut listed = routes.list(CLUSTER).await.expect("a list");
            listed.sort_by(|a, b| a.destination_cidr.cmp(&b.destination_cidr));
            listed
        };
        let listed = cidrs().await;
        let shown_as: Vec<_> =
            listed.iter().map(|route| (&*route.target_node, &*route.destination_cidr)).collect();
        let expected = [("node-11", "10.244.11.0/24"), ("kvm", "10.244.7.0/24"), ("kvm", "fd10:7::/64")];
        assert_eq!(shown_as, expected);
        assert_eq!(listed[1].target_node_addresses, wanted[0].target_node_addresses);
        assert_eq!(
            shown(),
            ["10.244.11.0/24 via 192.168.122.11 dev virbr0"],
            "the kernel has only the other one"
        );

        routes.delete(CLUSTER, &listed[1]).await.expect("deleted");
        assert_eq!(cidrs().await.len(), 2);
        // the address moves away from this host, and with it the Node
        ip("address del fd00:122::1/64 dev virbr0");
        assert_eq!(cidrs().await.len(), 1);
    });
}

#[test]
fn a_host_that_cannot_route_to_the_node_says_so() {
    on_a_hypervisor(|| async {
        let cloud = cloud(0).await;
        let routes: &dyn Routes = cloud.provider.routes().expect("routes");
        let elsewhere = route("node-11", "10.244.11.0/24", "203.0.113.11");
        let error = routes.create(CLUSTER, "uid", &elsewhere).await.expect_err("not a neighbour");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("the daemon must run on the hypervisor"), "{error}");
        for (name, wanted) in [
            ("net.ipv4.ip_forward", route("node-11", "10.244.11.0/24", "192.168.122.11")),
            ("net.ipv6.conf.all.forwarding", route("node-11", "fd10:11::/64", "fd00:122::11")),
        ] {
            sysctl(name, "0");
            let error = routes.create(CLUSTER, "uid", &wanted).await.expect_err("no forwarding");
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(&format!("its sysctl {name} is 0")), "{error}");
        }
    });
}

#[test]
fn routes_from_before_a_restart_keep_the_names_of_their_nodes() {
    on_a_hypervisor(|| async {
        let before = cloud(2).await;
        let (first, second) = (before.present(&node(1)).await, before.present(&node(2)).await);
        let address = |instance: &cloudprovider::Instance| instance.metadata.addresses[0].address.clone();
        let routes: &dyn Routes = before.provider.routes().expect("routes");
        for (node, cidr, address) in
            [("node-1", "10.244.1.0/24", address(&first)), ("renamed-2", "10.244.2.0/24", address(&second))]
        {
            routes.create(CLUSTER, "uid", &route(node, cidr, &address)).await.expect("a route");
        }
        drop(before);

        let after = cloud(2).await;
        let routes: &dyn Routes = after.provider.routes().expect("routes");
        let targets = || async {
            let mut listed = routes.list(CLUSTER).await.expect("a list");
            listed.sort_by(|a, b| a.destination_cidr.cmp(&b.destination_cidr));
            listed.into_iter().map(|route| route.target_node).collect::<Vec<_>>()
        };
        // the domain's name, until a look-up shows that of the Node
        assert_eq!(targets().await, ["node-1", "node-2"]);
        let renamed = NodeIdentity { name: "renamed-2".to_owned(), ..node(2) };
        after.present(&renamed).await;
        assert_eq!(targets().await, ["node-1", "renamed-2"]);

        // an address that libvirt does not know, but the Node does
        let own = NodeAddress::internal_ip("192.168.122.77");
        ip("route change 10.244.1.0/24 via 192.168.122.77 metric METRIC proto 204"
            .replace("METRIC", &metric())
            .as_str());
        after.present(&NodeIdentity { addresses: vec![own], ..node(1) }).await;
        assert_eq!(targets().await, ["node-1", "renamed-2"]);
        drop(after);

        // soon after the start an unknown gateway may only be slow to tell its address
        let without = cloud(1).await;
        let routes: &dyn Routes = without.provider.routes().expect("routes");
        let error = routes.list(CLUSTER).await.expect_err("not known yet");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(" via "), "{error}");
    });
}

#[test]
fn many_calls_at_once() {
    on_a_hypervisor(|| async {
        let cloud = cloud(0).await;
        let routes: &dyn Routes = cloud.provider.routes().expect("routes");
        let wanted: Vec<_> = (1..=50)
            .map(|n| route(&format!("node-{n}"), &format!("10.244.{n}.0/24"), "192.168.122.9"))
            .collect();
        let creations = wanted.iter().map(|route| routes.create(CLUSTER, "uid", route));
        let lists = (0..50).map(|_| routes.list(CLUSTER));
        let (made, listed) =
            futures::join!(futures::future::join_all(creations), futures::future::join_all(lists));
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        assert!(listed.iter().all(Result::is_ok), "{listed:?}");
        assert_eq!(shown().len(), 50);
    });
}

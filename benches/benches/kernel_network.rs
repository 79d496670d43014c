//! What many addresses and routes of the kernel cost: those of load balancers that the daemon announces, and those to the pods
//! of libvirt's guests. Run by `make microbench`, as root: everything is made in a network namespace of its own.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers"
)]

use std::{
    fs,
    net::IpAddr,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use announcing::{Announcer, HolderId, InterfaceChoice, RENEW_INTERVAL};
use cloudprovider::{CloudProvider, FactoryInput, NodeAddress, Route, StartContext};
use cloudprovider_libvirt as libvirt;
use futures::future::{join_all, try_join_all};
use tokio_util::sync::CancellationToken;

/// Says to this program that it is in a namespace of its own.
const IN_NAMESPACE: &str = "BENCH_IN_NAMESPACE";

/// The interface of the namespace, with the addresses 192.168.122.1/24 and `fd00:122::1/64`.
const INTERFACE: &str = "port0";

/// How many renewals are measured.
const RENEWALS: u32 = 4;

const CLUSTER: &str = "kubernetes";

fn main() {
    if std::env::var_os(IN_NAMESPACE).is_none() {
        let this = std::env::current_exe().expect("this program");
        let status = Command::new("unshare").arg("--net").arg(this).env(IN_NAMESPACE, "1").status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("kernel_network: not measured here; it needs util-linux, iproute2 and root");
        }
        return;
    }
    for arguments in [
        "link set lo up",
        "link add port0 type veth peer name port1",
        "link set port0 up",
        "link set port1 up",
        "address add 192.168.122.1/24 dev port0",
        "address add fd00:122::1/64 dev port0 nodad",
    ] {
        let status = Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.expect("ip").success(), "ip {arguments}");
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a sysctl");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (family, count) in [("IPv4", 1_000), ("IPv4", 5_000), ("IPv6", 100), ("IPv6", 1_000)] {
            addresses(family, count).await;
        }
        routes(1_000).await;
    });
}

/// Holds this many addresses over some renewals.
async fn addresses(family: &str, count: u32) {
    let address = |number: u32| -> IpAddr {
        let text = match family {
            "IPv4" => format!("10.88.{}.{}", number / 250, number % 250 + 1),
            _ => format!("fd88::{:x}", number + 1),
        };
        text.parse().expect("an address")
    };
    let (announcer, me) = (Announcer::new(), HolderId::new("bench"));
    let interface = InterfaceChoice::Named(INTERFACE.to_owned());
    let addresses: Vec<IpAddr> = (0..count).map(address).collect();
    let (began, used) = (Instant::now(), processor_time());
    try_join_all(addresses.iter().map(|address| announcer.hold(&me, *address, &interface)))
        .await
        .expect("held");
    let (held, held_cost) = (began.elapsed(), processor_time().saturating_sub(used));
    // the burst of announcements passes
    tokio::time::sleep(RENEW_INTERVAL + Duration::from_secs(1)).await;
    let used = processor_time();
    tokio::time::sleep(RENEW_INTERVAL * RENEWALS).await;
    let renewal_cost = processor_time().saturating_sub(used) / RENEWALS;
    let began = Instant::now();
    announcer.release_all(&me).await.expect("released");
    println!(
        "{count} {family} addresses: held in {held:?} ({held_cost:?} of a processor), each renewal {renewal_cost:?} of a \
         processor, released in {:?}",
        began.elapsed()
    );
}

/// Makes, lists and deletes this many routes, all at once.
async fn routes(count: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("test.xml");
    fs::write(&path, "<node/>").expect("written");
    let config =
        format!("hypervisors:\n- name: kvm1\n  uri: test://{}\nroutes: {{enabled: true}}\n", path.display());
    let provider: Arc<dyn CloudProvider> = libvirt::factory(&FactoryInput::new(config)).expect("a provider");
    provider.start(StartContext::new(CancellationToken::new(), CLUSTER)).await.expect("started");
    let routes = provider.routes().expect("routes");
    let route = |number: u32| Route {
        target_node: format!("node-{number}"),
        target_node_addresses: vec![NodeAddress::internal_ip(format!("192.168.122.{}", 2 + number % 250))],
        destination_cidr: format!("10.{}.{}.0/24", 100 + number / 250, number % 250),
        ..Route::default()
    };
    let wanted: Vec<Route> = (0..count).map(route).collect();
    let began = Instant::now();
    let made = join_all(wanted.iter().map(|route| routes.create(CLUSTER, "uid", route))).await;
    assert!(made.iter().all(Result::is_ok), "{:?}", made.iter().find(|made| made.is_err()));
    let made = began.elapsed();
    let began = Instant::now();
    let there = routes.list(CLUSTER).await.expect("a list");
    assert_eq!(there.len(), wanted.len());
    let listed = began.elapsed();
    let began = Instant::now();
    let deleted = join_all(there.iter().map(|route| routes.delete(CLUSTER, route))).await;
    assert!(deleted.iter().all(Result::is_ok));
    println!("{count} routes: made in {made:?}, listed in {listed:?}, deleted in {:?}", began.elapsed());
}

/// The processor time that this program has used, in steps of 10 ms.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("its numbers");
    let after_name = stat.rsplit_once(") ").expect("a name").1;
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

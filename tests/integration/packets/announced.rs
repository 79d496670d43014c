//! The daemon itself announces the addresses of load balancers. It runs on two of the Nodes, and one of them leads.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use ccm::{
    manifests::ManifestOptions,
    permissions::{self, Permission},
};
use cloudprovider::CloudProvider as _;
use cloudprovider_libvirt::{Config, LibvirtProvider};
use k8s_openapi::api::networking::v1::IPAddress;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tempfile::TempDir;
use test_env::{ControlPlane, Process, Signal};

use super::{
    cluster::{Cluster, NAMESPACE, SERVICE_HTTP},
    cut_off::leader_is_cut_off,
    forwarding::{answer_exactly, answers, refuses, start_proxies},
    lan::{CLIENT, INTERFACE, Knock, Lan, NodeHost},
};
use crate::{
    api::Api,
    daemon::{binary, parse},
    hypervisors::test_driver_file,
    lag::Stopwatch,
    shipped_roles,
    support::{event, eventually},
};

const SOON: Duration = test_env::PATIENCE;
/// The default of `--leader-elect-lease-duration`, the standby's interval and some time for a busy machine.
const LEASE: Duration = Duration::from_secs(25);
/// A leader that ends in order is replaced within this time, for the clients.
const TAKE_OVER: Duration = Duration::from_secs(1);
/// Until both Nodes show it, with some time for a busy machine: they are asked one after the other.
const SHOWN: Duration = Duration::from_secs(3);
const SERVICE: &str = "announced";
/// The service account of the daemons.
const ACCOUNT: &str = "announcing-daemons";

/// A Service whose address is on an interface that comes and goes.
const SPARE_SERVICE: &str = "spare";
const SPARE_INTERFACE: &str = "spare0";
const SPARE_ADDRESS: &str = "10.31.0.1";

/// The daemons, by the number of their Node.
pub(super) struct Daemons {
    running: Vec<Option<Process>>,
    arguments: Vec<String>,
    folder: TempDir,
    roles: ManifestOptions,
    permissions: Vec<Permission>,
}

impl Daemons {
    /// They are the manifests' service account, with exactly the roles that are shipped for this configuration.
    async fn new(control_plane: &ControlPlane) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let (config, domains) = (folder.path().join("cloud.yaml"), folder.path().join("kvm.xml"));
        std::fs::write(&domains, test_driver_file(0..1)?)?;
        let pools = json!({
            "hypervisors": [{"name": "kvm", "uri": format!("test://{}", domains.display())}],
            "addressPools": {
                "announce": true,
                "pools": [
                    {
                        "name": "lan", "interface": INTERFACE,
                        "addresses": ["10.30.0.201-10.30.0.209", "fd30::201-fd30::209"],
                    },
                    {
                        "name": "spare", "interface": SPARE_INTERFACE, "autoAssign": false,
                        "addresses": [SPARE_ADDRESS],
                    },
                ],
            },
        });
        // JSON is YAML
        std::fs::write(&config, pools.to_string())?;
        let mut arguments = vec![
            "--cloud-provider=libvirt".to_owned(),
            format!("--cloud-config={}", config.display()),
            // the Nodes are no machines of this hypervisor
            "--controllers=service-lb-controller".to_owned(),
            "--secure-port=0".to_owned(),
            "-v=4".to_owned(),
        ];
        let flags = parse(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        let provider = LibvirtProvider::new(Config::parse(&pools.to_string(), None)?);
        let mut permissions = permissions::needed(&flags);
        permissions.extend(permissions::needed_for_service_access(&flags, &provider.service_access_needs()));
        let roles = ManifestOptions { name: ACCOUNT.to_owned(), ..ManifestOptions::new("libvirt") };
        let kubeconfig = shipped_roles::bind(control_plane, &roles, &permissions).await?;
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        Ok(Self { running: Vec::new(), arguments, folder, roles, permissions })
    }

    /// Starts one on this Node.
    fn start(&mut self, lan: &Lan, number: usize) -> anyhow::Result<()> {
        let mut command = lan.nodes[number].netns.command(binary()?);
        command.args(&self.arguments);
        let process = Process::spawn("cloud-controller-manager", &command, self.log_file(number))?;
        if self.running.len() <= number {
            self.running.resize_with(number + 1, || None);
        }
        self.running[number] = Some(process);
        Ok(())
    }

    /// Takes the one on this Node, to end it.
    pub(super) fn take(&mut self, number: usize) -> anyhow::Result<Process> {
        self.running.get_mut(number).and_then(Option::take).context("a daemon on this Node")
    }

    /// That the roles were enough.
    fn were_not_refused(&self, api: &Api) -> anyhow::Result<()> {
        let users: BTreeSet<String> =
            self.permissions.iter().map(|needed| shipped_roles::holder(&self.roles, needed)).collect();
        let refused = api.refused_to(&users.iter().map(String::as_str).collect::<Vec<_>>())?;
        ensure!(refused.is_empty(), "the shipped roles do not allow {refused:?}");
        Ok(())
    }

    fn log_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("daemon-{number}.log"))
    }

    fn logs(&self) -> String {
        let log = |number| std::fs::read_to_string(self.log_file(number)).unwrap_or_default();
        format!("first daemon:\n{}\nsecond daemon:\n{}", log(0), log(1))
    }
}

pub(super) async fn by_the_daemon(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let lan = Lan::start()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let cluster = Cluster::new(&api.client).await?;
    for (number, node) in lan.nodes.iter().enumerate() {
        cluster.register(number + 1, node).await?;
    }
    let _proxies = start_proxies(api, &lan)?;
    let mut daemons = Daemons::new(control_plane).await?;
    let outcome = scenario(api, &lan, &cluster, &mut daemons).await;
    let outcome = outcome.and_then(|()| daemons.were_not_refused(api)).with_context(|| daemons.logs());
    daemons.running.clear();
    shipped_roles::unbind(&api.client, &daemons.roles, &daemons.permissions).await?;
    cluster.clear().await?;
    outcome
}

async fn scenario(api: &Api, lan: &Lan, cluster: &Cluster, daemons: &mut Daemons) -> anyhow::Result<()> {
    daemons.start(lan, 0)?;
    cluster.create_service(SERVICE, &json!({})).await?;
    cluster.set_endpoints(SERVICE, &lan.nodes.iter().collect::<Vec<_>>()).await?;
    let addresses = ingress(cluster).await?;
    ensure!(addresses == ["10.30.0.201", "fd30::201"], "{addresses:?}");
    let all = lan.nodes.iter().map(|node| node.name.clone()).collect();
    for (address, from) in addresses.iter().zip(CLIENT) {
        answers(lan, from, address).await?;
        answer_exactly(lan, from, address, &all).await?;
        ensure!(holders(lan, address)? == [0], "{address} is on {:?}", holders(lan, address)?);
    }

    daemons.start(lan, 1)?;
    stands_by(daemons, 1).await?;
    leader_is_asked_to_end(lan, daemons, &addresses).await.context("the leader gets SIGTERM")?;
    daemons.start(lan, 0)?;
    stands_by(daemons, 0).await?;
    leader_is_killed(lan, daemons, &addresses).await.context("the leader gets SIGKILL")?;
    daemons.start(lan, 1)?;
    stands_by(daemons, 1).await?;
    let api_server = api.control_plane.as_ref().context("the control plane")?.port();
    let cut_off = leader_is_cut_off(lan, daemons, &addresses, api_server);
    cut_off.await.context("the leader is cut off from the API server and killed")?;
    points_to(lan, &addresses, &lan.nodes[1]).await?;
    interface_vanishes(api, lan, cluster).await.context("an interface comes and goes")?;
    is_deleted(api, lan, cluster, &addresses).await.context("the Service is deleted")
}

/// The addresses in the Service's status.
async fn ingress(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    eventually(SOON, "the Service has two addresses", async || {
        let status = cluster.services().get(SERVICE).await?.status.unwrap_or_default();
        let ingress = status.load_balancer.and_then(|found| found.ingress).unwrap_or_default();
        let addresses: Vec<String> = ingress.into_iter().filter_map(|entry| entry.ip).collect();
        Ok((addresses.len() == 2).then_some(addresses))
    })
    .await
}

/// Waits until the daemon on this Node follows the election.
async fn stands_by(daemons: &Daemons, number: usize) -> anyhow::Result<()> {
    eventually(SOON, "the standby sees the leader", async || {
        let log = std::fs::read_to_string(daemons.log_file(number)).unwrap_or_default();
        Ok(log.contains("somebody else leads").then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(())
}

/// The other one answers in under a second.
async fn leader_is_asked_to_end(
    lan: &Lan,
    daemons: &mut Daemons,
    addresses: &[String],
) -> anyhow::Result<()> {
    let mut knocking = Vec::new();
    for address in addresses {
        knocking.push(lan.knock_hastily(address, SERVICE_HTTP)?);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut leader = daemons.take(0)?;
    let watch = Stopwatch::start();
    leader.signal(Signal::Term)?;
    held_only_by(lan, addresses, 1, SOON).await?;
    let taken = watch.elapsed();
    println!("from SIGTERM to the address on the other Node: {taken:?}");
    ensure!(leader.wait(SOON)?.success(), "it ended with an error");
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (knocking, address) in knocking.into_iter().zip(addresses) {
        let knocks = knocking.end()?;
        let pause = longest_pause(&knocks);
        println!("the longest pause of {address} with {} requests: {pause:?}", knocks.len());
        watch.judge(pause, TAKE_OVER, &format!("the pause of {address}"))?;
        ensure!(knocks.last().is_some_and(|knock| knock.outcome.is_ok()), "{address} does not answer");
    }
    watch.judge(taken, SHOWN, "the other daemon has the addresses")?;
    points_to(lan, addresses, &lan.nodes[1]).await
}

/// The kernel drops the addresses before the Lease ends, and the other daemon takes them.
async fn leader_is_killed(lan: &Lan, daemons: &mut Daemons, addresses: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    daemons.take(1)?.kill()?;
    held_only_by(lan, addresses, 0, LEASE).await?;
    println!("from SIGKILL to the address on the other Node: {:?}", begin.elapsed());
    points_to(lan, addresses, &lan.nodes[0]).await?;
    for (address, from) in addresses.iter().zip(CLIENT) {
        answers(lan, from, address).await?;
    }
    Ok(())
}

/// An interface that is not there is told, at first and later, and the address is on it as soon as it is there.
async fn interface_vanishes(api: &Api, lan: &Lan, cluster: &Cluster) -> anyhow::Result<()> {
    let leader = &lan.nodes[1].netns;
    let spec =
        json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "loadBalancerIP": SPARE_ADDRESS});
    cluster.create_service(SPARE_SERVICE, &spec).await?;
    let told = event(&api.client, NAMESPACE, SPARE_SERVICE, "SyncLoadBalancerFailed").await?;
    let words = format!("there is no interface {SPARE_INTERFACE:?} on this host");
    ensure!(told.message.as_ref().is_some_and(|message| message.contains(&words)), "{told:?}");
    let has_address = async |is_there: bool| {
        let expected: &[usize] = if is_there { &[1] } else { &[] };
        eventually(SOON, &format!("{SPARE_ADDRESS} is on {expected:?}"), async || {
            Ok((holders(lan, SPARE_ADDRESS)? == expected).then_some(()))
        })
        .await
    };
    let make = || leader.ip(&format!("link add {SPARE_INTERFACE} up type bridge"));
    make()?;
    has_address(true).await?;
    eventually(SOON, "the Service has its address", async || {
        let status = cluster.services().get(SPARE_SERVICE).await?.status.unwrap_or_default();
        let ingress = status.load_balancer.and_then(|found| found.ingress).unwrap_or_default();
        Ok((!ingress.is_empty()).then_some(()))
    })
    .await?;
    leader.ip(&format!("link delete {SPARE_INTERFACE}"))?;
    has_address(false).await?;
    let told = event(&api.client, NAMESPACE, SPARE_SERVICE, "AddressNotAnnounced").await?;
    ensure!(told.message.as_ref().is_some_and(|message| message.contains(&words)), "{told:?}");
    make()?;
    has_address(true).await?;
    cluster.services().delete(SPARE_SERVICE, &DeleteParams::default()).await?;
    has_address(false).await
}

/// Nothing is left: no address, no claim, no finalizer, nobody who answers for the address.
async fn is_deleted(api: &Api, lan: &Lan, cluster: &Cluster, addresses: &[String]) -> anyhow::Result<()> {
    cluster.services().delete(SERVICE, &DeleteParams::default()).await?;
    eventually(SOON, "the Service is gone", async || {
        Ok(cluster.services().get_opt(SERVICE).await?.is_none().then_some(()))
    })
    .await?;
    for (address, from) in addresses.iter().zip(CLIENT) {
        ensure!(holders(lan, address)?.is_empty(), "{address} is on {:?}", holders(lan, address)?);
        refuses(lan, from, address).await?;
        lan.forget_neighbours()?;
        ensure!(lan.curl(from, address, SERVICE_HTTP).await.is_err(), "{address} still answers");
        ensure!(lan.neighbour(address)?.is_none(), "somebody answers for {address}");
    }
    let claims = kube::Api::<IPAddress>::all(api.client.clone()).list(&ListParams::default()).await?;
    let left: Vec<_> = claims.items.into_iter().filter_map(|claim| claim.metadata.name).collect();
    ensure!(!left.iter().any(|name| addresses.contains(name)), "claims: {left:?}");
    Ok(())
}

/// The Nodes that have this address on their interface.
fn holders(lan: &Lan, address: &str) -> anyhow::Result<Vec<usize>> {
    let mut holders = Vec::new();
    for (number, node) in lan.nodes.iter().enumerate() {
        if !node.netns.ip(&format!("-oneline address show to {address}"))?.trim().is_empty() {
            holders.push(number);
        }
    }
    Ok(holders)
}

/// Waits until this Node has the addresses, and no other.
async fn held_only_by(lan: &Lan, addresses: &[String], number: usize, limit: Duration) -> anyhow::Result<()> {
    eventually(limit, &format!("{addresses:?} are on {}", lan.nodes[number].name), async || {
        for address in addresses {
            if holders(lan, address)? != [number] {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Waits until the client's packets for the addresses go to this Node.
async fn points_to(lan: &Lan, addresses: &[String], node: &NodeHost) -> anyhow::Result<()> {
    let ethernet = node.ethernet_address()?;
    for address in addresses {
        eventually(SOON, &format!("the client sends to {} for {address}", node.name), async || {
            Ok((lan.neighbour(address)? == Some(ethernet.clone())).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// The longest time between two answers.
fn longest_pause(knocks: &[Knock]) -> Duration {
    let answered: Vec<u64> =
        knocks.iter().filter(|knock| knock.outcome.is_ok()).map(|knock| knock.began).collect();
    let longest = answered.windows(2).map(|pair| pair[1] - pair[0]).max();
    Duration::from_millis(longest.unwrap_or(u64::MAX))
}

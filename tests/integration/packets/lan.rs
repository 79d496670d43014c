//! A network of namespaces: Nodes with their pods, a client, and the bridge that connects them, which is the
//! hypervisor's.

use std::{net::IpAddr, path::PathBuf};

use anyhow::Context;
use tempfile::TempDir;
use test_env::{Netns, Process, StartError};

use super::programs::{BACKEND, ECHO, KNOCK};

/// The addresses of all pods, for kube-proxy.
pub(super) const CLUSTER_CIDR: &str = "10.244.0.0/16,fd44::/16";
/// The Nodes, named `node-1`, ...
pub(super) const NODES: u8 = 3;
/// The interface of Nodes and client in the network.
pub(super) const INTERFACE: &str = "eth0";

pub(super) struct Lan {
    // Fields drop in this order: processes before the namespaces that they run in
    _backends: Vec<Process>,
    pub(super) nodes: Vec<NodeHost>,
    client: Netns,
    /// `br0` has the addresses `10.30.0.1` and `fd30::1`.
    _hypervisor: Netns,
    folder: TempDir,
}

/// The namespaces of a Node. Number N has the addresses `10.30.0.N` and `fd30::N` plus ten, and one pod behind it,
/// which has an HTTP server and a UDP server that answer with the Node's name.
pub(super) struct NodeHost {
    pub(super) name: String,
    number: u8,
    pub(super) netns: Netns,
    pods: Netns,
}

impl NodeHost {
    /// Its addresses in the network.
    pub(super) fn addresses(&self) -> [String; 2] {
        let host = 10 + self.number;
        [format!("10.30.0.{host}"), format!("fd30::{host}")]
    }

    /// Its pods' addresses, for `spec.podCIDRs`.
    pub(super) fn pod_cidrs(&self) -> [String; 2] {
        let number = self.number;
        [format!("10.244.{number}.0/24"), format!("fd44:{number}::/64")]
    }

    /// The Ethernet address of its interface.
    pub(super) fn ethernet_address(&self) -> anyhow::Result<String> {
        let link = self.netns.ip(&format!("link show dev {INTERFACE}"))?;
        word_after(&link, "link/ether").context("an Ethernet address")
    }

    /// The addresses of its pod.
    pub(super) fn pod(&self) -> [String; 2] {
        let number = self.number;
        [format!("10.244.{number}.2"), format!("fd44:{number}::2")]
    }
}

/// The addresses of the client. It has a second pair, which [`STRANGER`] is.
pub(super) const CLIENT: [&str; 2] = ["10.30.0.100", "fd30::100"];
/// Other addresses of the client's machine, for source ranges that exclude them.
pub(super) const STRANGER: [&str; 2] = ["10.30.0.101", "fd30::101"];

impl Lan {
    /// Makes the namespaces and starts the servers. Pods of different Nodes have routes to each other.
    pub(super) fn start() -> Result<Self, StartError> {
        let folder = TempDir::new()?;
        let hypervisor = Netns::new("hypervisor")?;
        hypervisor.ip("link add br0 type bridge mcast_snooping 0")?;
        hypervisor.ip("link set br0 up")?;
        give(&hypervisor, "br0", &["10.30.0.1/24", "fd30::1/64"])?;

        let client = Netns::new("client")?;
        attach(&hypervisor, &client, "client")?;
        for (address, length) in [CLIENT, STRANGER].iter().flat_map(|pair| pair.iter().zip([24, 64])) {
            give(&client, INTERFACE, &[&format!("{address}/{length}")])?;
        }

        let mut nodes = Vec::new();
        let mut backends = Vec::new();
        for number in 1..=NODES {
            let node = node(&hypervisor, number)?;
            let mut backend = node.pods.command(std::env::current_exe()?);
            backend.args([BACKEND, &node.name]);
            let log = folder.path().join(format!("{}.log", node.name));
            backends.push(Process::spawn(&node.name, &backend, log)?);
            nodes.push(node);
        }
        for (here, there) in nodes.iter().flat_map(|here| nodes.iter().map(move |there| (here, there))) {
            if here.number != there.number {
                for (cidr, gateway) in there.pod_cidrs().iter().zip(there.addresses()) {
                    here.netns.ip(&format!("route add {cidr} via {gateway}"))?;
                }
            }
        }
        Ok(Self { _backends: backends, nodes, client, _hypervisor: hypervisor, folder })
    }

    /// The body of an HTTP answer, asked for with `curl` from this address of the client.
    pub(super) async fn curl(&self, from: &str, to: &str, port: u16) -> anyhow::Result<String> {
        let mut curl = self.client.command("curl");
        curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "1"])
            .args(["--interface", from])
            .arg(format!("http://{}", socket_address(to, port)?));
        output(curl).await
    }

    /// The answer to a datagram.
    pub(super) async fn echo(&self, from: &str, to: &str, port: u16) -> anyhow::Result<String> {
        let mut echo = self.client.command(std::env::current_exe()?);
        echo.args([ECHO, from, &socket_address(to, port)?]);
        output(echo).await
    }

    /// Begins to make requests without a pause.
    pub(super) fn knock(&self, to: &str, port: u16) -> anyhow::Result<Knocking> {
        self.knock_with(to, port, "2000")
    }

    /// The same with a short timeout, to see for how long nobody answers.
    pub(super) fn knock_hastily(&self, to: &str, port: u16) -> anyhow::Result<Knocking> {
        self.knock_with(to, port, "100")
    }

    fn knock_with(&self, to: &str, port: u16, timeout_millis: &str) -> anyhow::Result<Knocking> {
        let mut knock = self.client.command(std::env::current_exe()?);
        knock.args([KNOCK, &socket_address(to, port)?, timeout_millis]);
        let log = self.folder.path().join(format!("knocks-{}", fastrand::u64(..)));
        Ok(Knocking { process: Process::spawn("knocks", &knock, &log)?, log })
    }

    /// The Ethernet address to which the client sends for this address.
    pub(super) fn neighbour(&self, address: &str) -> anyhow::Result<Option<String>> {
        let entry = self.client.ip(&format!("neighbour show to {address}"))?;
        Ok(word_after(&entry, "lladdr"))
    }

    /// The client forgets its neighbours.
    pub(super) fn forget_neighbours(&self) -> anyhow::Result<()> {
        self.client.ip("neighbour flush all").map(drop)
    }
}

/// The word behind this one, in what `ip` says.
fn word_after(text: &str, word: &str) -> Option<String> {
    text.split_whitespace().skip_while(|found| *found != word).nth(1).map(str::to_owned)
}

/// Requests that are being made.
pub(super) struct Knocking {
    process: Process,
    log: PathBuf,
}

/// One request.
#[derive(Debug)]
pub(super) struct Knock {
    /// When it began, in milliseconds since 1970.
    pub(super) began: u64,
    /// The Node that answered, or why none did.
    pub(super) outcome: Result<String, String>,
}

impl Knocking {
    /// The requests that have ended.
    pub(super) fn so_far(&self) -> anyhow::Result<Vec<Knock>> {
        let text = std::fs::read_to_string(&self.log)?;
        let mut lines: Vec<&str> = text.split('\n').collect();
        // the last one may be half a line
        lines.pop();
        let knock = |line: &str| {
            let (began, outcome) = line.split_once(' ')?;
            let outcome = match outcome.strip_prefix("- ") {
                Some(reason) => Err(reason.to_owned()),
                None => Ok(outcome.to_owned()),
            };
            Some(Knock { began: began.parse().ok()?, outcome })
        };
        lines.into_iter().map(|line| knock(line).with_context(|| format!("a request: {line}"))).collect()
    }

    /// Stops, and returns all requests.
    pub(super) fn end(mut self) -> anyhow::Result<Vec<Knock>> {
        self.process.kill()?;
        self.so_far()
    }
}

fn node(hypervisor: &Netns, number: u8) -> Result<NodeHost, StartError> {
    let name = format!("node-{number}");
    let (netns, pods) = (Netns::new(&name)?, Netns::new(&format!("pods of {name}"))?);
    attach(hypervisor, &netns, &name)?;
    let node = NodeHost { name, number, netns, pods };
    let [v4, v6] = node.addresses();
    give(&node.netns, INTERFACE, &[&format!("{v4}/24"), &format!("{v6}/64")])?;

    node.netns.link("pods", &node.pods, INTERFACE)?;
    let gateways = [format!("10.244.{number}.1"), format!("fd44:{number}::1")];
    for ((pod, gateway), length) in node.pod().iter().zip(&gateways).zip([24, 64]) {
        give(&node.netns, "pods", &[&format!("{gateway}/{length}")])?;
        give(&node.pods, INTERFACE, &[&format!("{pod}/{length}")])?;
        node.pods.ip(&format!("route add default via {gateway}"))?;
    }
    Ok(node)
}

/// Connects a namespace to the bridge.
fn attach(hypervisor: &Netns, netns: &Netns, port: &str) -> anyhow::Result<()> {
    hypervisor.link(port, netns, INTERFACE)?;
    hypervisor.ip(&format!("link set {port} master br0")).map(drop)
}

fn give(netns: &Netns, interface: &str, addresses: &[&str]) -> anyhow::Result<()> {
    for address in addresses {
        netns.ip(&format!("address add {address} dev {interface}"))?;
    }
    Ok(())
}

/// As in a URL.
fn socket_address(address: &str, port: u16) -> anyhow::Result<String> {
    let address: IpAddr = address.parse().context("an address")?;
    Ok(std::net::SocketAddr::new(address, port).to_string())
}

async fn output(command: std::process::Command) -> anyhow::Result<String> {
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

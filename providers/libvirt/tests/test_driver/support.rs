//! Hypervisors made from files, and helpers for the tests.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use cloudprovider::{
    CloudProvider, Error, Instance, InstanceChange, InstanceLookup, InstanceStream, Instances, NodeIdentity,
    PowerState, StartContext,
};
use cloudprovider_libvirt::{Config, HypervisorHandle, LibvirtProvider, virt::connect::Connect};
use futures::StreamExt;
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

/// Values of `runstate`: libvirt's constants.
pub(crate) const RUNNING: u8 = 1;
pub(crate) const PAUSED: u8 = 3;
pub(crate) const OFF: u8 = 5;
pub(crate) const CRASHED: u8 = 6;

/// The time limit of each step of a test.
pub(crate) const PATIENCE: Duration = test_env::PATIENCE;

/// UUID number `n`.
pub(crate) fn uuid(n: u32) -> String {
    format!("00000001-0002-0003-0004-{n:012x}")
}

pub(crate) fn provider_id(n: u32) -> String {
    format!("libvirt:///{}", uuid(n))
}

/// A domain of the test driver.
pub(crate) fn domain(n: u32, name: &str, state: u8) -> String {
    domain_with(n, name, state, "", "<source network='default'/>")
}

pub(crate) fn domain_with(n: u32, name: &str, state: u8, metadata: &str, source: &str) -> String {
    let kind = if source.contains("bridge") { "bridge" } else { "network" };
    let [_, a, b, c] = n.to_be_bytes();
    format!(
        "<domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
           <name>{name}</name><uuid>{}</uuid><metadata>{metadata}</metadata>
           <memory unit='KiB'>2097152</memory><vcpu>2</vcpu><os><type>hvm</type></os>
           <devices><interface type='{kind}'><mac address='52:54:00:{a:02x}:{b:02x}:{c:02x}'/>{source}
           </interface></devices>
           <test:runstate>{state}</test:runstate></domain>",
        uuid(n)
    )
}

/// A hypervisor with these domains, as a file for `test:///`.
pub(crate) fn host(domains: &[String]) -> NamedTempFile {
    let mut xml = String::from(
        "<node><cpu><mhz>2000</mhz><model>x</model><active>16</active><nodes>1</nodes><sockets>1</sockets>
         <cores>16</cores><threads>1</threads></cpu><memory>67108864</memory>
         <network><name>default</name><uuid>dd8fe884-6c02-601e-7551-cca97df1c5df</uuid><forward/>
         <bridge name='virbr0'/><ip address='192.168.122.1' netmask='255.255.255.0'>
         <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>",
    );
    xml.push_str(&domains.concat());
    xml.push_str("</node>");
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), xml).expect("writable");
    file
}

/// A provider and its files. Stopped when dropped.
pub(crate) struct Cloud {
    pub(crate) provider: LibvirtProvider,
    stop: CancellationToken,
    _files: Vec<NamedTempFile>,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cloud {
    /// Starts hypervisors `kvm0`, `kvm1`, ... with these domains, each in a zone of its own, and waits until
    /// all are live.
    pub(crate) async fn start(hosts: &[Vec<String>]) -> Self {
        Self::start_with(hosts, "").await
    }

    /// Like [`start`](Self::start), with more lines of configuration.
    pub(crate) async fn start_with(hosts: &[Vec<String>], more: &str) -> Self {
        let cloud = Self::begin(hosts, more).await;
        // Look-ups wait for that too, but not for as long as a busy machine may take.
        let live = async {
            while !cloud.provider.hypervisors().all(|host| host.is_live()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, live).await.expect("all live in time");
        cloud
    }

    /// The same, without the wait.
    pub(crate) async fn begin(hosts: &[Vec<String>], more: &str) -> Self {
        let files: Vec<_> = hosts.iter().map(|domains| host(domains)).collect();
        let mut config = String::from("hypervisors:\n");
        for (i, file) in files.iter().enumerate() {
            writeln!(
                config,
                "- {{name: kvm{i}, uri: 'test://{}', region: north, zone: rack-{i}}}",
                file.path().display()
            )
            .expect("a String");
        }
        config.push_str(more);
        let provider = LibvirtProvider::new(Config::parse(&config, None).expect("a valid configuration"));
        let stop = CancellationToken::new();
        provider.start(StartContext::new(stop.clone(), "kubernetes")).await.expect("starts");
        Self { provider, stop, _files: files }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn host(&self, i: usize) -> HypervisorHandle {
        self.provider.hypervisor(&format!("kvm{i}")).expect("configured")
    }

    /// Acts on a hypervisor.
    pub(crate) async fn act<T: Send + 'static>(
        &self,
        i: usize,
        work: impl FnOnce(&Connect) -> Result<T, cloudprovider_libvirt::virt::error::Error> + Send + 'static,
    ) -> T {
        self.host(i).with_connection(work).await.expect("connected").expect("libvirt does it")
    }

    /// Acts on the domain with this name on the first hypervisor, for example stops it.
    pub(crate) async fn to_domain(
        &self,
        name: &'static str,
        work: fn(
            &cloudprovider_libvirt::virt::domain::Domain,
        ) -> Result<(), cloudprovider_libvirt::virt::error::Error>,
    ) {
        self.act(0, move |connect| work(&connect.lookup_domain_by_name(name)?)).await;
    }

    pub(crate) async fn look_up(&self, node: &NodeIdentity) -> InstanceLookup {
        self.provider.lookup(&[node]).await.pop().expect("one answer")
    }

    pub(crate) async fn present(&self, node: &NodeIdentity) -> Box<Instance> {
        match self.look_up(node).await {
            InstanceLookup::Present(instance) => instance,
            other => panic!("{}: {other:?}", node.name),
        }
    }

    pub(crate) async fn unknown(&self, node: &NodeIdentity) -> Error {
        match self.look_up(node).await {
            InstanceLookup::Unknown(error) => error,
            other => panic!("{}: {other:?}", node.name),
        }
    }

    pub(crate) async fn is_absent(&self, node: &NodeIdentity) -> bool {
        matches!(self.look_up(node).await, InstanceLookup::Absent)
    }

    pub(crate) fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.provider.call_counts()
    }

    pub(crate) fn total_calls(&self) -> u64 {
        self.calls().values().sum()
    }

    pub(crate) fn changes(&self) -> InstanceStream {
        self.provider.changes().expect("libvirt pushes")
    }
}

/// A node that has a provider ID.
pub(crate) fn node(n: u32) -> NodeIdentity {
    NodeIdentity { name: format!("node-{n}"), provider_id: Some(provider_id(n)), ..NodeIdentity::default() }
}

/// A newly registered node: its name, and its firmware's UUID.
pub(crate) fn new_node(name: &str, system_uuid: &str) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        system_uuid: (!system_uuid.is_empty()).then(|| system_uuid.to_owned()),
        ..NodeIdentity::default()
    }
}

/// Follows the changes of domain `n` until it is in this state.
pub(crate) async fn becomes(cloud: &Cloud, changes: &mut InstanceStream, n: u32, power: PowerState) {
    while cloud.present(&node(n)).await.power_state != power {
        changed(changes, n).await;
    }
}

/// Waits for a change of domain `n`, skipping all others.
pub(crate) async fn changed(changes: &mut InstanceStream, n: u32) {
    let wait = async {
        loop {
            match changes.next().await.expect("goes on") {
                InstanceChange::Changed(list)
                    if list.iter().any(|one| one.provider_id.as_deref() == Some(&provider_id(n))) =>
                {
                    return;
                }
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no change of domain {n}"));
}

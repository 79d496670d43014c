//! The cloud: two hypervisors of libvirt's test driver, which is a real libvirt without machines behind it.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use cloudprovider_libvirt::{HypervisorHandle, virt::domain::Domain, virt::error::Error as VirtError};

pub(crate) const REGION: &str = "demo";

/// Hypervisors, each with its zone and the network that its domains get addresses from.
pub(crate) const HYPERVISORS: [Hypervisor; 2] = [
    Hypervisor { name: "kvm-a", zone: "zone-a", network: "10.1" },
    Hypervisor { name: "kvm-b", zone: "zone-b", network: "10.2" },
];

/// How many domains each hypervisor has.
pub(crate) const DOMAINS_EACH: usize = 50;

pub(crate) struct Hypervisor {
    pub name: &'static str,
    pub zone: &'static str,
    /// The first two numbers of its addresses.
    network: &'static str,
}

/// One domain, which becomes one Node of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub name: String,
    pub uuid: String,
    pub hypervisor: &'static str,
    pub zone: &'static str,
}

/// All machines, in the order of their names.
pub(crate) fn machines() -> Vec<Machine> {
    let on = |(index, hypervisor): (usize, &'static Hypervisor)| {
        (1..=DOMAINS_EACH).map(move |n| {
            let number = index * DOMAINS_EACH + n;
            Machine {
                name: format!("worker-{number:03}"),
                uuid: format!("7d0c9a52-3f1e-4b68-9c40-{number:012x}"),
                hypervisor: hypervisor.name,
                zone: hypervisor.zone,
            }
        })
    };
    HYPERVISORS.iter().enumerate().flat_map(on).collect()
}

/// Writes a file for the test driver for each hypervisor, and returns the provider's configuration.
pub(crate) fn write_hypervisors(folder: &Path, machines: &[Machine]) -> anyhow::Result<String> {
    let mut config = String::from("hypervisors:\n");
    for hypervisor in &HYPERVISORS {
        let file = folder.join(format!("{}.xml", hypervisor.name));
        let of_this = machines.iter().filter(|machine| machine.hypervisor == hypervisor.name);
        fs::write(&file, hypervisor.xml(of_this))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let (name, zone) = (hypervisor.name, hypervisor.zone);
        writeln!(
            config,
            "- name: {name}\n  uri: test://{}\n  region: {REGION}\n  zone: {zone}",
            file.display()
        )?;
    }
    Ok(config)
}

impl Hypervisor {
    fn xml<'a>(&self, machines: impl Iterator<Item = &'a Machine>) -> String {
        let network = self.network;
        let mut xml = format!(
            "<node>\n\
             <cpu><mhz>2400</mhz><model>demo</model><active>64</active><nodes>1</nodes><sockets>1</sockets>\
             <cores>64</cores><threads>1</threads></cpu>\n\
             <memory>268435456</memory>\n\
             <network><name>default</name><forward/><bridge name='virbr0'/>\
             <ip address='{network}.0.1' netmask='255.255.0.0'>\
             <dhcp><range start='{network}.0.2' end='{network}.255.254'/></dhcp></ip></network>\n"
        );
        for (n, machine) in machines.enumerate() {
            let Machine { name, uuid, .. } = machine;
            // Writing to a String cannot fail
            let _ = writeln!(
                xml,
                "<domain type='test'><name>{name}</name><uuid>{uuid}</uuid>\
                 <memory unit='MiB'>8192</memory><vcpu>4</vcpu><os><type>hvm</type></os>\
                 <devices><interface type='network'><mac address='52:54:00:00:00:{n:02x}'/>\
                 <source network='default'/></interface></devices></domain>"
            );
        }
        xml.push_str("</node>\n");
        xml
    }
}

/// Powers a domain off, as pulling the plug does.
pub(crate) async fn power_off(on: &HypervisorHandle, machine: &Machine) -> anyhow::Result<()> {
    to_domain(on, machine, Domain::destroy).await
}

/// Powers a domain off and makes its hypervisor forget it.
pub(crate) async fn remove(on: &HypervisorHandle, machine: &Machine) -> anyhow::Result<()> {
    to_domain(on, machine, |domain| {
        domain.destroy()?;
        domain.undefine()
    })
    .await
}

async fn to_domain(
    on: &HypervisorHandle,
    machine: &Machine,
    work: fn(&Domain) -> Result<(), VirtError>,
) -> anyhow::Result<()> {
    let name = machine.name.clone();
    on.with_connection(move |connection| work(&connection.lookup_domain_by_name(&name)?))
        .await?
        .with_context(|| format!("libvirt refuses what is to be done to domain {}", machine.name))
}

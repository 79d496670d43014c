//! What objects name of a hypervisor, against what the configuration allows their namespace.

use std::time::Instant;

use cloudprovider::{Error, ErrorKind, Result, machines::ClusterRequest};

use super::Request;
use crate::{
    allow::Allow,
    mac::Mac,
    machines::{
        identity::Identity,
        libvirt_machines::{Host, LibvirtMachines},
        names,
        reservation::{self, Scope},
        spec::{InterfaceSource, LibvirtClusterSpec, MacvtapMode},
    },
};

/// Checks all places that a machine names, and how large it is, before anything is made.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with the field's name.
pub(super) fn check(allow: &Allow, request: &Request) -> Result<()> {
    let (allowed, spec) = (allow.of(&request.mark.namespace), &request.spec);
    let disk_gib = spec.disks.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.size_gib));
    allowed.size(spec.vcpus, spec.memory_mib, disk_gib)?;
    if let Some(name) = &spec.hypervisor {
        allowed.hypervisor("spec.hypervisor", name)?;
    }
    for (number, disk) in spec.disks.iter().enumerate() {
        allowed.pool(&format!("spec.disks[{number}].pool"), disk.pool())?;
    }
    for (number, interface) in spec.interfaces.iter().enumerate() {
        let field = |name: &str| format!("spec.interfaces[{number}].{name}");
        match interface.source(number)? {
            InterfaceSource::Network(name) => allowed.network(&field("network"), name)?,
            InterfaceSource::Bridge(name) => allowed.bridge(&field("bridge"), name)?,
            InterfaceSource::Macvtap(macvtap) => {
                let is_passthrough = macvtap.mode == MacvtapMode::Passthrough;
                allowed.macvtap_device(&field("macvtap"), &macvtap.device, is_passthrough)?;
            }
        }
        if interface.mac.is_some() {
            allowed.mac_address(&field("mac"))?;
        }
    }
    Ok(())
}

/// Checks all places that a cluster names.
///
/// # Errors
/// As for [`check`].
pub(super) fn check_cluster(allow: &Allow, request: &ClusterRequest<LibvirtClusterSpec>) -> Result<()> {
    let (allowed, spec) = (allow.of(&request.mark.namespace), &request.spec);
    for (i, name) in spec.hypervisors.iter().enumerate() {
        allowed.hypervisor(&format!("spec.hypervisors[{i}]"), name)?;
    }
    let Some(pool) = &spec.control_plane_endpoint_pool else { return Ok(()) };
    if let Some(name) = &pool.hypervisor {
        allowed.hypervisor("spec.controlPlaneEndpointPool.hypervisor", name)?;
    }
    allowed.network("spec.controlPlaneEndpointPool.network", &pool.network)
}

impl LibvirtMachines {
    /// Checks that no other machine has a MAC address of this one: no domain of any hypervisor, since
    /// networks can reach over several, no machine whose domain is about to be made, and of one that the spec
    /// chooses, no host entry of the interface's network. Keeps it for the machine. One that is made from the
    /// mark has 36 bits of its hash, for which a tenant finds a mark of its own.
    pub(super) async fn check_macs(&self, host: &Host, request: &Request) -> Result<()> {
        let machine = Identity::of(&request.mark)?;
        let checked = self.take_macs(host, request, &machine).await;
        if checked.is_err() {
            // A machine that is refused keeps no address from others, and looks again before its domain is
            // made.
            self.kept_macs.release(&machine);
        }
        checked
    }

    async fn take_macs(&self, host: &Host, request: &Request, machine: &Identity) -> Result<()> {
        let mut known = Vec::new();
        for (number, interface) in request.spec.interfaces.iter().enumerate() {
            let Some(text) = &interface.mac else {
                let mac = names::mac(&request.mark, number);
                if known.contains(&mac) || !self.is_free(mac, machine, request) {
                    let words = format!(
                        "spec.interfaces[{number}]: {mac}, which is made from the identity of the object, is not free; make another \
                         object in its place, which has another one"
                    );
                    return Err(Error::new(ErrorKind::Conflict, words));
                }
                known.push(mac);
                continue;
            };
            let field = format!("spec.interfaces[{number}].mac");
            let Some(mac) = Mac::parse(text) else {
                let words = format!("{field}: {text:?} is not a MAC address such as 52:54:00:12:34:56");
                return Err(Error::new(ErrorKind::InvalidInput, words));
            };
            if known.contains(&mac) {
                let words = format!("{field}: {mac} is that of another interface of the machine");
                return Err(Error::new(ErrorKind::InvalidInput, words));
            }
            known.push(mac);
            if !self.is_free(mac, machine, request)
                || has_entry(host, interface.network.as_deref(), mac).await?
            {
                let words = format!("{field}: {mac} is not free");
                return Err(Error::new(ErrorKind::Conflict, words));
            }
        }
        Ok(())
    }

    /// Whether neither a domain nor another machine has it. Keeps it for this machine.
    fn is_free(&self, mac: Mac, machine: &Identity, request: &Request) -> bool {
        // A machine that has just released it has a domain by now, so the domains are checked after that.
        self.kept_macs.take(mac, machine, Instant::now()) && !self.has_domain_with(mac, &request.mark)
    }

    fn has_domain_with(&self, mac: Mac, mark: &cloudprovider::machines::Mark) -> bool {
        self.hosts.iter().any(|host| {
            let state = host.hypervisor.state();
            let mut others = state.inventory.domains().filter(|domain| !mark.owns(domain.mark()));
            let found = others.find(|domain| domain.nics.iter().any(|nic| nic.mac == mac));
            if let Some(domain) = found {
                tracing::info!(%mark, %mac, hypervisor = host.name(), domain = domain.name, "a domain has the MAC address of a machine that is being made");
            }
            found.is_some()
        })
    }
}

/// Whether a definition of the network has a host entry with this MAC address.
async fn has_entry(host: &Host, network: Option<&str>, mac: Mac) -> Result<bool> {
    let Some(network) = network else { return Ok(false) };
    for scope in Scope::ALL {
        let dhcp = reservation::read(&*host.networks, network, scope).await?;
        if dhcp.is_some_and(|dhcp| dhcp.hosts().any(|entry| entry.mac == Some(mac))) {
            return Ok(true);
        }
    }
    Ok(false)
}

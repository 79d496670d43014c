//! Machines and domains that are elsewhere: a machine on a hypervisor that the configuration does not have,
//! or has under another name, and domains that have the UUID of a machine and are copies of it.

use std::time::Duration;

use cloudprovider::{
    Error, Result,
    machines::{MachineRequest, Mark, Wait},
    ties::{Activity, NameFound},
};

use super::{MachineRecord, Request, volumes};
use crate::{
    domain::Domain,
    machines::{
        identity::Identity,
        libvirt_machines::{Host, LibvirtMachines, not_known},
        names,
        spec::LibvirtMachineSpec,
        storage::has_any_volume,
    },
    resolve::evidence,
};

/// How soon the next step comes that uses a choice: at once, when the choice is written.
const CHOSEN_RETRY: Duration = Duration::from_millis(1);

impl LibvirtMachines {
    /// The error about something on a hypervisor that the configuration does not have.
    pub(super) fn elsewhere(mark: &Mark, what: &str, name: &str) -> Error {
        mark.out_of_reach(what, format_args!("hypervisor {name:?}"))
    }

    /// The hypervisor that the machine was made on, by its status or its spec, if the configuration does not
    /// have it.
    pub(super) fn left<C>(
        &self,
        request: &MachineRequest<LibvirtMachineSpec, C>,
        record: &MachineRecord,
    ) -> Option<String> {
        // A status can be lost. A machine that existed was where its spec says.
        let pinned = request.spec.hypervisor.as_ref().filter(|_| request.provider_id.is_some());
        let name = record.status.hypervisor.as_ref().or(pinned)?;
        self.host(name).is_none().then(|| name.clone())
    }

    /// The hypervisor that has the machine, if the configuration has given it another name since.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`] if none has: the machine can be on the one that is missing. Also
    /// if one cannot be asked.
    pub(super) async fn renamed<C>(
        &self,
        name: &str,
        machine: &Identity,
        request: &MachineRequest<LibvirtMachineSpec, C>,
    ) -> Result<&Host> {
        for host in &self.hosts {
            let has_parts = host.has_parts(machine, request).await;
            if has_parts.map_err(|doubt| not_known(machine.uid, &doubt))? {
                return Ok(host);
            }
        }
        Err(Self::elsewhere(&request.mark, "the machine", name))
    }
}

impl Host {
    /// Whether it has the domain or a volume of the machine.
    async fn has_parts<C>(
        &self,
        machine: &Identity,
        request: &MachineRequest<LibvirtMachineSpec, C>,
    ) -> Result<bool> {
        self.check_live()?;
        let domain = self.domains.find(machine.uid, None).await?;
        if domain.is_some_and(|found| request.mark.owns(found.mark.as_ref())) {
            return Ok(true);
        }
        let possible = volumes::possible(request);
        let is_ours = |volume: &str| possible.iter().any(|names| names.has(volume));
        for pool in request.spec.pools() {
            if has_any_volume(&self.storage, pool, &is_ours).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The wait for a hypervisor's name to be written before anything is changed there.
pub(super) fn chosen(host: &Host) -> Wait {
    let words = format!("hypervisor {:?} is chosen", host.name());
    Wait::objects(words).with_reason("HypervisorChosen").look_again_after(CHOSEN_RETRY)
}

impl LibvirtMachines {
    /// The names of the hypervisors that have a copy of the machine, such as a replica of a backup tool.
    /// Empty where a domain with the machine's UUID may be the machine's own: then a person has to look.
    pub(super) fn copies(&self, machine: &Identity, request: &Request, record: &MachineRecord) -> Vec<&str> {
        let known = |host: &Host| host.hypervisor.state().inventory.by_uuid(machine.uid).cloned();
        let found: Vec<_> = self.hosts.iter().filter_map(|host| Some((host, known(host)?))).collect();
        let is_copy = |(host, domain): &(&Host, Domain)| is_copy(host, domain, request, record);
        if !found.iter().all(is_copy) {
            return Vec::new();
        }
        found.into_iter().map(|(host, _)| host.name()).collect()
    }
}

/// Whether a domain is a copy: the machine existed on another hypervisor, and this domain has neither its
/// mark nor runs under its name.
fn is_copy(host: &Host, domain: &Domain, request: &Request, record: &MachineRecord) -> bool {
    let was_elsewhere = request.provider_id.is_some()
        && record.status.hypervisor.as_deref().is_some_and(|recorded| recorded != host.name());
    // one that cannot be read now may run by now
    was_elsewhere
        && host.check_live().is_ok()
        && !request.mark.owns(domain.mark())
        && [names::domain(&request.mark).as_str(), request.mark.name()].into_iter().all(|name| {
            let evidence = evidence(domain, name);
            let is_the_node = evidence.activity > Activity::Off && evidence.name > NameFound::Nowhere;
            evidence.is_connected && !is_the_node
        })
}

//! Domains that have the UUID of a machine and are not the machine's.

use cloudprovider::ties::{Activity, NameFound};

use super::{MachineRecord, Request};
use crate::{
    domain::Domain,
    machines::{
        fleet::{Fleet, Host},
        identity::Identity,
        names,
    },
    resolve::evidence,
};

impl Fleet {
    /// The names of the hypervisors that have a copy of the machine, such as a replica of a backup tool. Empty where a domain with the
    /// machine's UUID may be the machine's own: then a person has to look.
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

/// Whether a domain is a copy: the machine existed on another hypervisor, and this domain has neither its mark nor runs under its name.
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

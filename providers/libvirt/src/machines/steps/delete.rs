//! The step of a machine towards gone.

use cloudprovider::{
    Result,
    machines::{Deletion, Wait},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{DeletionRequest, MachineRecord, elsewhere::chosen, reservations, volumes};
use crate::machines::{
    domains::Found,
    identity::{Identity, is_borrowed},
    libvirt_machines::{Host, LibvirtMachines, not_known},
    names::VolumeNames,
    power::{PowerOffPolicy, PowerOffStep, power_off},
    spec::LibvirtMachineSpec,
};

impl LibvirtMachines {
    /// One step towards gone.
    pub(super) async fn delete(
        &self,
        machine: &Identity,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        let uid = machine.uid;
        let found = self.find(uid, &request.mark)?.filter(|(_, domain)| request.mark.owns(domain.mark()));
        if let (Some(name), None) = (self.left(request, record), self.chosen(machine)) {
            let host = match found {
                Some((host, _)) => host,
                None => self.renamed(&name, machine, request).await?,
            };
            // Written before anything is removed: afterwards nothing shows where it was.
            record.status.hypervisor = Some(host.name().to_owned());
            return Ok(Deletion::Deleting(chosen(host)));
        }
        let hosts = self.to_clear(machine, found.map(|(host, _)| host), request, record);
        let is_any = hosts.len() > 1;
        for host in hosts {
            let cleared = self.clear(host, uid, request, record).await;
            let cleared = cleared.map_err(|error| if is_any { not_known(uid, &error) } else { error });
            if let Some(wait) = cleared? {
                return Ok(Deletion::Deleting(wait));
            }
        }
        self.forget(machine);
        self.console_reads.forget(machine);
        Ok(Deletion::Gone)
    }

    /// The hypervisors that may have parts of the machine: the one that has its domain, the one that was
    /// chosen, or else all. After a move a name in the status can be that of another hypervisor, so all are
    /// asked then.
    fn to_clear<'a>(
        &'a self,
        machine: &Identity,
        found: Option<&'a Host>,
        request: &DeletionRequest,
        record: &MachineRecord,
    ) -> Vec<&'a Host> {
        let recorded = || record.status.hypervisor.as_deref().and_then(|name| self.host(name));
        let known = found
            .or_else(|| recorded().filter(|_| !is_borrowed(request)))
            .or_else(|| self.host(&self.chosen(machine)?));
        known.map_or_else(|| self.hosts.iter().collect(), |host| vec![host])
    }

    /// Removes what a hypervisor has of the machine. `None` if it confirmed that nothing is left.
    async fn clear(
        &self,
        host: &Host,
        uid: Uuid,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        host.check_live()?;
        let spec = &request.spec;
        // What has another mark is not ours to delete.
        let found = host.domains.find(uid, None).await?;
        let has_foreign_domain = found.as_ref().is_some_and(|found| !request.mark.owns(found.mark.as_ref()));
        let mut names = volumes::possible(request);
        match found {
            Some(foreign) if has_foreign_domain => {
                // Volumes with the older names can be that domain's.
                let theirs = foreign.mark.as_ref().map(VolumeNames::older);
                names.retain(|names| theirs.as_ref() != Some(names));
            }
            Some(found) => {
                if let Some(wait) = power_off_guest(host, &found, spec, record).await? {
                    return Ok(Some(wait));
                }
                let of_domain = VolumeNames::of_domain(&request.mark, found.volume.as_deref());
                if !names.contains(&of_domain) {
                    // Only the domain tells that these are the machine's, so it goes after them.
                    host.domains.power_off(uid).await?;
                    if let Some(wait) = self.remove_volumes(host, spec, &[of_domain]).await? {
                        return Ok(Some(wait));
                    }
                }
                host.domains.remove(uid).await?;
            }
            None => {}
        }
        reservations::release(host, uid, request, has_foreign_domain).await?;
        self.remove_volumes(host, spec, &names).await
    }
}

/// Lets the guest shut down, if the spec asks for it. `None` if the domain can be powered off.
async fn power_off_guest(
    host: &Host,
    found: &Found,
    spec: &LibvirtMachineSpec,
    record: &mut MachineRecord,
) -> Result<Option<Wait>> {
    let since = &mut record.status.soft_power_off_since;
    let policy = PowerOffPolicy::of(spec);
    let Some(step) = power_off(found.power, found.has_agent, policy, *since, Timestamp::now()) else {
        return Ok(None);
    };
    *since = step.since().or(*since);
    if let PowerOffStep::Ask { by, .. } = step {
        host.domains.shut_down(found.uuid, by).await?;
    }
    Ok(step.wait())
}

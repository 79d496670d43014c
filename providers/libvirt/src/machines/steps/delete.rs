//! The step of a machine towards gone.

use cloudprovider::{
    Result,
    machines::{Deletion, Wait},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{DeletionRequest, MachineRecord, reservations};
use crate::machines::{
    domains::Found,
    fleet::{Fleet, Host},
    names::VolumeNames,
    power::{PowerOffPolicy, PowerOffStep, power_off},
    spec::LibvirtMachineSpec,
    storage::Removal,
};

impl Fleet {
    /// One step towards gone.
    pub(super) async fn delete(
        &self,
        uid: Uuid,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        for host in self.to_clear(uid, request, record)? {
            if let Some(wait) = self.clear(host, uid, request, record).await? {
                return Ok(Deletion::Deleting(wait));
            }
        }
        self.forget(uid);
        self.looks.forget(uid);
        Ok(Deletion::Gone)
    }

    /// The hypervisors that may have parts of the machine: the one that was chosen, or else all.
    fn to_clear(&self, uid: Uuid, request: &DeletionRequest, record: &MachineRecord) -> Result<Vec<&Host>> {
        let found = self.find(uid)?.filter(|(_, domain)| request.mark.owns(domain.mark()));
        let known = match found {
            Some((host, _)) => Some(host),
            None => {
                let recorded = record.status.hypervisor.as_deref().and_then(|name| self.host(name));
                recorded.or_else(|| self.host(&self.chosen(uid)?))
            }
        };
        Ok(known.map_or_else(|| self.hosts.iter().collect(), |host| vec![host]))
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
        // What has another mark is not ours to delete. It does not have our volumes either.
        let found = host.domains.find(uid, None).await?;
        if let Some(found) = found.filter(|found| request.mark.owns(found.mark.as_ref())) {
            if let Some(wait) = power_off_guest(host, &found, spec, record).await? {
                return Ok(Some(wait));
            }
            host.domains.remove(uid).await?;
        }
        reservations::release(host, uid, request).await?;
        let names = VolumeNames::new(&request.mark);
        let is_ours = |volume: &str| names.has(volume);
        match self.storage.remove(&host.storage, &spec.pools(), &names.console(), &is_ours).await? {
            Removal::Gone { .. } => Ok(None),
            Removal::Working(wait) => Ok(Some(wait)),
        }
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

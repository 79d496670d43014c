//! Powers machines on: by DRS where that is switched on, so that each starts on the host with most room.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind, Result,
    machines::{Mark, Wait},
};

use super::{MachineRecord, machine_of};
use crate::{
    inventory::Inventory,
    machines::{
        drs::{self, Drs},
        fleet::{Fleet, Turn},
        groups,
        site::Site,
        work::Work,
    },
    moref::MoRef,
    tasks::TaskFault,
    vim::{CallError, machines::PowerOnVm, property_collector::ObjectUpdate},
    vm::VirtualMachine,
};

const DATACENTER: &str = "Datacenter";

impl Fleet {
    /// Begins to power a machine on. `None` if vCenter says that it is on already.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) async fn power_on(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        mark: &Mark,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        let was_left_to_drs = turn.slot.known().was_left_to_drs;
        if !was_left_to_drs
            && let Some((datacenter, drs)) = self.drs_of(site, vm).await?.filter(|(_, drs)| drs.is_used())
        {
            let call = drs::power_on(&vm.moref).of(&datacenter);
            match self.try_work(site, turn, Work::PowerOn, call, mark, record).await {
                Ok(begun) => return Ok(begun),
                Err(CallError::Fault { kind, .. }) if drs::is_refusal(&kind) => {
                    note_refusal(site, &drs, mark, &kind);
                }
                Err(error) => {
                    // it may be about the datacenter
                    if error.is_fault("ManagedObjectNotFound") {
                        site.has_removed(&vm.moref).await?;
                    }
                    return Err(site.vcenter.error_of(&error));
                }
            }
        }
        let call = PowerOnVm { host: None }.of(&vm.moref);
        self.work(site, turn, Work::PowerOn, call, mark, record).await
    }

    /// Whether work that has failed is to be done without DRS: it was a power-on by it, and vCenter refuses those.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn gives_up_drs(
        &self,
        site: &Site,
        turn: &Turn,
        mark: &Mark,
        work: Option<Work>,
        fault: &TaskFault,
    ) -> Result<bool> {
        let was_by_drs = {
            let known = turn.slot.known();
            known.target.as_ref().is_some_and(|target| target.kind() == DATACENTER)
        };
        if work != Some(Work::PowerOn) || !was_by_drs || !drs::is_refusal(&fault.kind) {
            return Ok(false);
        }
        let Some(vm) = machine_of(site, turn)? else { return Ok(false) };
        let Some((_, drs)) = self.drs_of(site, &vm).await? else { return Ok(false) };
        note_refusal(site, &drs, mark, &fault.kind);
        Ok(true)
    }

    /// The datacenter of a machine, and what is known of DRS in its cluster. `None` on a host that is in no cluster.
    async fn drs_of(&self, site: &Site, vm: &VirtualMachine) -> Result<Option<(MoRef, Arc<Drs>)>> {
        let place = place_of(&site.vcenter.state().inventory, vm);
        let Some((datacenter, cluster)) = place else { return Ok(None) };
        let key = (site.vcenter.name().to_owned(), cluster.clone());
        let read = async {
            let mut found = None;
            let take = |updates: &[ObjectUpdate<'_>]| found = Drs::read(updates).or(found.take());
            match site.read(groups::selection(&cluster), take).await {
                Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
                _ => Ok(found.unwrap_or_default()),
            }
        };
        Ok(Some((datacenter, self.clusters.get(key, read).await?)))
    }
}

fn note_refusal(site: &Site, drs: &Drs, mark: &Mark, fault: &str) {
    tracing::debug!(
        machine = %mark, vcenter = site.vcenter.name(), fault,
        "vCenter refuses to power on by DRS; machines of this cluster are powered on without it"
    );
    drs.refuse();
}

/// The datacenter and the cluster of hosts that a machine is in.
fn place_of(inventory: &Inventory, vm: &VirtualMachine) -> Option<(MoRef, MoRef)> {
    let start = vm.resource_pool.as_ref().or(vm.host.as_ref())?;
    let is_cluster = |object: &MoRef| object.kind() == "ClusterComputeResource";
    let cluster = inventory.path_up(start).into_iter().find(is_cluster)?;
    Some((inventory.datacenter_of(vm)?, cluster))
}

#[cfg(test)]
mod tests;

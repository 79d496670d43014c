//! The `IPAddressClaim`s of a machine, as its steps want them, wait for them and tell of them.
//!
//! They are there as long as the object of the machine: an address of a virtual machine that still runs must be nobody
//! else's. The machine is not made before each of them is fulfilled.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind, Result,
    machines::{
        AuxiliaryObject, Condition, ConditionStatus, DesiredObject, MachineReport, MachineRequest, Wait,
    },
};

use super::{
    step::{DeletionRequest, MachineRecord, Request},
    vsphere_vm::existing,
};
use crate::machines::{
    addresses::unassigned,
    kinds::CLAIM_KIND,
    naming::vm_name_or_own,
    pools::{self, Addresses, FULFILLED, Owner, WAITING_FOR_CLAIMS},
    spec::VSphereMachineSpec,
};

/// The reason of `Ready` while a machine is not made since its spec has no addresses yet, as with Cluster API Provider vSphere.
const WAITING_FOR_SPEC: &str = "WaitingForStaticIPAllocation";

/// What the claims of a machine have got. A condition says it too.
///
/// # Errors
/// As [`pools::addresses`], unless the machine is complete: then it needs them no more.
pub(super) fn addresses(request: &Request, record: &mut MachineRecord, is_there: bool) -> Result<Addresses> {
    let network = &request.spec.clone.network;
    let (name, uids) = owner_of(request);
    let owner = Owner { namespace: &request.mark.namespace, name: &name, uids: &uids, is_there };
    let answer = pools::addresses(&owner, network, &request.objects);
    let told = |status, reason: &'static str| Some(Condition::new(FULFILLED, status, reason));
    let condition = match &answer {
        Ok(Addresses::NoPools) => None,
        Ok(Addresses::All(_)) => told(ConditionStatus::True, "Fulfilled"),
        Ok(Addresses::Going(_, why)) => {
            told(ConditionStatus::False, "NotFulfilled").map(|condition| condition.with_message(why.clone()))
        }
        Ok(Addresses::Missing(why)) => told(ConditionStatus::False, "WaitingForIPAddress")
            .map(|condition| condition.with_message(why.clone())),
        Err(error) => told(ConditionStatus::False, "NotFulfilled")
            .map(|condition| condition.with_message(error.report())),
    };
    match condition {
        Some(condition) => record.set(condition),
        None => record.remove(FULFILLED),
    }
    match answer {
        Err(error) if request.is_provisioned && error.kind() != ErrorKind::Internal => {
            Ok(Addresses::Missing(error.report()))
        }
        answer => answer,
    }
}

/// The request of a machine whose network has the addresses, if they come from pools.
pub(super) fn with_addresses(request: &Request, addresses: &Addresses) -> Option<Request> {
    let (Addresses::All(network) | Addresses::Going(network, _)) = addresses else { return None };
    let mut request = request.clone();
    request.spec.clone.network = network.clone();
    Some(request)
}

/// The wait of a machine that is not there, if it has no addresses yet.
pub(super) fn wait(request: &Request, addresses: &Addresses) -> Option<Wait> {
    if let Addresses::Missing(why) = addresses {
        return Some(Wait::objects(why.clone()).with_reason(WAITING_FOR_CLAIMS));
    }
    unassigned(&request.spec.clone.network).map(|why| Wait::address(why).with_reason(WAITING_FOR_SPEC))
}

/// Wants the claims of a machine after a step. Those that are there stay as they are, since Cluster API lets nobody change one, and
/// so do others of its `VSphereVM`. A machine that is there gets no new ones: its guest would not have the addresses.
pub(super) fn want(
    request: &Request,
    record: &mut MachineRecord,
    answer: &Result<MachineReport>,
    is_there: bool,
) {
    let Ok(MachineReport::Creating(_) | MachineReport::Present(_)) = answer else { return };
    let is_there = is_there || matches!(answer, Ok(MachineReport::Present(_)));
    let (name, _) = owner_of(request);
    for claim in pools::claims(&name, &request.spec.clone.network) {
        let found = claim.found(&request.mark.namespace, &request.objects);
        if let Ok(None) = found
            && !is_there
            && let Some(wanted) = claim.wanted()
        {
            record.want(wanted);
        }
    }
    for found in owned(request) {
        record.want(DesiredObject::new(CLAIM_KIND, found.name.clone(), found.spec.clone()));
    }
}

/// Reads the claims of a machine that is being deleted, so that those are known which another program has made for it.
pub(super) fn note(request: &DeletionRequest) {
    // what cannot be read now is read by the next step
    drop(owned(request));
}

/// What the names of the claims begin with, and the UIDs of those that may own them: the machine's object, and its `VSphereVM`.
fn owner_of<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> (String, Vec<String>) {
    let vm = existing(request);
    let name = vm.as_ref().map_or_else(|| vm_name_or_own(request), |vm| vm.name.clone());
    let uids = std::iter::once(request.object_uid.clone()).chain(vm.map(|vm| vm.uid.clone()));
    (name, uids.filter(|uid| !uid.is_empty()).collect())
}

/// All claims that the machine or its `VSphereVM` has, whatever their names are.
fn owned<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> Vec<Arc<AuxiliaryObject>> {
    /// No object has it, so all are looked through.
    const NO_NAME: &str = "";
    let (_, uids) = owner_of(request);
    let of = |uid: String| request.objects.owned_by(&CLAIM_KIND, &request.mark.namespace, NO_NAME, &uid).ok();
    uids.into_iter().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests;

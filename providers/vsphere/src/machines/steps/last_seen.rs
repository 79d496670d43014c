//! The virtual machine that an earlier session has seen. A user that may see less finds none, though it runs.

use cloudprovider::{Result, machines::MachineRequest};

use crate::{
    machines::{fleet::Turn, kinds::VM_KIND, naming::vm_name_or_own, site::Site, spec::VSphereMachineSpec},
    moref::MoRef,
};

/// Confirms that the virtual machine is gone whose reference the `VSphereVM` has. Without such an object nothing is asked.
///
/// # Errors
/// Why it may still be there.
pub(super) async fn confirm_left<C>(
    site: &Site,
    turn: &Turn,
    request: &MachineRequest<VSphereMachineSpec, C>,
) -> Result<()> {
    let mark = &request.mark;
    let name = vm_name_or_own(request);
    let objects = request.objects.owned_by(&VM_KIND, &mark.namespace, &name, &request.object_uid)?;
    for id in objects.iter().filter_map(|vm| vm.status["vmRef"].as_str()).filter(|id| !id.is_empty()) {
        site.vcenter.confirm_left(&MoRef::new("VirtualMachine", id), turn.uid).await?;
    }
    Ok(())
}

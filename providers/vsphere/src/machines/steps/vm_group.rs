//! Puts machines into the VM groups of their failure domains.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, Wait},
};

use super::step::{Flow, Step, UNSEEN_TASK_RETRY};
use crate::{
    machines::{
        groups::{GroupEdits, Write},
        spec::invalid,
        vcenter_handle::VCenterHandle,
        zones::Zone,
    },
    moref::MoRef,
    tasks::{TaskFault, TaskState},
    vim::CallError,
    vm::VirtualMachine,
};

/// How long an edit may take that vCenter does not show yet.
const MAX_UNSEEN: Duration = Duration::from_secs(5);

impl Step<'_> {
    /// Puts a machine into the VM group of its failure domain, if that has one.
    pub(super) async fn join_vm_group(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let wait = self.join_group(vm).await?;
        self.report_wait(vm, wait)
    }

    /// `None` once it is in the group.
    ///
    /// An edit replaces the whole group, so a cluster has one at a time. It is made from what was just read, for all machines that
    /// wait at that moment. A machine goes on when it was seen in the group, after the edit.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such group, or no rule that ties it to the hosts; those of the calls.
    async fn join_group(&self, vm: &VirtualMachine) -> Result<Option<Wait>> {
        let Some(name) = &self.request.failure_domain else { return Ok(None) };
        // One that is gone asks for no group.
        let Some(zone) = Zone::around(&self.request.objects, name)? else { return Ok(None) };
        let (Some(hosts), Some(word)) = (zone.hosts(), zone.compute_cluster()) else { return Ok(None) };
        let fields = zone.fields_of_topology();
        let (cluster, is_in) = self.vcenter.with_finder(|finder| {
            let finder = finder.for_zone(&fields);
            let datacenter = finder.datacenter(Some(&zone.domain.topology.datacenter))?;
            let cluster = finder.compute_cluster(&datacenter, word)?;
            let is_in = vm.resource_pool.as_ref().is_none_or(|pool| finder.is_below(pool, &cluster));
            Ok::<_, Error>((cluster, is_in))
        })?;
        if !is_in {
            // vCenter would refuse an edit for all who wait
            return Err(invalid(format!(
                "{fields}computeCluster: {:?} was made in another cluster than {word:?}, whose VM group it cannot join",
                vm.name
            )));
        }
        let (uid, group) = (self.request.mark.uid.as_str(), hosts.vm_group_name.as_str());
        let mut edits =
            self.machines.group_edits.of(&self.vcenter.settings.endpoint.authority(), &cluster).await;
        if let Some(wait) = under_way(&self.vcenter, &mut edits, group, vm, uid).await? {
            return Ok(Some(wait));
        }
        if !edits.has(group, &vm.moref) && !edits.is_known {
            // an earlier process, or a call whose answer was lost, may have begun one
            if let Some(task) = self.vcenter.edits_under_way(&cluster).await?.into_iter().min() {
                edits.want(group, &vm.moref);
                self.vcenter.wait_for_task(&task, uid);
                return Ok(Some(joining(vm, group, Some(&task)).look_again_after(MAX_UNSEEN)));
            }
            edits.is_known = true;
        }
        if !edits.has(group, &vm.moref) {
            edits.learn(Arc::new(self.machines.cluster_groups(&self.vcenter, &cluster).await?));
        }
        if let Some(groups) = edits.groups() {
            let check = groups.check(group, &hosts.host_group_name);
            check.map_err(|error| Error::new(error.kind(), format!("{fields}hosts: {error}")))?;
        }
        if edits.has(group, &vm.moref) {
            return Ok(None);
        }
        let (edit, machines) = {
            let state = self.vcenter.state();
            edits.plan(group, &vm.moref, |machine| state.inventory.machine(machine).is_some())
        };
        let call = edit.of(&cluster);
        let calling = Arc::clone(&self.vcenter);
        // the edits is held until it is known whether the edit has begun
        let begun = self.machines.to_its_end(async move {
            let answer = calling.call(&call).await.and_then(|answer| {
                let malformed =
                    || CallError::Malformed { method: call.method, reason: "the answer has no task".into() };
                answer.moref().ok_or_else(malformed)
            });
            match &answer {
                Ok(task) => edits.begun(task.clone(), machines),
                Err(CallError::Fault { .. }) => edits.refused(machines),
                Err(_) => edits.is_uncertain(),
            }
            answer
        });
        let task = begun.await?.map_err(|error| self.vcenter.error_of(&error))?;
        self.vcenter.wait_for_task(&task, uid);
        Ok(Some(joining(vm, group, Some(&task)).look_again_after(UNSEEN_TASK_RETRY)))
    }
}

/// What to wait for, if an edit of the cluster is under way, or may be.
///
/// # Errors
/// Why it has failed, if this machine was to join by it; those of the call.
async fn under_way(
    vcenter: &VCenterHandle,
    edits: &mut GroupEdits,
    group: &str,
    vm: &VirtualMachine,
    uid: &str,
) -> Result<Option<Wait>> {
    if let Some(write) = edits.write.clone() {
        match state_of(vcenter, &write, uid).await? {
            Some(TaskState::Running) => {
                edits.want(group, &vm.moref);
                let wait = joining(vm, group, Some(&write.task));
                return Ok(Some(wait.look_again_after(UNSEEN_TASK_RETRY)));
            }
            Some(TaskState::Failed(fault)) => {
                edits.ended(true);
                if write.has(&vm.moref) {
                    return Err(failed(vcenter, vm, group, &write.task, &fault));
                }
            }
            // what vCenter does not know any more is seen in the group
            Some(TaskState::Success | TaskState::Continued(_)) | None => edits.ended(false),
        }
    }
    Ok(edits.uncertain_for().map(|left| {
        edits.want(group, &vm.moref);
        joining(vm, group, None).look_again_after(left)
    }))
}

/// How far an edit is. `None` if vCenter knows no such task.
async fn state_of(vcenter: &VCenterHandle, write: &Write, uid: &str) -> Result<Option<TaskState>> {
    Ok(match vcenter.wait_for_task(&write.task, uid) {
        Some(task) => Some(task.state),
        None if write.since.elapsed() < MAX_UNSEEN => Some(TaskState::Running),
        None => vcenter.task(&write.task).await?.map(|task| task.state),
    })
}

fn joining(vm: &VirtualMachine, group: &str, task: Option<&MoRef>) -> Wait {
    let by = task.map(|task| format!(" by {}", task.id())).unwrap_or_default();
    let words = format!("virtual machine {:?} is put into the VM group {group:?}{by}", vm.name);
    Wait::task(words).with_reason("WaitingForVMGroup")
}

fn failed(
    vcenter: &VCenterHandle,
    vm: &VirtualMachine,
    group: &str,
    task: &MoRef,
    fault: &TaskFault,
) -> Error {
    let words = format!("{:?} was not put into the VM group {group:?} ({}): {fault}", vm.name, task.id());
    let kind = match &*fault.kind {
        "NoPermission" => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    vcenter.error(kind, &words).with_source(fault.clone())
}

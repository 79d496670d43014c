//! Puts machines into the VM groups of their failure domains.

use std::{sync::Arc, time::Duration};

use cloudprovider::{Error, ErrorKind, Result, machines::Wait};

use super::{Request, create::UNSEEN_TASK_RETRY, failure_domains::with_finder};
use crate::{
    machines::{
        fleet::Fleet,
        groups::{Board, Write},
        invalid::invalid,
        site::Site,
        zones::Zone,
    },
    moref::MoRef,
    tasks::{TaskFault, TaskState},
    vim::CallError,
    vm::VirtualMachine,
};

/// How long an edit may take that vCenter does not show yet.
const MAX_UNSEEN: Duration = Duration::from_secs(5);

impl Fleet {
    /// Puts a machine into the VM group of its failure domain, if that has one. `None` once it is in it.
    ///
    /// An edit replaces the whole group, so a cluster has one at a time. It is made from what was just read, for all machines that
    /// wait at that moment. A machine goes on when it was seen in the group, after the edit.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such group, or no rule that ties it to the hosts; those of the calls.
    pub(super) async fn join_group(
        &self,
        site: &Arc<Site>,
        vm: &VirtualMachine,
        request: &Request,
    ) -> Result<Option<Wait>> {
        let Some(name) = &request.failure_domain else { return Ok(None) };
        // One that is gone asks for no group.
        let Some(zone) = Zone::around(&request.objects, name)? else { return Ok(None) };
        let (Some(hosts), Some(word)) = (zone.hosts(), zone.compute_cluster()) else { return Ok(None) };
        let fields = zone.fields_of_topology();
        let (cluster, is_in) = with_finder(site, |finder| {
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
        let (uid, group) = (request.mark.uid.as_str(), hosts.vm_group_name.as_str());
        let mut board = self.boards.of(&site.vcenter.settings.endpoint.authority(), &cluster).await;
        if let Some(wait) = under_way(site, &mut board, group, vm, uid).await? {
            return Ok(Some(wait));
        }
        if !board.has(group, &vm.moref) && !board.is_known {
            // an earlier process, or a call whose answer was lost, may have begun one
            if let Some(task) = site.edits_under_way(&cluster).await?.into_iter().min() {
                board.want(group, &vm.moref);
                site.vcenter.wait_for_task(&task, uid);
                return Ok(Some(joining(vm, group, Some(&task)).look_again_after(MAX_UNSEEN)));
            }
            board.is_known = true;
        }
        if !board.has(group, &vm.moref) {
            board.learn(Arc::new(self.cluster_groups(site, &cluster).await?));
        }
        if let Some(groups) = board.groups() {
            let check = groups.check(group, &hosts.host_group_name);
            check.map_err(|error| Error::new(error.kind(), format!("{fields}hosts: {error}")))?;
        }
        if board.has(group, &vm.moref) {
            return Ok(None);
        }
        let (edit, machines) = {
            let state = site.vcenter.state();
            board.plan(group, &vm.moref, |machine| state.inventory.machine(machine).is_some())
        };
        let call = edit.of(&cluster);
        let calling = Arc::clone(site);
        // the board is held until it is known whether the edit has begun
        let begun = self.to_its_end(async move {
            let answer = calling.call(&call).await.and_then(|answer| {
                let malformed =
                    || CallError::Malformed { method: call.method, reason: "the answer has no task".into() };
                answer.moref().ok_or_else(malformed)
            });
            match &answer {
                Ok(task) => board.begun(task.clone(), machines),
                Err(CallError::Fault { .. }) => board.refused(machines),
                Err(_) => board.is_uncertain(),
            }
            answer
        });
        let task = begun.await?.map_err(|error| site.vcenter.error_of(&error))?;
        site.vcenter.wait_for_task(&task, uid);
        Ok(Some(joining(vm, group, Some(&task)).look_again_after(UNSEEN_TASK_RETRY)))
    }
}

/// What to wait for, if an edit of the cluster is under way, or may be.
///
/// # Errors
/// Why it has failed, if this machine was to join by it; those of the call.
async fn under_way(
    site: &Site,
    board: &mut Board,
    group: &str,
    vm: &VirtualMachine,
    uid: &str,
) -> Result<Option<Wait>> {
    if let Some(write) = board.write.clone() {
        match state_of(site, &write, uid).await? {
            Some(TaskState::Running) => {
                board.want(group, &vm.moref);
                let wait = joining(vm, group, Some(&write.task));
                return Ok(Some(wait.look_again_after(UNSEEN_TASK_RETRY)));
            }
            Some(TaskState::Failed(fault)) => {
                board.ended(true);
                if write.has(&vm.moref) {
                    return Err(failed(site, vm, group, &write.task, &fault));
                }
            }
            // what vCenter does not know any more is seen in the group
            Some(TaskState::Success | TaskState::Continued(_)) | None => board.ended(false),
        }
    }
    Ok(board.uncertain_for().map(|left| {
        board.want(group, &vm.moref);
        joining(vm, group, None).look_again_after(left)
    }))
}

/// How far an edit is. `None` if vCenter knows no such task.
async fn state_of(site: &Site, write: &Write, uid: &str) -> Result<Option<TaskState>> {
    Ok(match site.vcenter.wait_for_task(&write.task, uid) {
        Some(task) => Some(task.state),
        None if write.since.elapsed() < MAX_UNSEEN => Some(TaskState::Running),
        None => site.task(&write.task).await?.map(|task| task.state),
    })
}

fn joining(vm: &VirtualMachine, group: &str, task: Option<&MoRef>) -> Wait {
    let by = task.map(|task| format!(" by {}", task.id())).unwrap_or_default();
    let words = format!("virtual machine {:?} is put into the VM group {group:?}{by}", vm.name);
    Wait::task(words).with_reason("WaitingForVMGroup")
}

fn failed(site: &Site, vm: &VirtualMachine, group: &str, task: &MoRef, fault: &TaskFault) -> Error {
    let words = format!("{:?} was not put into the VM group {group:?} ({}): {fault}", vm.name, task.id());
    let kind = match &*fault.kind {
        "NoPermission" => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    site.vcenter.error(kind, &words).with_source(fault.clone())
}

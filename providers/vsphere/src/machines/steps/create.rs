//! The steps of a machine that is not there yet.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BootstrapData, Condition, ConditionStatus, MachineReport, Mark, Wait},
};

use super::{MachineRecord, Request, conflict, edits::Edit, name_of, outstanding::waiting};
use tokio::time::Instant;

use crate::{
    machines::{
        clone::{Place, Wanted, plan},
        fleet::{Fleet, Turn},
        kinds::VM_KIND,
        naming::vm_name_or_own,
        places::{Finder, Storage},
        site::Site,
        storage_drs,
        work::Work,
    },
    moref::MoRef,
    vm::VirtualMachine,
};

/// When a step looks again at a machine that vCenter has and the inventory has not. The watch tells it before.
const UNSEEN_RETRY: Duration = Duration::from_secs(5);

/// For how long the inventory may be behind the end of a task. A vCenter with much to do takes several seconds to tell a change, and
/// asking it for the same again makes that longer.
pub(super) const MAX_BEHIND: Duration = Duration::from_secs(30);

/// How soon a step looks again at a machine that vCenter has and that is not shown.
const UNSHOWN_RETRY: Duration = Duration::from_secs(60);

/// How soon a step looks again whether a name is free that another machine has.
const NAME_RETRY: Duration = Duration::from_secs(60);

/// The condition that says that a machine was cloned in another way than the spec says.
const CLONED_AS_WANTED: &str = "ClonedAsSpecified";

impl Fleet {
    /// A step of a machine that no inventory has, and that never existed.
    pub(super) async fn create(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &Request,
        record: &mut MachineRecord,
        edit: Edit,
    ) -> Result<MachineReport> {
        if turn.slot.known().has_just_done(Work::Clone, MAX_BEHIND) {
            return Ok(MachineReport::Creating(unseen(request)));
        }
        let Some(bootstrap) = &request.bootstrap else {
            return Ok(MachineReport::Creating(Wait::bootstrap_data()));
        };
        let name = name_of(request)?;
        free_for(request, &name)?;
        let (folder, pool, datacenter, template) = places(site, request)?;
        if let Some(other) = called(site, &name, &folder) {
            let mark = site.mark_of(&other).await?;
            return Err(conflict(site, &other, &request.mark, mark.as_ref()));
        }
        let found = site.find(turn.uid).await?;
        if !found.is_empty() {
            check_unshown(site, turn, &found).await?;
            return Ok(MachineReport::Creating(unseen(request)));
        }
        turn.slot.known().unshown_since = None;
        let places = (folder, pool, datacenter, template);
        let report = self.clone_template(site, turn, request, record, (&name, bootstrap), places).await?;
        turn.slot.known().guest = edit.shape();
        Ok(report)
    }

    async fn clone_template(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &Request,
        record: &mut MachineRecord,
        (name, bootstrap): (&str, &BootstrapData),
        (folder, pool, datacenter, template): (MoRef, MoRef, MoRef, MoRef),
    ) -> Result<MachineReport> {
        let spec = &request.spec.clone;
        let catalog = self.catalog(site, &datacenter).await?;
        let facts = self.template(site, &template).await?;
        let word = spec.datastore.as_deref().filter(|word| !word.is_empty());
        let (datastore, pod) = match word.map(|word| catalog.storage(word)).transpose()? {
            Some(Storage::Datastore(datastore)) => (Some(datastore), None),
            Some(Storage::Pod(pod)) => (None, Some(pod)),
            None => (None, None),
        };
        let policy = match spec.storage_policy_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(self.policy(site, name, &pool).await?),
            None => None,
        };
        let datastore = match &policy {
            Some(policy) if pod.is_none() => Some(policy.datastore(datastore, turn.uid)?),
            _ => datastore.cloned(),
        };
        let mut planned = plan(&Wanted {
            mark: &request.mark,
            name,
            uid: turn.uid,
            spec,
            place: Place { folder, pool, datastore, policy: policy.as_ref().map(|policy| policy.id.clone()) },
            template: &facts,
            catalog: &catalog,
            bootstrap,
        })
        // what was read may be old
        .inspect_err(|_| self.forget_facts())?;
        if let (Some(pod), Some(word)) = (pod, word) {
            let recommended = storage_drs::recommend(site, pod, word, &template, &planned).await;
            let recommended = recommended.inspect_err(|_| self.forget_facts())?;
            planned.put_on(recommended.choose(word, policy.as_deref())?, &facts);
        }
        let call = planned.call_of(&template);
        let task = self.begin(site, turn, Work::Clone, call).await.map_err(|error| {
            self.forget_facts();
            site.vcenter.error_of(&error)
        })?;
        {
            // one that was destroyed before it was complete may have had them
            let mut known = turn.slot.known();
            (known.is_tagged, known.was_left_to_drs) = (false, false);
        }
        record.status.module_uuid = None;
        record.status.task_ref = Some(task.id().to_owned());
        record.status.hardware_version = planned.hardware_version;
        record.status.clone_mode = Some(planned.mode);
        record.status.snapshot = planned.snapshot.map(|snapshot| snapshot.id().to_owned());
        match planned.notice {
            Some((reason, words)) => {
                let condition = Condition::new(CLONED_AS_WANTED, ConditionStatus::False, reason);
                record.set(condition.with_message(words));
            }
            None => record.remove(CLONED_AS_WANTED),
        }
        site.vcenter.wait_for_task(&task, &request.mark.uid);
        Ok(MachineReport::Creating(
            waiting(site, Some(Work::Clone), &task).look_again_after(UNSEEN_TASK_RETRY),
        ))
    }
}

/// When a step looks again at a task that was begun just now. Its end is told, unless vCenter has lost it.
pub(super) const UNSEEN_TASK_RETRY: Duration = Duration::from_secs(6);

/// The folder, the resource pool, the datacenter and the template.
fn places(site: &Site, request: &Request) -> Result<(MoRef, MoRef, MoRef, MoRef)> {
    let spec = &request.spec.clone;
    let state = site.vcenter.state();
    let used: Vec<_> = site.vcenter.datacenters(&state).into_iter().collect();
    let vcenter = site.vcenter.settings.endpoint.authority();
    let finder = Finder::new(&vcenter, &state.inventory, &used);
    let datacenter = finder.datacenter(spec.datacenter.as_deref())?;
    let template = finder.template(&datacenter, &spec.template)?.moref.clone();
    let folder = finder.folder(&datacenter, spec.folder.as_deref())?;
    let pool = finder.resource_pool(&datacenter, spec.resource_pool.as_deref())?;
    Ok((folder, pool, datacenter, template))
}

/// Checks that no other machine has a `VSphereVM` of the name that a template gave. Its virtual machine may be in another folder.
///
/// # Errors
/// [`ErrorKind::Conflict`] that names it.
fn free_for(request: &Request, name: &str) -> Result<()> {
    let Mark { namespace, .. } = &request.mark;
    if name == request.mark.name() {
        return Ok(());
    }
    // If the kind is not served, there is none.
    let found = request.objects.get(&VM_KIND, Some(namespace), name).ok().flatten();
    match found.filter(|found| !found.is_owned_by(&request.object_uid)) {
        None => Ok(()),
        Some(_) => {
            let words = format!(
                "VSphereVM {namespace}/{name} exists and is another machine's, and spec.naming.template or spec.os gives this \
                 machine the same name"
            );
            Err(Error::new(ErrorKind::Conflict, words).with_retry_after(NAME_RETRY))
        }
    }
}

/// Checks that the inventory may still show a machine that vCenter finds.
///
/// # Errors
/// Why it does not, once it had the time.
pub(super) async fn check_unshown(site: &Site, turn: &Turn, found: &[MoRef]) -> Result<()> {
    let since = *turn.slot.known().unshown_since.get_or_insert_with(Instant::now);
    let Some(machine) = found.first().filter(|_| since.elapsed() >= MAX_BEHIND) else { return Ok(()) };
    Err(site.vcenter.why_unshown(machine).await.with_retry_after(UNSHOWN_RETRY))
}

/// A machine with this name in a folder.
fn called(site: &Site, name: &str, folder: &MoRef) -> Option<VirtualMachine> {
    let state = site.vcenter.state();
    let mut found = state.inventory.with_name(name);
    found.find(|vm| vm.folder.as_ref() == Some(folder)).cloned()
}

/// The wait for the inventory.
fn unseen(request: &Request) -> Wait {
    let words = format!("virtual machine {:?} was made and is being read", vm_name_or_own(request));
    let wait = Wait::task(words).with_reason("WaitingForClone").look_again_after(UNSEEN_RETRY);
    wait.without_bootstrap_data().told_late()
}

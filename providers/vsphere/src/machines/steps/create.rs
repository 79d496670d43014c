//! The steps of a machine that is not there yet.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{AuxiliaryObject, BootstrapData, Condition, ConditionStatus, MachineReport, Mark, Wait},
    uuids::parse_uuid,
};
use uuid::Uuid;

use super::{MachineRecord, Request, conflict_over, edits::Edit, name_of, outstanding::waiting};
use tokio::time::Instant;

use crate::{
    machines::{
        allowed::{Allowed, Located},
        clone::{Place, Wanted, plan},
        fleet::{Fleet, Turn},
        kinds::VM_KIND,
        naming::vm_name_or_own,
        places::{Catalog, Finder, Storage},
        site::Site,
        storage_drs,
        template::{Hands, TemplateFacts},
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
        let has_identity = request.cluster.spec.identity_ref.is_some();
        let allowed = self.allowed(site, &request.mark.namespace, has_identity);
        allowed.words(&request.spec.clone)?;
        let (folder, pool, datacenter, template) = places(site, request, &allowed)?;
        if let Some(other) = called(site, &name, &folder) {
            let mark = site.mark_of(&other).await?;
            return Err(conflict_over(&name, site, &other, &request.mark, mark.as_ref()));
        }
        let found = site.find(turn.uid).await?;
        if !found.is_empty() {
            check_unshown(site, turn, &found).await?;
            return Ok(MachineReport::Creating(unseen(request)));
        }
        turn.slot.known().unshown_since = None;
        let places = (folder, pool, datacenter, template);
        let report =
            self.clone_template(site, turn, request, record, (&name, bootstrap, &allowed), places).await?;
        turn.slot.known().guest = edit.shape();
        Ok(report)
    }

    async fn clone_template(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &Request,
        record: &mut MachineRecord,
        (name, bootstrap, allowed): (&str, &BootstrapData, &Allowed<'_>),
        (folder, pool, datacenter, template): (MoRef, MoRef, MoRef, MoRef),
    ) -> Result<MachineReport> {
        let spec = &request.spec.clone;
        let catalog = self.catalog(site, &datacenter).await?;
        let facts = self.template(site, &template).await?;
        self.check_template(site, request, &template, &facts, allowed)?;
        let here = Here { site, catalog: &catalog, allowed };
        for (number, device) in spec.network.devices.iter().enumerate() {
            let field = format!("spec.network.devices[{number}].networkName");
            let network = catalog.network(&field, &device.network_name)?;
            here.at(&network.moref, false, |at| allowed.network(&field, &device.network_name, at))?;
        }
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
            Some(policy) if pod.is_none() => {
                let may_use = |one: &MoRef| {
                    !allowed.limits_datastores()
                        || here.at(one, false, |at| allowed.datastore(None, at)).is_ok()
                };
                Some(policy.datastore(datastore, turn.uid, may_use)?)
            }
            _ => datastore.cloned(),
        };
        here.check_datastore((word, pod.or(datastore.as_ref())), &facts, policy.is_some())?;
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

impl Fleet {
    /// Checks that a template is one, and in nobody's hands: the copy of a machine has its secrets.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], and [`ErrorKind::Unavailable`] while two readings of it disagree.
    fn check_template(
        &self,
        site: &Site,
        request: &Request,
        template: &MoRef,
        facts: &TemplateFacts,
        allowed: &Allowed<'_>,
    ) -> Result<()> {
        let word = &request.spec.clone.template;
        let (is_template, has_mark, bios_uuid) = {
            let state = site.vcenter.state();
            let vm = state.inventory.machine(template);
            let bios_uuid = vm.and_then(|vm| vm.bios_uuid);
            (vm.is_some_and(|vm| vm.is_template), vm.is_some_and(|vm| vm.mark.is_some()), bios_uuid)
        };
        let taken = |why: &str| {
            self.forget_facts();
            let words = format!("spec.template: {word:?} cannot be cloned: {why}");
            Err(Error::new(ErrorKind::PermissionDenied, words))
        };
        if let Hands::Taken(why) = facts.hands {
            return taken(why);
        }
        // Another program may keep its virtual machines without a trace in them.
        let is_it =
            |text: Option<&str>, uuid: Option<Uuid>| uuid.is_some() && text.and_then(parse_uuid) == uuid;
        let is_of = |vm: &AuxiliaryObject| {
            is_it(Some(&vm.uid), facts.instance_uuid) || is_it(vm.spec["biosUUID"].as_str(), bios_uuid)
        };
        let is_known = || match request.objects.any(&VM_KIND, is_of) {
            // If the kind is not served, there is none.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            answer => answer,
        };
        if has_mark || self.has_machine(facts.instance_uuid) || is_known()? {
            return taken("it is the virtual machine of another object");
        }
        if facts.is_template != is_template {
            self.forget_facts();
            let words =
                format!("it tells of {} both that it is a template and that it is none", template.id());
            return Err(site.vcenter.error(ErrorKind::Unavailable, &words));
        }
        if facts.is_template { Ok(()) } else { allowed.machine_as_template(word) }
    }
}

/// When a step looks again at a task that was begun just now. Its end is told, unless vCenter has lost it.
pub(super) const UNSEEN_TASK_RETRY: Duration = Duration::from_secs(6);

/// The folder, the resource pool, the datacenter and the template.
fn places(site: &Site, request: &Request, allowed: &Allowed<'_>) -> Result<(MoRef, MoRef, MoRef, MoRef)> {
    let spec = &request.spec.clone;
    let state = site.vcenter.state();
    let used: Vec<_> = site.vcenter.datacenters(&state).into_iter().collect();
    let vcenter = site.vcenter.settings.endpoint.authority();
    let finder = Finder::new(&vcenter, &state.inventory, &used).discreet(site.is_configured);
    let datacenter = finder.datacenter(spec.datacenter.as_deref())?;
    let vm = finder.template(&datacenter, &spec.template)?;
    let template = vm.moref.clone();
    let path = state.inventory.names_to_machine(vm).unwrap_or_default();
    allowed.template(&spec.template, Located { object: &template, path: &path, is_default: false })?;
    let (folder_word, pool_word) = (spec.folder.as_deref(), spec.resource_pool.as_deref());
    let folder = finder.folder(&datacenter, folder_word)?;
    let path = state.inventory.names_to(&folder).unwrap_or_default();
    let is_default = finder.folder(&datacenter, None).ok().as_ref() == Some(&folder);
    allowed.folder(folder_word, Located { object: &folder, path: &path, is_default })?;
    let pool = finder.resource_pool(&datacenter, pool_word)?;
    let path = state.inventory.names_to(&pool).unwrap_or_default();
    let is_default = finder.resource_pool(&datacenter, None).ok().as_ref() == Some(&pool);
    allowed.resource_pool(pool_word, Located { object: &pool, path: &path, is_default })?;
    Ok((folder, pool, datacenter, template))
}

/// What the networks and datastores of a machine are compared with.
struct Here<'a> {
    site: &'a Site,
    catalog: &'a Catalog,
    allowed: &'a Allowed<'a>,
}

impl Here<'_> {
    /// Checks a network, a datastore or a datastore cluster.
    fn at(
        &self,
        object: &MoRef,
        is_default: bool,
        check: impl FnOnce(Located<'_>) -> Result<()>,
    ) -> Result<()> {
        let path = {
            let state = self.site.vcenter.state();
            match self.catalog.place_of(object) {
                Some((parent, name)) => state.inventory.names_to(parent).map(|mut path| {
                    path.push(name.to_owned());
                    path
                }),
                None => state.inventory.names_to(object),
            }
        };
        check(Located { object, path: &path.unwrap_or_default(), is_default })
    }

    /// Checks what a spec names as its datastore, or the one that vCenter takes: that of the template. A storage policy that a machine
    /// may name permits the datastores that fulfil it, unless there is a list of them.
    fn check_datastore(
        &self,
        (word, named): (Option<&str>, Option<&MoRef>),
        template: &TemplateFacts,
        has_policy: bool,
    ) -> Result<()> {
        let of_template = template.datastore.as_deref().and_then(|name| self.catalog.datastore_called(name));
        match (named, of_template) {
            (Some(named), of_template) => {
                let is_default = (has_policy && word.is_none()) || of_template == Some(named);
                self.at(named, is_default, |at| self.allowed.datastore(word, at))
            }
            (None, Some(of_template)) => self.at(of_template, true, |at| self.allowed.datastore(None, at)),
            // what is not known is on no list
            (None, None) if self.allowed.limits_datastores() => {
                let unknown = MoRef::new("Datastore", "");
                self.at(&unknown, false, |at| self.allowed.datastore(None, at))
            }
            (None, None) => Ok(()),
        }
    }
}

/// Checks that no other machine has a `VSphereVM` of the name that a template gave. Its virtual machine may be in another folder.
///
/// # Errors
/// [`ErrorKind::Conflict`] that names it, and those of [`Objects::get`](cloudprovider::machines::Objects::get).
fn free_for(request: &Request, name: &str) -> Result<()> {
    let Mark { namespace, .. } = &request.mark;
    if name == request.mark.name() {
        return Ok(());
    }
    // If the kind is not served, there is none.
    let found = match request.objects.get(&VM_KIND, Some(namespace), name) {
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        answer => answer?,
    };
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
    wait.without_bootstrap_data()
}

#[cfg(test)]
mod tests;

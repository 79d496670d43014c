//! Clones the template of a machine that is not there yet.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{AuxiliaryObject, BootstrapData, Condition, ConditionStatus, MachineReport, Mark, Wait},
    uuids::parse_uuid,
};
use uuid::Uuid;

use super::{
    claims,
    find::MAX_BEHIND,
    guest::Edit,
    step::{Flow, Request, Step, Stop, UNSEEN_TASK_RETRY, waiting},
    vsphere_vm::name_of,
};
use crate::{
    machines::{
        allowed::{Allowed, Located},
        clone::{DesiredObject, Place, plan},
        kinds::VM_KIND,
        naming::vm_name_or_own,
        places::{Catalog, Finder, Storage},
        pools::Addresses,
        storage_drs,
        template::{Hands, TemplateFacts},
        vcenter_handle::VCenterHandle,
        work::Work,
    },
    moref::MoRef,
    vm::VirtualMachine,
};

/// When a step looks again at a machine that vCenter has and the inventory has not. The watch tells it before.
const UNSEEN_RETRY: Duration = Duration::from_secs(5);

/// How soon a step looks again whether a name is free that another machine has.
const NAME_RETRY: Duration = Duration::from_secs(60);

/// The condition that says that a machine was cloned in another way than the spec says.
const CLONED_AS_WANTED: &str = "ClonedAsSpecified";

impl Step<'_> {
    /// Waits until a machine that is to be cloned has its addresses.
    pub(super) fn wait_for_addresses(&self, addresses: &Addresses) -> Flow<MachineReport> {
        let wait = claims::wait(self.request, addresses);
        wait.map_or(Ok(()), |wait| Err(Stop::Answer(MachineReport::Creating(wait))))
    }

    /// Clones the template, unless vCenter has the machine. `edit` has what its guest is told.
    pub(super) async fn clone_template(&mut self, edit: Edit) -> Flow<MachineReport, MachineReport> {
        if self.state.has_just_done(Work::Clone, MAX_BEHIND) {
            return Ok(MachineReport::Creating(unseen(self.request)));
        }
        let Some(bootstrap) = &self.request.bootstrap else {
            return Ok(MachineReport::Creating(Wait::bootstrap_data()));
        };
        let name = name_of(self.request)?;
        free_for(self.request, &name)?;
        let allowed = self.allowed();
        allowed.words(&self.request.spec.clone)?;
        let places = self.places(&allowed)?;
        if let Some(other) = called(&self.vcenter, &name, &places.folder) {
            let mark = self.vcenter.mark_of(&other).await?;
            return Err(self.vcenter.conflict_over(&name, &other, &self.request.mark, mark.as_ref()).into());
        }
        let found = self.vcenter.find(self.uid).await?;
        if !found.is_empty() {
            self.check_unshown(&found).await?;
            return Ok(MachineReport::Creating(unseen(self.request)));
        }
        self.state.clear_unshown();
        let report = self.begin_clone((&name, bootstrap, &allowed), places).await?;
        self.state.note_guest(edit.shape());
        Ok(report)
    }

    async fn begin_clone(
        &mut self,
        (name, bootstrap, allowed): (&str, &BootstrapData, &Allowed<'_>),
        places: Places,
    ) -> Result<MachineReport> {
        let spec = &self.request.spec.clone;
        let Places { folder, pool, datacenter, template } = places;
        let catalog = self.machines.catalog(&self.vcenter, &datacenter).await?;
        let facts = self.machines.template(&self.vcenter, &template).await?;
        self.check_template(&template, &facts, allowed)?;
        let here = Here { vcenter: &self.vcenter, catalog: &catalog, allowed };
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
            Some(name) => Some(self.machines.policy(&self.vcenter, name, &pool).await?),
            None => None,
        };
        let datastore = match &policy {
            Some(policy) if pod.is_none() => {
                let may_use = |one: &MoRef| {
                    !allowed.limits_datastores()
                        || here.at(one, false, |at| allowed.datastore(None, at)).is_ok()
                };
                Some(policy.datastore(datastore, self.uid, may_use)?)
            }
            _ => datastore.cloned(),
        };
        here.check_datastore((word, pod.or(datastore.as_ref())), &facts, policy.is_some())?;
        let mut planned = plan(&DesiredObject {
            mark: &self.request.mark,
            name,
            uid: self.uid,
            spec,
            place: Place { folder, pool, datastore, policy: policy.as_ref().map(|policy| policy.id.clone()) },
            template: &facts,
            catalog: &catalog,
            bootstrap,
        })
        // what was read may be old
        .inspect_err(|_| self.machines.forget_facts())?;
        if let (Some(pod), Some(word)) = (pod, word) {
            let recommended = storage_drs::recommend(&self.vcenter, pod, word, &template, &planned).await;
            let recommended = recommended.inspect_err(|_| self.machines.forget_facts())?;
            planned.put_on(recommended.choose(word, policy.as_deref())?, &facts);
        }
        let call = planned.call_of(&template);
        let task = self.begin(Work::Clone, call).await.map_err(|error| {
            self.machines.forget_facts();
            self.vcenter.error_of(&error)
        })?;
        self.state.note_new();
        self.record.status.module_uuid = None;
        self.record.status.task_ref = Some(task.id().to_owned());
        self.record.status.hardware_version = planned.hardware_version;
        self.record.status.clone_mode = Some(planned.mode);
        self.record.status.snapshot = planned.snapshot.map(|snapshot| snapshot.id().to_owned());
        match planned.notice {
            Some((reason, words)) => {
                let condition = Condition::new(CLONED_AS_WANTED, ConditionStatus::False, reason);
                self.record.set(condition.with_message(words));
            }
            None => self.record.remove(CLONED_AS_WANTED),
        }
        self.vcenter.wait_for_task(&task, &self.request.mark.uid);
        Ok(MachineReport::Creating(
            waiting(&self.vcenter, Some(Work::Clone), &task).look_again_after(UNSEEN_TASK_RETRY),
        ))
    }

    /// Checks that a template is one, and in nobody's hands: the copy of a machine has its secrets.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], and [`ErrorKind::Unavailable`] while two readings of it disagree.
    fn check_template(&self, template: &MoRef, facts: &TemplateFacts, allowed: &Allowed<'_>) -> Result<()> {
        let word = &self.request.spec.clone.template;
        let (is_template, has_mark, bios_uuid) = {
            let state = self.vcenter.state();
            let vm = state.inventory.machine(template);
            let bios_uuid = vm.and_then(|vm| vm.bios_uuid);
            (vm.is_some_and(|vm| vm.is_template), vm.is_some_and(|vm| vm.mark.is_some()), bios_uuid)
        };
        let taken = |why: &str| {
            self.machines.forget_facts();
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
        let is_known = || match self.request.objects.any(&VM_KIND, is_of) {
            // If the kind is not served, there is none.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            answer => answer,
        };
        if has_mark || self.machines.has_machine(facts.instance_uuid) || is_known()? {
            return taken("it is the virtual machine of another object");
        }
        if facts.is_template != is_template {
            self.machines.forget_facts();
            let words =
                format!("it tells of {} both that it is a template and that it is none", template.id());
            return Err(self.vcenter.error(ErrorKind::Unavailable, &words));
        }
        if facts.is_template { Ok(()) } else { allowed.machine_as_template(word) }
    }

    /// Where the machine goes, and what it is made of.
    fn places(&self, allowed: &Allowed<'_>) -> Result<Places> {
        let spec = &self.request.spec.clone;
        let state = self.vcenter.state();
        let used: Vec<_> = self.vcenter.datacenters(&state).into_iter().collect();
        let authority = self.vcenter.settings.endpoint.authority();
        let finder = Finder::new(&authority, &state.inventory, &used).discreet(self.vcenter.is_configured);
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
        Ok(Places { folder, pool, datacenter, template })
    }
}

/// Where a machine goes, and its template.
struct Places {
    folder: MoRef,
    pool: MoRef,
    datacenter: MoRef,
    template: MoRef,
}

/// What the networks and datastores of a machine are compared with.
struct Here<'a> {
    vcenter: &'a VCenterHandle,
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
            let state = self.vcenter.state();
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

/// A machine with this name in a folder.
fn called(vcenter: &VCenterHandle, name: &str, folder: &MoRef) -> Option<VirtualMachine> {
    let state = vcenter.state();
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

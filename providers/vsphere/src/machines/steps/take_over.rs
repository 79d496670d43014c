//! Takes over virtual machines that Cluster API Provider vSphere (CAPV) has made.
//!
//! ```text
//!   identify    which one it is: its instance UUID becomes the identity of the object        nothing is changed
//!   a step      everything agrees, and it has no mark: the mark is written                   one ReconfigVM_Task
//!   from now on it is ours, like one that a step has cloned
//! ```
//!
//! A process that ends in between leaves a virtual machine without a mark, which the next one finds by the same identity. The mark is
//! written to the configuration that was read, so nobody else's change gets lost, and nothing that became somebody else's gets it.
//!
//! A virtual machine that CAPV had not started yet has no `guestinfo.metadata`. It gets them with the mark, for the MAC addresses that
//! it has.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, MachineRequest, Mark, PresentMachine, Wait},
};
use uuid::Uuid;

use super::{DeletionRequest, MachineRecord, Request, conflict, login::Login, outstanding::is_outdated};
use crate::{
    inventory::{parse_mac, unescaped},
    machines::{
        fleet::{Fleet, Turn},
        guest::metadata,
        kinds::VM_KIND,
        site::Site,
        spec::VSphereMachineSpec,
        takeover::Told,
        template::is_card,
        work::Work,
    },
    mark::{self, MARK},
    provider_id::parse_provider_id,
    vim::{
        CallError, Value,
        element::Element,
        machines::{ConfigSpec, OptionValue, ReconfigVm},
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec},
        property_collector::ObjectUpdate,
    },
    vm::{VirtualMachine, VmPower},
};

/// How soon a step looks again at a machine whose mark was written. The inventory tells it.
const RETRY: Duration = Duration::from_secs(1);

/// For how long the inventory may be behind the writing of a mark. After that it is read whether it can be read at all.
const MARK_BEHIND: Duration = Duration::from_secs(5);

/// How soon a step looks again at a machine that is not to be taken over.
const FOREIGN_RETRY: Duration = Duration::from_secs(5);

const NAME: &str = "name";
const CHANGE_VERSION: &str = "config.changeVersion";
const BIOS_UUID: &str = "config.uuid";
const INSTANCE_UUID: &str = "config.instanceUuid";
const TEMPLATE: &str = "config.template";
const EXTRA_CONFIG: &str = "config.extraConfig";
const DEVICES: &str = "config.hardware.device";

/// The key by which it is seen whether a machine has its network configuration.
const METADATA: &str = "guestinfo.metadata";

impl Fleet {
    /// The identity of an object on which CAPV has worked. See [`Machines::identify_machine`](cloudprovider::Machines::identify_machine).
    pub(super) async fn identify(&self, request: &DeletionRequest) -> Result<Option<String>> {
        let Some(told) = told_of(request)? else {
            // Before it clones, CAPV makes the VSphereVM.
            let Some(id) = request.provider_id.as_deref() else { return Ok(Some(request.mark.uid.clone())) };
            return match &self.found(request, parse_provider_id(id)?).await?[..] {
                [] => Ok(Some(request.mark.uid.clone())),
                [(site, vm), ..] => {
                    let why = "the object owns no VSphereVM, by which it would be known as its own";
                    Err(foreign(site, vm, &request.mark, why))
                }
            };
        };
        let of_vm = || Ok(Some(told.vm_uid.hyphenated().to_string()));
        let Some(bios_uuid) = told.bios_uuid() else { return of_vm() };
        match &self.found(request, bios_uuid).await?[..] {
            [] => of_vm(),
            [(site, vm)] => {
                told.check(vm).map_err(|why| foreign(site, vm, &request.mark, &why))?;
                let uid = vm.instance_uuid.ok_or_else(|| {
                    let words = format!("it does not tell the instance UUID of {:?}", vm.name);
                    site.vcenter.error(ErrorKind::Unavailable, &words)
                })?;
                Ok(Some(uid.hyphenated().to_string()))
            }
            [(site, one), (_, other), ..] => {
                let words = format!(
                    "the virtual machines {:?} ({}) and {:?} ({}) have the BIOS UUID {bios_uuid}",
                    one.name,
                    one.moref.id(),
                    other.name,
                    other.moref.id()
                );
                Err(site.vcenter.error(ErrorKind::Ambiguous, &words))
            }
        }
    }

    /// The machines with this BIOS UUID on the vCenter of an object, or on all that are configured if nothing says on which it is.
    ///
    /// # Errors
    /// An inventory is not complete, or vCenter has such a machine that it does not show.
    async fn found(
        &self,
        request: &DeletionRequest,
        bios_uuid: Uuid,
    ) -> Result<Vec<(Arc<Site>, VirtualMachine)>> {
        let sites = match Login::of_deletion(request, None) {
            None => self.configured.clone(),
            Some(login) => vec![self.site_for(&login).await?],
        };
        let mut found = Vec::new();
        for site in &sites {
            site.check_live()?;
            let state = site.vcenter.state();
            found.extend(state.inventory.with_bios_uuid(bios_uuid).map(|vm| (Arc::clone(site), vm.clone())));
        }
        if found.is_empty() {
            // The answer is kept for good.
            for site in &sites {
                site.vcenter.confirm_absent(bios_uuid).await?;
            }
        }
        Ok(found)
    }

    /// Waits for the task that CAPV had begun last, once.
    pub(super) fn take_over_task<C>(
        turn: &Turn,
        request: &MachineRequest<VSphereMachineSpec, C>,
        record: &mut MachineRecord,
    ) {
        if record.status.task_ref.is_some() || turn.slot.known().task.is_some() {
            return;
        }
        let Ok(Some(told)) = told_of(request) else { return };
        let mut known = turn.slot.known();
        // One of ours has a VSphereVM with another UID, and has its task in its own status.
        if told.vm_uid == turn.uid && told.task.is_some() && known.taken_over != told.task {
            known.taken_over.clone_from(&told.task);
            record.status.task_ref = told.task;
        }
    }

    /// A step of a machine without a mark. `None`: it is not one of CAPV's, as far as is known.
    pub(super) async fn take_over(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<Option<MachineReport>> {
        let Some(told) = told_of(request)? else { return Ok(None) };
        told.check(vm).map_err(|why| foreign(site, vm, &request.mark, &why))?;
        if !turn.slot.known().has_just_done(Work::Mark, MARK_BEHIND) {
            let found = Found::read(site, vm).await?;
            found.check(&told).map_err(|why| foreign(site, vm, &request.mark, &why))?;
            if found.has_mark {
                let words = format!("the mark of {:?} ({}) cannot be read", vm.name, vm.moref.id());
                return Err(site.vcenter.error(ErrorKind::Unavailable, &words));
            }
            self.write_mark(site, turn, &found, request).await?;
        }
        self.report_taking_over(vm, site, request, record).map(Some)
    }

    /// What is seen of a machine whose mark is being written. Nothing else is done about it. If it was complete, it still is.
    pub(super) fn report_taking_over(
        &self,
        vm: &VirtualMachine,
        site: &Site,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        let wait = (!request.is_provisioned).then(taking_over);
        Ok(match self.report(vm, site, request, record, wait)? {
            MachineReport::Present(machine) => PresentMachine::look_again_after(*machine, RETRY).into(),
            report => report,
        })
    }

    async fn write_mark(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        found: &Found,
        request: &Request,
    ) -> Result<()> {
        let option = |key: &str, value| OptionValue { key: key.to_owned(), value: Value::AnyString(value) };
        let mut extra_config = vec![option(MARK, mark::write(&request.mark))];
        if !request.is_provisioned && found.vm.power == VmPower::Off && !found.has_metadata {
            extra_config.extend(metadata(&found.vm.name, &request.spec.clone.network, &found.macs));
        }
        let change_version = found.change_version.clone();
        let call = ReconfigVm { spec: ConfigSpec { change_version, extra_config, ..ConfigSpec::empty() } };
        match self.begin(site, turn, Work::Mark, call.of(&found.vm.moref)).await {
            Ok(task) => {
                site.vcenter.wait_for_task(&task, &request.mark.uid);
                Ok(())
            }
            // it has changed since it was read, and is looked at again
            Err(CallError::Fault { kind, .. }) if is_outdated(&kind) => Ok(()),
            Err(error) => Err(site.vcenter.error_of(&error)),
        }
    }
}

/// Checks that a machine without a mark, which has the identity of an object as its instance UUID, is the object's own all the same, so
/// that it is removed with it.
///
/// # Errors
/// What speaks against it. It is never left over in silence: nobody else would know of it.
pub(super) async fn check_own(site: &Site, vm: &VirtualMachine, request: &DeletionRequest) -> Result<()> {
    let Some(told) = told_of(request)? else { return Err(conflict(site, vm, &request.mark, None)) };
    let found = Found::read(site, vm).await?;
    found.check(&told).map_err(|why| foreign(site, vm, &request.mark, &why))
}

/// The vCenter that the `VSphereVM` of an object names.
///
/// # Errors
/// It is not known yet whether there is one.
pub(super) fn server_of_vm(request: &DeletionRequest) -> Result<Option<String>> {
    let Mark { namespace, .. } = &request.mark;
    let vms = request.objects.owned_by(&VM_KIND, namespace, request.mark.name(), &request.object_uid)?;
    let servers = vms.iter().filter_map(|vm| vm.spec["server"].as_str());
    Ok(servers.map(str::to_owned).find(|server| !server.is_empty()))
}

/// What the objects of the API say. `None` without a `VSphereVM`.
fn told_of<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> Result<Option<Told>> {
    let Mark { namespace, .. } = &request.mark;
    let found = request.objects.owned_by(&VM_KIND, namespace, request.mark.name(), &request.object_uid)?;
    let vm = match &found[..] {
        [] => return Ok(None),
        [vm] => vm,
        [one, other, ..] => {
            let words =
                format!("it owns two objects of the kind VSphereVM: {:?} and {:?}", one.name, other.name);
            return Err(Error::new(ErrorKind::Ambiguous, words));
        }
    };
    let told = Told::new(vm, request.provider_id.as_deref());
    told.map(Some).map_err(|why| Error::new(ErrorKind::Conflict, why))
}

/// The error about a machine that is not to be taken over.
fn foreign(site: &Site, vm: &VirtualMachine, mark: &Mark, why: &str) -> Error {
    let error = conflict(site, vm, mark, None);
    let words = format!("{}; it is not taken over: {why}", error.report());
    Error::new(error.kind(), words).with_retry_after(error.retry_after().unwrap_or(FOREIGN_RETRY))
}

fn taking_over() -> Wait {
    Wait::task("the virtual machine is taken over").with_reason("TakingOver").look_again_after(RETRY)
}

/// A machine as it is now, with the version of its configuration.
#[derive(Debug)]
struct Found {
    vm: VirtualMachine,
    change_version: Option<String>,
    has_mark: bool,
    has_metadata: bool,
    /// Those of its network cards, in their order.
    macs: Vec<[u8; 6]>,
}

impl Found {
    /// Whether this is the virtual machine that the objects mean. One that they know by its BIOS UUID alone is at least one that CAPV
    /// has made: CAPV writes a network configuration on each.
    ///
    /// # Errors
    /// What speaks against it.
    fn check(&self, told: &Told) -> Result<(), String> {
        told.check(&self.vm)?;
        if self.vm.instance_uuid != Some(told.vm_uid) && !self.has_metadata {
            return Err(format!("its instance UUID is not {}, and it has no {METADATA}", told.vm_uid));
        }
        Ok(())
    }

    async fn read(site: &Site, vm: &VirtualMachine) -> Result<Self> {
        let paths = vec![NAME, CHANGE_VERSION, BIOS_UUID, INSTANCE_UUID, TEMPLATE, EXTRA_CONFIG, DEVICES];
        let selection = PropertyFilterSpec {
            prop_set: vec![PropertySpec { kind: "VirtualMachine", all: None, path_set: paths }],
            object_set: vec![ObjectSpec { obj: vm.moref.clone(), skip: Some(false), select_set: Vec::new() }],
            report_missing_objects_in_results: None,
        };
        let mut found = None;
        site.read(selection, |updates| {
            found = updates.first().and_then(|update| Self::of(vm, update)).or(found.take());
        })
        .await?;
        found.ok_or_else(|| {
            let words = format!("it does not tell the configuration of {:?} ({})", vm.name, vm.moref.id());
            site.vcenter.error(ErrorKind::Unavailable, &words)
        })
    }

    /// `None` unless the whole configuration is told.
    fn of(vm: &VirtualMachine, update: &ObjectUpdate<'_>) -> Option<Self> {
        let value = |wanted: &str| {
            update.properties.iter().find(|(path, _)| *path == wanted).and_then(|(_, value)| *value)
        };
        let uuid = |path: &str| Uuid::parse_str(value(path)?.text.trim()).ok();
        let options = value(EXTRA_CONFIG)?;
        let has = |key: &str| {
            let mut all = options.children.iter();
            all.any(|one| one.text_of("key") == Some(key) && one.text_of("value") != Some(""))
        };
        let vm = VirtualMachine {
            name: unescaped(&value(NAME)?.text),
            bios_uuid: Some(uuid(BIOS_UUID)?),
            instance_uuid: Some(uuid(INSTANCE_UUID)?),
            is_template: value(TEMPLATE)?.is_true(),
            ..vm.clone()
        };
        let mut cards: Vec<_> = value(DEVICES)?.children.iter().filter_map(card).collect();
        cards.sort_by_key(|(key, _)| *key);
        Some(Self {
            vm,
            change_version: value(CHANGE_VERSION).map(|value| value.text.to_string()),
            has_mark: has(MARK),
            has_metadata: has(METADATA),
            macs: cards.into_iter().map(|(_, mac)| mac).collect(),
        })
    }
}

/// The key and the MAC address of a network card.
fn card(device: &Element) -> Option<(i32, [u8; 6])> {
    if !is_card(device.kind.as_deref()?) {
        return None;
    }
    Some((device.child("key").and_then(Element::parse)?, parse_mac(device.text_of("macAddress")?)?))
}

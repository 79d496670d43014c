//! The call that makes a machine, from its spec and what is known of its template. Pure.

mod devices;
mod resources;

use cloudprovider::{
    Result,
    machines::{BootstrapData, Mark},
};
use uuid::Uuid;

use super::{
    guest::{bootstrap, mac_of, metadata},
    places::Catalog,
    spec::{CloneMode, VirtualMachineCloneSpec, invalid},
    template::{self, TemplateFacts},
};
use crate::{
    mark::{self, MARK},
    moref::MoRef,
    vim::{
        Call, Value,
        machines::{
            CloneSpec, CloneVm, ConfigSpec, DefinedProfile, DiskLocator, FlagInfo, OptionValue, RelocateSpec,
        },
    },
};

/// What a machine has at least, as with Cluster API Provider vSphere.
const MIN_CPUS: u32 = 2;
const DEFAULT_MEMORY_MIB: u64 = 2048;

/// Where a machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) folder: MoRef,
    pub(crate) pool: MoRef,
    /// `None` for that of the template, or one that is known later.
    pub(crate) datastore: Option<MoRef>,
    /// The ID of the storage policy for its files and disks.
    pub(crate) policy: Option<String>,
}

/// What a machine is made from.
pub(crate) struct DesiredObject<'a> {
    pub(crate) mark: &'a Mark,
    /// The name of the machine, and of its guest.
    pub(crate) name: &'a str,
    pub(crate) uid: Uuid,
    pub(crate) spec: &'a VirtualMachineCloneSpec,
    pub(crate) place: Place,
    pub(crate) template: &'a TemplateFacts,
    pub(crate) catalog: &'a Catalog,
    pub(crate) bootstrap: &'a BootstrapData,
}

/// The call, and how the template is used.
#[derive(Debug)]
pub(crate) struct Clone {
    pub(crate) call: CloneVm,
    pub(crate) mode: CloneMode,
    pub(crate) snapshot: Option<MoRef>,
    /// The hardware version of the spec, if the template has that or a later one.
    pub(crate) hardware_version: Option<String>,
    /// Why it is made in another way than the spec says: a reason and words.
    pub(crate) notice: Option<(&'static str, String)>,
}

/// How many CPUs a machine has.
pub(crate) fn cpus(spec: &VirtualMachineCloneSpec) -> u32 {
    spec.num_cpus.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or_default().max(MIN_CPUS)
}

/// How many cores each socket has. 0 leaves that to vCenter. It is sent, since otherwise the number of the template stays, and vCenter
/// refuses a number of CPUs that is no multiple of it.
fn cores_per_socket(spec: &VirtualMachineCloneSpec) -> u32 {
    spec.num_cores_per_socket.and_then(|cores| u32::try_from(cores).ok()).unwrap_or_default()
}

/// How much memory a machine has, in MiB.
pub(crate) fn memory_mib(spec: &VirtualMachineCloneSpec) -> u64 {
    let wanted = spec.memory_mib.and_then(|memory| u64::try_from(memory).ok());
    wanted.filter(|memory| *memory != 0).unwrap_or(DEFAULT_MEMORY_MIB)
}

/// The hardware version that a machine has at least, as the spec says it and as a number.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) for what is no hardware version.
pub(crate) fn hardware_version(spec: &VirtualMachineCloneSpec) -> Result<Option<(&str, u32)>> {
    let Some(word) = spec.hardware_version.as_deref().filter(|word| !word.is_empty()) else {
        return Ok(None);
    };
    let wrong = || invalid(format!("spec.hardwareVersion: {word:?} is no hardware version such as vmx-19"));
    template::hardware_version(word).map(|number| Some((word, number))).ok_or_else(wrong)
}

/// The MAC addresses of the devices, in their order.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) for one that is none.
pub(crate) fn macs(uid: Uuid, spec: &VirtualMachineCloneSpec) -> Result<Vec<[u8; 6]>> {
    let one = |(number, device): (usize, &super::spec::NetworkDeviceSpec)| {
        mac_of(uid, number, device.mac_addr.as_deref()).ok_or_else(|| {
            let wrong = device.mac_addr.as_deref().unwrap_or_default();
            invalid(format!(
                "spec.network.devices[{number}].macAddr: {wrong:?} is no MAC address such as 00:50:56:01:02:03"
            ))
        })
    };
    spec.network.devices.iter().enumerate().map(one).collect()
}

/// The call that makes a machine.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) for what cannot be made of this template, with the name of the field; those of the
/// [`Catalog`].
pub(crate) fn plan(wanted: &DesiredObject<'_>) -> Result<Clone> {
    let DesiredObject { name, uid, spec, place, template, .. } = wanted;
    let (mode, snapshot, notice) = mode(spec, template)?;
    let is_linked = mode == CloneMode::LinkedClone;
    let macs = macs(*uid, spec)?;
    let profile: Vec<_> = place.policy.iter().map(|id| DefinedProfile { profile_id: id.clone() }).collect();
    // in the order of Cluster API Provider vSphere
    let mut device_change =
        if is_linked { Vec::new() } else { devices::grown(spec, &template.disks, &profile)? };
    device_change.extend(devices::added(spec, template, &profile)?);
    device_change.extend(devices::cards(&spec.network, &template.cards, wanted.catalog, &macs)?);
    device_change.extend(devices::of_the_host(&spec.pci_devices)?);
    let notice = notice.or_else(|| {
        let has_sizes = spec.disk_gib.is_some_and(|size| size != 0) || !spec.additional_disks_gib.is_empty();
        (is_linked && has_sizes).then(|| {
            let words = "the disks of a linked clone have the sizes of the snapshot: diskGiB and \
                         additionalDisksGiB are not used";
            ("DiskSizesNotUsed", words.to_owned())
        })
    });
    let (cpu_allocation, memory_allocation) = resources::allocations(spec.resources.as_ref())?;
    let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let config = ConfigSpec {
        change_version: None,
        instance_uuid: Some(uid.hyphenated().to_string()),
        flags: Some(FlagInfo { disk_uuid_enabled: Some(true) }),
        cpus: Some(cpus(spec)),
        cores_per_socket: Some(cores_per_socket(spec)),
        memory_mib: Some(memory_mib(spec)),
        device_change,
        cpu_allocation,
        memory_allocation,
        extra_config: extra_config(wanted, &macs)?,
        v_app_config_removed: Some(true),
        // a device of the host reaches the memory itself
        memory_locked: (!spec.pci_devices.is_empty()).then_some(true),
        nested_hv: spec.nested_hv,
        migrate_encryption: text(&spec.migrate_encryption),
        ft_encryption_mode: text(&spec.ft_encryption_mode),
    };
    let disk_move_type =
        if is_linked { "createNewChildDiskBacking" } else { "moveAllDiskBackingsAndConsolidate" };
    let mut location = RelocateSpec {
        folder: Some(place.folder.clone()),
        datastore: None,
        disk_move_type: Some(disk_move_type),
        pool: Some(place.pool.clone()),
        host: None,
        disk: Vec::new(),
        profile,
    };
    if let Some(datastore) = &place.datastore {
        put_on(&mut location, datastore, template);
    }
    let clone = CloneSpec {
        location,
        template: false,
        config: Some(config),
        power_on: false,
        snapshot: snapshot.clone(),
    };
    let call = CloneVm { folder: place.folder.clone(), name: (*name).to_owned(), spec: clone };
    let hardware_version = hardware_version(spec)?
        .filter(|(_, number)| template.hardware_version >= Some(*number))
        .map(|(word, _)| word.to_owned());
    Ok(Clone { call, mode, snapshot, hardware_version, notice })
}

/// The version of the API that has `ftEncryptionMode`.
const FT_ENCRYPTION: &str = "7.0.2.0";

impl Clone {
    /// The call that clones a template.
    pub(crate) fn call_of(&self, template: &MoRef) -> Call {
        let config = self.call.spec.config.as_ref();
        let has_encryption = config.is_some_and(|config| config.ft_encryption_mode.is_some());
        self.call.clone().of(template).since(has_encryption.then_some(FT_ENCRYPTION))
    }

    /// Puts the machine on a datastore that was not known yet.
    pub(crate) fn put_on(&mut self, datastore: &MoRef, template: &TemplateFacts) {
        put_on(&mut self.call.spec.location, datastore, template);
    }
}

fn put_on(location: &mut RelocateSpec, datastore: &MoRef, template: &TemplateFacts) {
    location.datastore = Some(datastore.clone());
    if location.profile.is_empty() {
        return;
    }
    // without a policy of their own, the disks would keep that of the template
    let disks = template.disks.iter().map(|disk| DiskLocator {
        disk_id: disk.key,
        datastore: datastore.clone(),
        disk_move_type: location.disk_move_type,
        profile: location.profile.clone(),
    });
    location.disk = disks.collect();
}

/// How the template is cloned: in full, or linked to a snapshot if it has one.
#[expect(clippy::type_complexity, reason = "three things that belong together for a moment")]
fn mode(
    spec: &VirtualMachineCloneSpec,
    template: &TemplateFacts,
) -> Result<(CloneMode, Option<MoRef>, Option<(&'static str, String)>)> {
    match &spec.clone_mode {
        Some(CloneMode::FullClone) => return Ok((CloneMode::FullClone, None, None)),
        Some(CloneMode::LinkedClone) | None => {}
        Some(CloneMode::Other(word)) if word.is_empty() => {}
        Some(CloneMode::Other(word)) => {
            return Err(invalid(format!("spec.cloneMode: {word:?} is neither fullClone nor linkedClone")));
        }
    }
    let full = |reason, words: String| Ok((CloneMode::FullClone, None, Some((reason, words))));
    match spec.snapshot.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => match template.snapshots.iter().find(|(called, _)| called == name) {
            Some((_, snapshot)) => Ok((CloneMode::LinkedClone, Some(snapshot.clone()), None)),
            None => full(
                "SnapshotNotFound",
                format!("the template has no snapshot {name:?}, so the machine is a full clone"),
            ),
        },
        None => match &template.current_snapshot {
            Some(snapshot) => Ok((CloneMode::LinkedClone, Some(snapshot.clone()), None)),
            // only somebody who asked for a linked clone wants to hear of it
            None if spec.clone_mode == Some(CloneMode::LinkedClone) => {
                full("NoSnapshot", "the template has no snapshot, so the machine is a full clone".to_owned())
            }
            None => Ok((CloneMode::FullClone, None, None)),
        },
    }
}

fn extra_config(wanted: &DesiredObject<'_>, macs: &[[u8; 6]]) -> Result<Vec<OptionValue>> {
    let DesiredObject { mark, name, spec, bootstrap: data, .. } = wanted;
    let mut options = Vec::new();
    for (key, value) in &spec.custom_vmx_keys {
        options.push(OptionValue { key: key.clone(), value: Value::AnyString(value.clone()) });
    }
    options.push(OptionValue { key: MARK.to_owned(), value: Value::AnyString(mark::write(mark)) });
    options.extend(bootstrap(data)?);
    options.extend(metadata(name, &spec.network, macs));
    Ok(options)
}

#[cfg(test)]
pub(crate) mod tests;

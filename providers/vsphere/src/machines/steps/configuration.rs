//! The configuration of a virtual machine as vCenter tells it now, to be written together with its version.

use cloudprovider::{ErrorKind, Result};
use uuid::Uuid;

use crate::{
    inventory::{parse_mac, unescaped},
    machines::{template::is_card, vcenter_handle::VCenterHandle},
    mark::MARK,
    vim::{
        element::Element,
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec},
        property_collector::ObjectUpdate,
    },
    vm::VirtualMachine,
};

const NAME: &str = "name";
const CHANGE_VERSION: &str = "config.changeVersion";
const BIOS_UUID: &str = "config.uuid";
const INSTANCE_UUID: &str = "config.instanceUuid";
const TEMPLATE: &str = "config.template";
const EXTRA_CONFIG: &str = "config.extraConfig";
const DEVICES: &str = "config.hardware.device";

/// The key by which it is seen whether a machine has its network configuration.
pub(super) const METADATA: &str = "guestinfo.metadata";
const METADATA_ENCODING: &str = "guestinfo.metadata.encoding";

/// A machine as it is now.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) vm: VirtualMachine,
    /// With it, nothing is written if somebody else has written since.
    pub(super) change_version: Option<String>,
    pub(super) has_mark: bool,
    pub(super) metadata: Option<StoredMetadata>,
    /// Those of its network cards, in their order.
    pub(super) macs: Vec<[u8; 6]>,
}

/// What the guest reads of its name and its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredMetadata {
    pub(super) text: String,
    pub(super) encoding: String,
}

impl Configuration {
    /// Reads it.
    ///
    /// # Errors
    /// Those of the call; [`ErrorKind::Unavailable`] if vCenter does not tell all of it.
    pub(super) async fn read(vcenter: &VCenterHandle, vm: &VirtualMachine) -> Result<Self> {
        let paths = vec![NAME, CHANGE_VERSION, BIOS_UUID, INSTANCE_UUID, TEMPLATE, EXTRA_CONFIG, DEVICES];
        let selection = PropertyFilterSpec {
            prop_set: vec![PropertySpec { kind: "VirtualMachine", all: None, path_set: paths }],
            object_set: vec![ObjectSpec { obj: vm.moref.clone(), skip: Some(false), select_set: Vec::new() }],
            report_missing_objects_in_results: None,
        };
        let mut found = None;
        vcenter
            .read(selection, |updates| {
                found = updates.first().and_then(|update| Self::of(vm, update)).or(found.take());
            })
            .await?;
        found.ok_or_else(|| {
            let words = format!("it does not tell the configuration of {:?} ({})", vm.name, vm.moref.id());
            vcenter.error(ErrorKind::Unavailable, &words)
        })
    }

    /// `None` unless the whole configuration is told.
    fn of(vm: &VirtualMachine, update: &ObjectUpdate<'_>) -> Option<Self> {
        let value = |wanted: &str| {
            update.properties.iter().find(|(path, _)| *path == wanted).and_then(|(_, value)| *value)
        };
        let uuid = |path: &str| Uuid::parse_str(value(path)?.text.trim()).ok();
        let options = value(EXTRA_CONFIG)?;
        let option = |key: &str| {
            let mut all = options.children.iter();
            let found = all.find(|one| one.text_of("key") == Some(key) && one.text_of("value") != Some(""));
            found.map(|one| one.text_of("value").unwrap_or_default().to_owned())
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
            has_mark: option(MARK).is_some(),
            metadata: option(METADATA).map(|text| {
                let encoding = option(METADATA_ENCODING).unwrap_or_default();
                StoredMetadata { text, encoding }
            }),
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

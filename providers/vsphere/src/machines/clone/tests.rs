use std::collections::HashMap;

use cloudprovider::machines::BootstrapFormat;
use serde_json::json;

use super::*;
use crate::{
    machines::{
        places,
        template::{Card, Controller, TemplateDisk},
    },
    testing::scripted::text,
    vim::property_collector::{ObjectUpdate, UpdateKind},
};

const UID: &str = "4d3c2b1a-0000-4000-8000-123456789abc";

pub(crate) fn spec(more: serde_json::Value) -> VirtualMachineCloneSpec {
    let mut spec = json!({
        "template": "ubuntu",
        "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
    });
    if let (Some(spec), serde_json::Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    serde_json::from_value(spec).expect("a spec")
}

pub(crate) fn template() -> TemplateFacts {
    TemplateFacts {
        cards: vec![Card { key: 4000, kind: "VirtualE1000" }],
        disks: vec![TemplateDisk {
            key: 2000,
            controller_key: Some(1000),
            unit_number: Some(0),
            capacity_kib: 20 << 20,
            file: Some("[ds] ubuntu/ubuntu.vmdk".to_owned()),
            disk_mode: "persistent".to_owned(),
            thin: Some(true),
            is_first_class: false,
        }],
        controllers: vec![Controller { key: 1000, units: 16, taken: vec![7, 0] }],
        hardware_version: Some(15),
        snapshots: vec![("gold".to_owned(), MoRef::new("VirtualMachineSnapshot", "snapshot-1"))],
        ..TemplateFacts::default()
    }
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let name = text("val", "VM Network");
    let properties = vec![("name", Some(&name))];
    let object = MoRef::new("Network", "network-1");
    catalog.add(&[ObjectUpdate { object, kind: UpdateKind::Enter, properties }]);
    catalog.add_switches(&HashMap::new());
    catalog
}

pub(crate) fn planned(spec: &VirtualMachineCloneSpec, template: &TemplateFacts) -> Result<Clone> {
    planned_with(spec, template, None)
}

fn planned_with(
    spec: &VirtualMachineCloneSpec,
    template: &TemplateFacts,
    policy: Option<&str>,
) -> Result<Clone> {
    planned_on(spec, template, policy, Some(MoRef::new("Datastore", "datastore-1")))
}

pub(crate) fn planned_on(
    spec: &VirtualMachineCloneSpec,
    template: &TemplateFacts,
    policy: Option<&str>,
    datastore: Option<MoRef>,
) -> Result<Clone> {
    plan(&DesiredObject {
        mark: &Mark::machine(UID, "default", "prod", "worker-1"),
        name: "node-1",
        uid: Uuid::parse_str(UID).expect("a UUID"),
        spec,
        place: Place {
            folder: MoRef::new("Folder", "group-v1"),
            pool: MoRef::new("ResourcePool", "resgroup-1"),
            datastore,
            policy: policy.map(str::to_owned),
        },
        template,
        catalog: &catalog(),
        bootstrap: &BootstrapData::new(BootstrapFormat::CloudConfig, "#!"),
    })
}

/// The values of a call as XML, without the secret ones.
pub(crate) fn sent(clone: &Clone) -> String {
    let call = clone.call.clone().of(&MoRef::new("VirtualMachine", "vm-1"));
    crate::soap::written(&call)
}

#[test]
fn a_datastore_may_be_known_later() {
    let (spec, template) = (spec(json!({"diskGiB": 30})), template());
    let datastore = MoRef::new("Datastore", "datastore-1");
    for policy in [None, Some("policy-1")] {
        let mut later = planned_on(&spec, &template, policy, None).expect("a plan");
        assert!(!sent(&later).contains("datastore"), "{}", sent(&later));
        later.put_on(&datastore, &template);
        let at_once = planned_with(&spec, &template, policy).expect("a plan");
        assert_eq!(sent(&later), sent(&at_once));
        assert_eq!(sent(&later).contains("<diskId>2000</diskId>"), policy.is_some());
    }
}

#[test]
fn the_whole_call_as_a_real_vcenter_wants_it() {
    let spec = spec(json!({
        "numCPUs": 4, "numCoresPerSocket": 2, "memoryMiB": 8192, "diskGiB": 40, "cloneMode": "fullClone",
        "dataDisks": [{"name": "etcd", "sizeGiB": 10, "provisioningMode": "Thin"}],
        "customVMXKeys": {"disk.enableUUID": "TRUE"},
        "resources": {"requests": {"cpu": "2G"}},
    }));
    let clone = planned(&spec, &template()).expect("a plan");
    let text = sent(&clone);
    let (_, body) = text.split_once("</_this>").expect("arguments");
    let (body, _) = body.split_once("<extraConfig").expect("an extra configuration");
    assert_eq!(
        body,
        "<folder type=\"Folder\">group-v1</folder><name>node-1</name><spec>\
         <location><folder type=\"Folder\">group-v1</folder><datastore type=\"Datastore\">datastore-1</datastore>\
         <diskMoveType>moveAllDiskBackingsAndConsolidate</diskMoveType>\
         <pool type=\"ResourcePool\">resgroup-1</pool></location><template>false</template>\
         <config><instanceUuid>4d3c2b1a-0000-4000-8000-123456789abc</instanceUuid>\
         <flags><diskUuidEnabled>true</diskUuidEnabled></flags><numCPUs>4</numCPUs>\
         <numCoresPerSocket>2</numCoresPerSocket><memoryMB>8192</memoryMB>\
         <deviceChange xsi:type=\"VirtualDeviceConfigSpec\"><operation>edit</operation>\
         <device xsi:type=\"VirtualDisk\"><key>2000</key>\
         <backing xsi:type=\"VirtualDiskFlatVer2BackingInfo\"><fileName>[ds] ubuntu/ubuntu.vmdk</fileName>\
         <diskMode>persistent</diskMode><thinProvisioned>true</thinProvisioned></backing>\
         <controllerKey>1000</controllerKey><unitNumber>0</unitNumber><capacityInKB>41943040</capacityInKB>\
         <capacityInBytes>42949672960</capacityInBytes></device></deviceChange>\
         <deviceChange xsi:type=\"VirtualDeviceConfigSpec\"><operation>add</operation>\
         <fileOperation>create</fileOperation><device xsi:type=\"VirtualDisk\"><key>-200</key>\
         <backing xsi:type=\"VirtualDiskFlatVer2BackingInfo\"><fileName></fileName>\
         <diskMode>persistent</diskMode><thinProvisioned>true</thinProvisioned></backing>\
         <controllerKey>1000</controllerKey><unitNumber>1</unitNumber><capacityInKB>10485760</capacityInKB>\
         </device></deviceChange>\
         <deviceChange xsi:type=\"VirtualDeviceConfigSpec\"><operation>remove</operation>\
         <device xsi:type=\"VirtualE1000\"><key>4000</key></device></deviceChange>\
         <deviceChange xsi:type=\"VirtualDeviceConfigSpec\"><operation>add</operation>\
         <device xsi:type=\"VirtualVmxnet3\"><key>-100</key>\
         <backing xsi:type=\"VirtualEthernetCardNetworkBackingInfo\"><deviceName>VM Network</deviceName>\
         <network type=\"Network\">network-1</network></backing>\
         <connectable><startConnected>true</startConnected><allowGuestControl>true</allowGuestControl>\
         <connected>true</connected></connectable><addressType>manual</addressType>\
         <macAddress>02:04:56:78:9a:bc</macAddress></device></deviceChange>\
         <cpuAllocation><reservation>2000</reservation></cpuAllocation>"
    );
    assert!(text.contains(
        "<extraConfig xsi:type=\"OptionValue\"><key>guestinfo.userdata</key><value xsi:type=\"xsd:string\">IyE=</value>"
    ));
    assert!(text.contains(
        "</extraConfig><vAppConfigRemoved>true</vAppConfigRemoved></config><powerOn>false</powerOn></spec>"
    ));
    let keys: Vec<_> =
        text.split("<key>").skip(1).filter_map(|rest| rest.split_once('<')).map(|(key, _)| key).collect();
    assert_eq!(
        &keys[keys.len() - 6..],
        [
            "disk.enableUUID",
            "cloud-controller-manager.mark",
            "guestinfo.userdata",
            "guestinfo.userdata.encoding",
            "guestinfo.metadata",
            "guestinfo.metadata.encoding"
        ]
    );
}

#[test]
fn a_storage_policy_is_that_of_all_files() {
    let spec = spec(json!({
        "diskGiB": 40, "cloneMode": "fullClone", "dataDisks": [{"name": "etcd", "sizeGiB": 10}],
    }));
    let text = sent(&planned_with(&spec, &template(), Some("gold")).expect("a plan"));
    let profile =
        "<profile xsi:type=\"VirtualMachineDefinedProfileSpec\"><profileId>gold</profileId></profile>";
    let location = format!(
        "<pool type=\"ResourcePool\">resgroup-1</pool><disk><diskId>2000</diskId>\
         <datastore type=\"Datastore\">datastore-1</datastore>\
         <diskMoveType>moveAllDiskBackingsAndConsolidate</diskMoveType>{profile}</disk>{profile}</location>"
    );
    assert!(text.contains(&location), "{text}");
    assert_eq!(text.matches(&format!("</device>{profile}</deviceChange>")).count(), 2, "{text}");
}

#[test]
fn devices_of_the_host() {
    let spec = spec(json!({"pciDevices": [{"vendorId": 1, "deviceId": 2}, {"vGPUProfile": "grid"}]}));
    let text = sent(&planned(&spec, &template()).expect("a plan"));
    for part in [
        "<device xsi:type=\"VirtualPCIPassthrough\"><key>-300</key>\
         <backing xsi:type=\"VirtualPCIPassthroughDynamicBackingInfo\"><deviceName></deviceName>\
         <allowedDevice><vendorId>1</vendorId><deviceId>2</deviceId></allowedDevice></backing></device>",
        "<key>-301</key><backing xsi:type=\"VirtualPCIPassthroughVmiopBackingInfo\"><vgpu>grid</vgpu></backing>",
        "<memoryReservationLockedToMax>true</memoryReservationLockedToMax>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn nested_hypervisors_and_encrypted_traffic() {
    let spec = spec(json!({
        "nestedHV": true, "migrateEncryption": "required", "ftEncryptionMode": "ftEncryptionOpportunistic",
    }));
    let text = sent(&planned(&spec, &template()).expect("a plan"));
    assert!(
        text.contains(
            "<vAppConfigRemoved>true</vAppConfigRemoved><nestedHVEnabled>true</nestedHVEnabled>\
             <migrateEncryption>required</migrateEncryption>\
             <ftEncryptionMode>ftEncryptionOpportunistic</ftEncryptionMode></config>"
        ),
        "{text}"
    );
}

#[test]
fn a_template_with_the_hardware_version_needs_no_upgrade() {
    for (version, expected) in
        [("vmx-13", Some("vmx-13")), ("vmx-15", Some("vmx-15")), ("vmx-19", None), ("", None)]
    {
        let clone = planned(&spec(json!({"hardwareVersion": version})), &template()).expect("a plan");
        assert_eq!(clone.hardware_version.as_deref(), expected, "{version}");
    }
}

#[test]
fn what_is_small_or_missing_gets_the_least() {
    for more in [json!({}), json!({"numCPUs": 1, "memoryMiB": 0, "numCoresPerSocket": 0, "diskGiB": 0})] {
        let config = planned(&spec(more), &template()).expect("a plan").call.spec.config.expect("a config");
        assert_eq!((config.cpus, config.memory_mib, config.cores_per_socket), (Some(2), Some(2048), Some(0)));
    }
}

#[test]
fn a_linked_clone_needs_a_snapshot() {
    let with_current = TemplateFacts {
        current_snapshot: Some(MoRef::new("VirtualMachineSnapshot", "snapshot-9")),
        ..template()
    };
    let none = TemplateFacts { snapshots: Vec::new(), ..template() };
    for (more, template, mode, snapshot, reason) in [
        (json!({}), &with_current, CloneMode::LinkedClone, Some("snapshot-9"), None),
        (json!({}), &none, CloneMode::FullClone, None, None),
        (json!({"cloneMode": "linkedClone"}), &none, CloneMode::FullClone, None, Some("NoSnapshot")),
        (json!({"cloneMode": "fullClone"}), &with_current, CloneMode::FullClone, None, None),
        (json!({"snapshot": "gold"}), &with_current, CloneMode::LinkedClone, Some("snapshot-1"), None),
        (json!({"snapshot": "old"}), &with_current, CloneMode::FullClone, None, Some("SnapshotNotFound")),
        (
            json!({"diskGiB": 40}),
            &with_current,
            CloneMode::LinkedClone,
            Some("snapshot-9"),
            Some("DiskSizesNotUsed"),
        ),
    ] {
        let clone = planned(&spec(more.clone()), template).expect("a plan");
        assert_eq!(clone.mode, mode, "{more}");
        assert_eq!(clone.snapshot.as_ref().map(MoRef::id), snapshot, "{more}");
        assert_eq!(clone.notice.as_ref().map(|(reason, _)| *reason), reason, "{more}");
        let moved = clone.call.spec.location.disk_move_type;
        let is_linked = moved == Some("createNewChildDiskBacking");
        assert_eq!((is_linked, clone.call.spec.snapshot.is_some()), (snapshot.is_some(), snapshot.is_some()));
    }
}

#[test]
fn what_cannot_be_made_is_named() {
    let disks = |count: i32| {
        (0..count).map(|number| json!({"name": format!("d{number}"), "sizeGiB": 1})).collect::<Vec<_>>()
    };
    for (more, field) in [
        (
            json!({"pciDevices": [{"vendorId": 1}]}),
            "spec.pciDevices[0]: give vendorId and deviceId, or vGPUProfile",
        ),
        (json!({"pciDevices": [{"vendorId": 1, "vGPUProfile": "g"}]}), "spec.pciDevices[0].vGPUProfile: "),
        (json!({"hardwareVersion": "19"}), "spec.hardwareVersion: \"19\" is no hardware version"),
        (json!({"cloneMode": "twin"}), "spec.cloneMode: \"twin\" is neither"),
        (json!({"diskGiB": 10}), "spec.diskGiB: 10 GiB are less than the 20 GiB"),
        (json!({"additionalDisksGiB": [10]}), "spec.additionalDisksGiB[0]: the template has 1 disks"),
        (json!({"dataDisks": disks(15)}), "spec.dataDisks[14]: the disk controller"),
        (json!({"dataDisks": [{"name": "a", "sizeGiB": 0}]}), "spec.dataDisks[0].sizeGiB: 0"),
        (json!({"network": {"devices": [{"networkName": "x"}]}}), "spec.network.devices[0].networkName: "),
        (
            json!({"network": {"devices": [{"networkName": "VM Network", "macAddr": "1"}]}}),
            "spec.network.devices[0].macAddr: \"1\" is no MAC address",
        ),
    ] {
        let error = planned(&spec(more), &template()).expect_err(field);
        assert!(error.to_string().starts_with(field), "{error}");
    }
    let bare = TemplateFacts::default();
    let error = planned(&spec(json!({"dataDisks": disks(1)})), &bare).expect_err("no controller");
    assert!(error.to_string().contains("the template has no disk"), "{error}");
    // the catalog is told apart from the plan
    assert!(places::switches(&[]).is_empty());
}

#[test]
fn a_field_of_a_later_version_is_sent_with_that_version() {
    let machine = MoRef::new("VirtualMachine", "vm-1");
    for (more, expected) in [
        (json!({}), None),
        (json!({"migrateEncryption": "required"}), None),
        (json!({"ftEncryptionMode": "ftEncryptionRequired"}), Some("7.0.2.0")),
    ] {
        let clone = planned(&spec(more.clone()), &template()).expect("a plan");
        assert_eq!(clone.call_of(&machine).since, expected, "{more}");
    }
}

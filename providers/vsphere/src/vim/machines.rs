//! The data objects and methods of requests that make, change and remove machines.
//!
//! The fields are those that are used, in the order of the WSDL: see [`objects`](super::objects).

use crate::{
    moref::MoRef,
    vim::{
        Value,
        encode::{data_object, method},
    },
};

data_object! {
    /// How a clone is made.
    CloneSpec {
        location: RelocateSpec = "location",
        template: bool = "template",
        config: Option<ConfigSpec> = "config",
        power_on: bool = "powerOn",
        snapshot: Option<MoRef> = "snapshot",
    }
}

data_object! {
    /// Where a machine is put.
    RelocateSpec {
        folder: Option<MoRef> = "folder",
        datastore: Option<MoRef> = "datastore",
        disk_move_type: Option<&'static str> = "diskMoveType",
        pool: Option<MoRef> = "pool",
        host: Option<MoRef> = "host",
        disk: Vec<DiskLocator> = "disk",
        profile: Vec<DefinedProfile> = "profile",
    }
}

data_object! {
    /// Where a disk is put.
    DiskLocator {
        disk_id: i32 = "diskId",
        datastore: MoRef = "datastore",
        disk_move_type: Option<&'static str> = "diskMoveType",
        profile: Vec<DefinedProfile> = "profile",
    }
}

data_object! {
    /// A storage policy.
    DefinedProfile as "VirtualMachineDefinedProfileSpec" {
        profile_id: String = "profileId",
    }
}

data_object! {
    /// What a machine is made of, or what is changed of it.
    ConfigSpec {
        change_version: Option<String> = "changeVersion",
        instance_uuid: Option<String> = "instanceUuid",
        flags: Option<FlagInfo> = "flags",
        cpus: Option<u32> = "numCPUs",
        cores_per_socket: Option<u32> = "numCoresPerSocket",
        memory_mib: Option<u64> = "memoryMB",
        device_change: Vec<DeviceConfigSpec> = "deviceChange",
        cpu_allocation: Option<AllocationInfo> = "cpuAllocation",
        memory_allocation: Option<AllocationInfo> = "memoryAllocation",
        extra_config: Vec<OptionValue> = "extraConfig",
        v_app_config_removed: Option<bool> = "vAppConfigRemoved",
        memory_locked: Option<bool> = "memoryReservationLockedToMax",
        nested_hv: Option<bool> = "nestedHVEnabled",
        migrate_encryption: Option<String> = "migrateEncryption",
        ft_encryption_mode: Option<String> = "ftEncryptionMode",
    }
}

impl ConfigSpec {
    /// A specification that says nothing.
    pub(crate) fn empty() -> Self {
        Self {
            change_version: None,
            instance_uuid: None,
            flags: None,
            cpus: None,
            cores_per_socket: None,
            memory_mib: None,
            device_change: Vec::new(),
            cpu_allocation: None,
            memory_allocation: None,
            extra_config: Vec::new(),
            v_app_config_removed: None,
            memory_locked: None,
            nested_hv: None,
            migrate_encryption: None,
            ft_encryption_mode: None,
        }
    }
}

data_object! {
    /// Flags of a machine.
    FlagInfo {
        disk_uuid_enabled: Option<bool> = "diskUuidEnabled",
    }
}

data_object! {
    /// How much of a resource a machine is promised and may take.
    AllocationInfo {
        reservation: Option<u64> = "reservation",
        limit: Option<u64> = "limit",
        shares: Option<SharesInfo> = "shares",
    }
}

data_object! {
    /// The weight of a machine where a resource is short.
    SharesInfo {
        shares: u32 = "shares",
        level: &'static str = "level",
    }
}

data_object! {
    /// A key of the extra configuration with its value. An empty value removes the key.
    OptionValue as "OptionValue" {
        key: String = "key",
        value: Value = "value",
    }
}

data_object! {
    /// A change of one device. `operation` is `add`, `edit` or `remove`; `file_operation` says what becomes of its
    /// file, and nothing becomes of it where it is missing.
    DeviceConfigSpec as "VirtualDeviceConfigSpec" {
        operation: &'static str = "operation",
        file_operation: Option<&'static str> = "fileOperation",
        device: Value = "device",
        profile: Vec<DefinedProfile> = "profile",
    }
}

data_object! {
    /// A network card. Its type is that of the object in which it is sent.
    EthernetCard {
        key: i32 = "key",
        backing: Option<Value> = "backing",
        connectable: Option<ConnectInfo> = "connectable",
        address_type: Option<&'static str> = "addressType",
        mac_address: Option<String> = "macAddress",
    }
}

data_object! {
    /// Whether a device is connected.
    ConnectInfo {
        start_connected: bool = "startConnected",
        allow_guest_control: bool = "allowGuestControl",
        connected: bool = "connected",
    }
}

data_object! {
    /// A network card on a network of a standard switch.
    NetworkBacking as "VirtualEthernetCardNetworkBackingInfo" {
        device_name: String = "deviceName",
        network: Option<MoRef> = "network",
    }
}

data_object! {
    /// A network card on a port group of a distributed switch.
    DistributedPortBacking as "VirtualEthernetCardDistributedVirtualPortBackingInfo" {
        port: PortConnection = "port",
    }
}

data_object! {
    /// A port group of a distributed switch.
    PortConnection {
        switch_uuid: String = "switchUuid",
        portgroup_key: Option<String> = "portgroupKey",
    }
}

data_object! {
    /// A network card on a network that NSX manages.
    OpaqueBacking as "VirtualEthernetCardOpaqueNetworkBackingInfo" {
        network_id: String = "opaqueNetworkId",
        network_type: String = "opaqueNetworkType",
    }
}

data_object! {
    /// A disk.
    Disk as "VirtualDisk" {
        key: i32 = "key",
        backing: Option<FlatDiskBacking> = "backing",
        controller_key: Option<i32> = "controllerKey",
        unit_number: Option<i32> = "unitNumber",
        capacity_kib: u64 = "capacityInKB",
        capacity_bytes: Option<u64> = "capacityInBytes",
    }
}

data_object! {
    /// The file of a disk. A new disk without a file name is put into the folder of its machine.
    FlatDiskBacking as "VirtualDiskFlatVer2BackingInfo" {
        file_name: String = "fileName",
        datastore: Option<MoRef> = "datastore",
        disk_mode: String = "diskMode",
        thin: Option<bool> = "thinProvisioned",
        eager: Option<bool> = "eagerlyScrub",
    }
}

data_object! {
    /// A PCI device of the host.
    PciDevice as "VirtualPCIPassthrough" {
        key: i32 = "key",
        backing: Value = "backing",
    }
}

data_object! {
    /// Any device of the host that is one of these.
    DynamicPciBacking as "VirtualPCIPassthroughDynamicBackingInfo" {
        device_name: String = "deviceName",
        allowed: Vec<AllowedPciDevice> = "allowedDevice",
        custom_label: Option<String> = "customLabel",
    }
}

data_object! {
    /// A kind of PCI devices.
    AllowedPciDevice {
        vendor_id: i32 = "vendorId",
        device_id: i32 = "deviceId",
    }
}

data_object! {
    /// A virtual GPU.
    VgpuBacking as "VirtualPCIPassthroughVmiopBackingInfo" {
        vgpu: String = "vgpu",
    }
}

method! {
    /// Makes a machine from a template or another machine.
    CloneVm = "CloneVM_Task" {
        folder: MoRef = "folder",
        name: String = "name",
        spec: CloneSpec = "spec",
    }
}

method! {
    /// Changes a machine.
    ReconfigVm = "ReconfigVM_Task" {
        spec: ConfigSpec = "spec",
    }
}

method! {
    /// Upgrades the virtual hardware of a machine that is off.
    UpgradeVm = "UpgradeVM_Task" {
        version: String = "version",
    }
}

method! {
    /// Starts a machine.
    PowerOnVm = "PowerOnVM_Task" {
        host: Option<MoRef> = "host",
    }
}

method! {
    /// Starts machines of a datacenter, on the hosts that DRS chooses. The task only begins that: its result is a
    /// `ClusterPowerOnVmResult`, which may name further tasks.
    PowerOnMultiVm = "PowerOnMultiVM_Task" {
        machines: Vec<MoRef> = "vm",
        options: Vec<OptionValue> = "option",
    }
}

method! {
    /// Stops a machine as if the power failed.
    PowerOffVm = "PowerOffVM_Task" {}
}

method! {
    /// Starts a machine anew without asking its guest, as the reset button does.
    ResetVm = "ResetVM_Task" {}
}

method! {
    /// Asks the guest to shut down. Returns at once, and is no task.
    ShutdownGuest = "ShutdownGuest" {}
}

method! {
    /// Removes a machine with all its files.
    DestroyVm = "Destroy_Task" {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vim::encode::in_order;

    #[test]
    fn the_order_is_that_of_the_wsdl() {
        assert_eq!(CloneVm::ORDER, ["folder", "name", "spec"]);
        assert!(in_order(
            CloneSpec::ORDER,
            "location template config customization powerOn snapshot memory tpmProvisionPolicy"
        ));
        assert!(in_order(
            RelocateSpec::ORDER,
            "service folder datastore diskMoveType pool host disk transform deviceChange profile cryptoSpec"
        ));
        assert!(in_order(
            ConfigSpec::ORDER,
            "changeVersion name version createDate uuid instanceUuid npivNodeWorldWideName \
             npivPortWorldWideName npivWorldWideNameType npivDesiredNodeWwns npivDesiredPortWwns \
             npivTemporaryDisabled npivOnNonRdmDisks npivWorldWideNameOp locationId guestId \
             alternateGuestName annotation files tools flags consolePreferences powerOpInfo rebootPowerOff \
             numCPUs vcpuConfig numCoresPerSocket memoryMB memoryHotAddEnabled cpuHotAddEnabled \
             cpuHotRemoveEnabled virtualICH7MPresent virtualSMCPresent deviceChange cpuAllocation \
             memoryAllocation latencySensitivity cpuAffinity memoryAffinity networkShaper cpuFeatureMask \
             extraConfig swapPlacement bootOptions vAppConfig ftInfo repConfig vAppConfigRemoved \
             vAssertsEnabled changeTrackingEnabled firmware maxMksConnections guestAutoLockEnabled managedBy \
             memoryReservationLockedToMax nestedHVEnabled vPMCEnabled scheduledHardwareUpgradeInfo vmProfile \
             messageBusTunnelEnabled crypto migrateEncryption sgxInfo ftEncryptionMode"
        ));
        assert!(in_order(AllocationInfo::ORDER, "reservation expandableReservation limit shares"));
        assert!(in_order(
            DiskLocator::ORDER,
            "diskId datastore diskMoveType diskBackingInfo profile backing"
        ));
        assert!(in_order(PciDevice::ORDER, "key deviceInfo backing connectable slotInfo"));
        assert!(in_order(
            DynamicPciBacking::ORDER,
            "deviceName useAutoDetect allowedDevice customLabel assignedId"
        ));
        assert_eq!(AllowedPciDevice::ORDER, ["vendorId", "deviceId"]);
        assert_eq!((VgpuBacking::ORDER, DefinedProfile::ORDER), (&["vgpu"][..], &["profileId"][..]));
        assert_eq!(SharesInfo::ORDER, ["shares", "level"]);
        assert_eq!(OptionValue::ORDER, ["key", "value"]);
        assert!(in_order(DeviceConfigSpec::ORDER, "operation fileOperation device profile backing"));
        let device = "key deviceInfo backing connectable slotInfo controllerKey unitNumber numaNode";
        assert!(in_order(
            EthernetCard::ORDER,
            &format!("{device} addressType macAddress wakeOnLanEnabled resourceAllocation externalId")
        ));
        assert!(in_order(Disk::ORDER, &format!("{device} capacityInKB capacityInBytes shares")));
        assert!(in_order(
            FlatDiskBacking::ORDER,
            "fileName datastore backingObjectId diskMode split writeThrough thinProvisioned eagerlyScrub uuid"
        ));
        assert!(in_order(
            ConnectInfo::ORDER,
            "migrateConnect startConnected allowGuestControl connected status"
        ));
        assert!(in_order(NetworkBacking::ORDER, "deviceName useAutoDetect network inPassthroughMode"));
        assert!(in_order(PortConnection::ORDER, "switchUuid portgroupKey portKey connectionCookie"));
        assert_eq!(DistributedPortBacking::ORDER, ["port"]);
        assert_eq!(OpaqueBacking::ORDER, ["opaqueNetworkId", "opaqueNetworkType"]);
        assert_eq!(FlagInfo::ORDER, ["diskUuidEnabled"]);
        assert_eq!(
            (ReconfigVm::ORDER, UpgradeVm::ORDER, PowerOnVm::ORDER),
            (&["spec"][..], &["version"][..], &["host"][..])
        );
        assert_eq!(PowerOnMultiVm::ORDER, ["vm", "option"]);
        assert!(
            [PowerOffVm::ORDER, ResetVm::ORDER, ShutdownGuest::ORDER, DestroyVm::ORDER]
                .iter()
                .all(|order| order.is_empty())
        );
    }

    #[test]
    fn secrets_of_the_extra_configuration_are_not_shown() {
        let mut spec = ConfigSpec::empty();
        let value = Value::AnySecret("hunter2".to_owned());
        spec.extra_config.push(OptionValue { key: "guestinfo.userdata".to_owned(), value });
        let call = ReconfigVm { spec }.of(&MoRef::new("VirtualMachine", "vm-1"));
        let shown = format!("{call:?}");
        assert!(shown.contains("guestinfo.userdata") && !shown.contains("hunter2"), "{shown}");
    }
}

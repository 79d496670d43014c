//! What the webhooks of Cluster API Provider vSphere check, as rules (CEL) that the API server checks itself. Each version has its
//! own, so that no object is converted for them.

use cloudprovider::machines::AdmissionRule;

/// Fields of a machine's spec that may change. The timeout has another name in each version.
macro_rules! machine {
    ($timeout:literal) => {
        AdmissionRule::on_update(
            concat!(
                "oldObject.spec.all(k, k in ['providerID', 'powerOffMode', '",
                $timeout,
                "', 'network'] || (k in object.spec && object.spec[k] == oldObject.spec[k])) \
                 && object.spec.all(k, k in ['providerID', 'powerOffMode', '",
                $timeout,
                "'] || k in oldObject.spec)"
            ),
            concat!(
                "spec cannot change, except providerID, powerOffMode, ",
                $timeout,
                " and network.devices: make a new template"
            ),
        )
    };
}

/// Fields of a virtual machine's spec that may change, and those that may be set once.
macro_rules! virtual_machine {
    ($timeout:literal) => {
        AdmissionRule::on_update(
            concat!(
                "oldObject.spec.all(k, k in ['bootstrapRef', 'thumbprint', 'powerOffMode', '",
                $timeout,
                "', 'network'] || (k in ['os', 'biosUUID'] && oldObject.spec[k] == '') \
                 || (k in object.spec && object.spec[k] == oldObject.spec[k])) \
                 && object.spec.all(k, k in ['bootstrapRef', 'thumbprint', 'powerOffMode', '",
                $timeout,
                "', 'os', 'biosUUID'] || k in oldObject.spec)"
            ),
            concat!(
                "spec cannot change, except bootstrapRef, thumbprint, powerOffMode, ",
                $timeout,
                " and network.devices, and os and biosUUID once"
            ),
        )
    };
}

const NETWORK: AdmissionRule = AdmissionRule::on_update(
    "oldObject.spec.network.all(k, k == 'devices' \
     || (k in object.spec.network && object.spec.network[k] == oldObject.spec.network[k])) \
     && object.spec.network.all(k, k == 'devices' || k in oldObject.spec.network)",
    "spec.network cannot change, except devices: make a new template",
);

const CIDRS: AdmissionRule = AdmissionRule::new(
    "object.?spec.?network.?devices.orValue([]).all(device, device.?ipAddrs.orValue([]).all(address, isCIDR(address)))",
    "spec.network.devices: ipAddrs are addresses with the length of their prefix, such as 192.0.2.10/24",
);

const PCI_DEVICES: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?pciDevices.orValue([]).all(device, (has(device.deviceId) && has(device.vendorId)) \
     != (device.?vGPUProfile.orValue('') != '') && has(device.deviceId) == has(device.vendorId))",
    "spec.pciDevices: give deviceId and vendorId, or vGPUProfile",
);

const WINDOWS_NAME: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?os.orValue('') != 'Windows' || object.metadata.name.size() <= 15",
    "metadata.name: at most 15 characters for a virtual machine with Windows",
);

const TEMPLATE_ADDRESSES: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?template.?spec.?network.?devices.orValue([]).all(device, device.?ipAddrs.orValue([]).size() == 0)",
    "spec.template.spec.network.devices: ipAddrs cannot be set, since all machines would have the same ones",
);

const TEMPLATE_HARDWARE: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?template.?spec.?hardwareVersion.orValue('vmx-10').matches('^(vmx-[1-9][0-9]?)?$')",
    "spec.template.spec.hardwareVersion: a hardware version is needed, such as vmx-19",
);

const TEMPLATE_PCI_DEVICES: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?template.?spec.?pciDevices.orValue([]).all(device, (has(device.deviceId) \
     && has(device.vendorId)) != (device.?vGPUProfile.orValue('') != '') \
     && has(device.deviceId) == has(device.vendorId))",
    "spec.template.spec.pciDevices: give deviceId and vendorId, or vGPUProfile",
);

/// Rules of `VSphereFailureDomain`, in both versions.
pub(super) const OF_FAILURE_DOMAINS: [AdmissionRule; 6] = [
    AdmissionRule::on_update("object.spec == oldObject.spec", "spec cannot change"),
    AdmissionRule::on_create(
        "!has(object.spec) || object.spec.region.type != 'HostGroup'",
        "spec.region.type: a region cannot be a HostGroup",
    ),
    AdmissionRule::on_create(
        "!has(object.spec) || !has(object.spec.topology.hosts) || has(object.spec.topology.computeCluster)",
        "spec.topology.computeCluster: hosts need it",
    ),
    AdmissionRule::on_create(
        "!has(object.spec) || object.spec.zone.type != 'HostGroup' || has(object.spec.topology.hosts)",
        "spec.topology.hosts: a zone that is a HostGroup needs it",
    ),
    AdmissionRule::on_create(
        "!has(object.spec) || (object.spec.region.type != 'ComputeCluster' && object.spec.zone.type != 'ComputeCluster') \
         || has(object.spec.topology.computeCluster)",
        "spec.topology.computeCluster: a region or zone that is a ComputeCluster needs it",
    ),
    AdmissionRule::on_create(
        "object.?spec.?topology.?networks.orValue([]).size() == 0 \
         || object.?spec.?topology.?networkConfigurations.orValue([]).size() == 0",
        "spec.topology: give networks or networkConfigurations",
    ),
];

/// Of v1beta1.
pub(super) mod v1beta1 {
    use super::{
        AdmissionRule, CIDRS, NETWORK, PCI_DEVICES, TEMPLATE_ADDRESSES, TEMPLATE_HARDWARE,
        TEMPLATE_PCI_DEVICES, WINDOWS_NAME,
    };

    const TIMEOUT: AdmissionRule = AdmissionRule::new(
        "!has(object.spec) || !has(object.spec.guestSoftPowerOffTimeout) \
         || (object.spec.?powerOffMode.orValue('hard') == 'trySoft' \
         && duration(object.spec.guestSoftPowerOffTimeout) > duration('0s'))",
        "spec.guestSoftPowerOffTimeout: only with powerOffMode trySoft, and greater than 0",
    );

    const NO_PREFERRED_CIDR: AdmissionRule = AdmissionRule::on_create(
        "object.?spec.?network.?preferredAPIServerCidr.orValue('') == ''",
        "spec.network.preferredAPIServerCidr: cannot be set, since it has no effect",
    );

    /// Rules of `VSphereMachine`.
    pub(in super::super) const OF_MACHINES: [AdmissionRule; 6] =
        [machine!("guestSoftPowerOffTimeout"), NETWORK, CIDRS, TIMEOUT, NO_PREFERRED_CIDR, PCI_DEVICES];

    /// Rules of `VSphereVM`.
    pub(in super::super) const OF_VMS: [AdmissionRule; 6] = [
        virtual_machine!("guestSoftPowerOffTimeout"),
        NETWORK,
        CIDRS,
        TIMEOUT,
        NO_PREFERRED_CIDR,
        WINDOWS_NAME,
    ];

    /// Rules of `VSphereMachineTemplate`.
    pub(in super::super) const OF_MACHINE_TEMPLATES: [AdmissionRule; 6] = [
        AdmissionRule::on_create(
            "!has(object.spec) || !has(object.spec.template.spec.providerID)",
            "spec.template.spec.providerID: cannot be set, since all machines would have the same one",
        ),
        AdmissionRule::on_create(
            "object.?spec.?template.?spec.?network.?preferredAPIServerCidr.orValue('') == ''",
            "spec.template.spec.network.preferredAPIServerCidr: cannot be set, since it has no effect",
        ),
        TEMPLATE_ADDRESSES,
        TEMPLATE_HARDWARE,
        AdmissionRule::on_create(
            "!has(object.spec) || !has(object.spec.template.spec.guestSoftPowerOffTimeout) \
             || (object.spec.template.spec.?powerOffMode.orValue('hard') == 'trySoft' \
             && duration(object.spec.template.spec.guestSoftPowerOffTimeout) > duration('0s'))",
            "spec.template.spec.guestSoftPowerOffTimeout: only with powerOffMode trySoft, and greater than 0",
        ),
        TEMPLATE_PCI_DEVICES,
    ];
}

/// Of v1beta2. The schema says that a timeout is not zero, and fields that only v1beta1 has have no rules.
pub(super) mod v1beta2 {
    use super::{
        AdmissionRule, CIDRS, NETWORK, PCI_DEVICES, TEMPLATE_ADDRESSES, TEMPLATE_HARDWARE,
        TEMPLATE_PCI_DEVICES, WINDOWS_NAME,
    };

    const TIMEOUT: AdmissionRule = AdmissionRule::new(
        "!has(object.spec) || !has(object.spec.guestSoftPowerOffTimeoutSeconds) \
         || object.spec.?powerOffMode.orValue('hard') == 'trySoft'",
        "spec.guestSoftPowerOffTimeoutSeconds: only with powerOffMode trySoft",
    );

    /// Rules of `VSphereMachine`.
    pub(in super::super) const OF_MACHINES: [AdmissionRule; 5] =
        [machine!("guestSoftPowerOffTimeoutSeconds"), NETWORK, CIDRS, TIMEOUT, PCI_DEVICES];

    /// Rules of `VSphereVM`.
    pub(in super::super) const OF_VMS: [AdmissionRule; 5] =
        [virtual_machine!("guestSoftPowerOffTimeoutSeconds"), NETWORK, CIDRS, TIMEOUT, WINDOWS_NAME];

    /// Rules of `VSphereMachineTemplate`.
    pub(in super::super) const OF_MACHINE_TEMPLATES: [AdmissionRule; 4] = [
        TEMPLATE_ADDRESSES,
        TEMPLATE_HARDWARE,
        AdmissionRule::on_create(
            "!has(object.spec) || !has(object.spec.template.spec.guestSoftPowerOffTimeoutSeconds) \
             || object.spec.template.spec.?powerOffMode.orValue('hard') == 'trySoft'",
            "spec.template.spec.guestSoftPowerOffTimeoutSeconds: only with powerOffMode trySoft",
        ),
        TEMPLATE_PCI_DEVICES,
    ];
}

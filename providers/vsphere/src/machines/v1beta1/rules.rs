//! What the webhooks of Cluster API Provider vSphere check, as rules (CEL) that the API server checks itself.

use cloudprovider::machines::AdmissionRule;

/// Fields of a machine's spec that may change.
const MACHINE: AdmissionRule = AdmissionRule::on_update(
    "oldObject.spec.all(k, k in ['providerID', 'powerOffMode', 'guestSoftPowerOffTimeout', 'network'] \
     || (k in object.spec && object.spec[k] == oldObject.spec[k])) \
     && object.spec.all(k, k in ['providerID', 'powerOffMode', 'guestSoftPowerOffTimeout'] || k in oldObject.spec)",
    "spec cannot change, except providerID, powerOffMode, guestSoftPowerOffTimeout and network.devices: make a new \
     template",
);

/// Fields of a virtual machine's spec that may change, and those that may be set once.
const VM: AdmissionRule = AdmissionRule::on_update(
    "oldObject.spec.all(k, k in ['bootstrapRef', 'thumbprint', 'powerOffMode', 'guestSoftPowerOffTimeout', 'network'] \
     || (k in ['os', 'biosUUID'] && oldObject.spec[k] == '') \
     || (k in object.spec && object.spec[k] == oldObject.spec[k])) \
     && object.spec.all(k, k in ['bootstrapRef', 'thumbprint', 'powerOffMode', 'guestSoftPowerOffTimeout', 'os', \
     'biosUUID'] || k in oldObject.spec)",
    "spec cannot change, except bootstrapRef, thumbprint, powerOffMode, guestSoftPowerOffTimeout and network.devices, \
     and os and biosUUID once",
);

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

const PCI_DEVICES: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?pciDevices.orValue([]).all(device, (has(device.deviceId) && has(device.vendorId)) \
     != (device.?vGPUProfile.orValue('') != '') && has(device.deviceId) == has(device.vendorId))",
    "spec.pciDevices: give deviceId and vendorId, or vGPUProfile",
);

const WINDOWS_NAME: AdmissionRule = AdmissionRule::on_create(
    "object.?spec.?os.orValue('') != 'Windows' || object.metadata.name.size() <= 15",
    "metadata.name: at most 15 characters for a virtual machine with Windows",
);

/// Rules of `VSphereMachine`.
pub(super) const OF_MACHINES: [AdmissionRule; 6] =
    [MACHINE, NETWORK, CIDRS, TIMEOUT, NO_PREFERRED_CIDR, PCI_DEVICES];

/// Rules of `VSphereVM`.
pub(super) const OF_VMS: [AdmissionRule; 6] = [VM, NETWORK, CIDRS, TIMEOUT, NO_PREFERRED_CIDR, WINDOWS_NAME];

/// Rules of `VSphereMachineTemplate`.
pub(super) const OF_MACHINE_TEMPLATES: [AdmissionRule; 6] = [
    AdmissionRule::on_create(
        "!has(object.spec) || !has(object.spec.template.spec.providerID)",
        "spec.template.spec.providerID: cannot be set, since all machines would have the same one",
    ),
    AdmissionRule::on_create(
        "object.?spec.?template.?spec.?network.?preferredAPIServerCidr.orValue('') == ''",
        "spec.template.spec.network.preferredAPIServerCidr: cannot be set, since it has no effect",
    ),
    AdmissionRule::on_create(
        "object.?spec.?template.?spec.?network.?devices.orValue([]).all(device, device.?ipAddrs.orValue([]).size() == 0)",
        "spec.template.spec.network.devices: ipAddrs cannot be set, since all machines would have the same ones",
    ),
    AdmissionRule::on_create(
        "object.?spec.?template.?spec.?hardwareVersion.orValue('vmx-10').matches('^(vmx-[1-9][0-9]?)?$')",
        "spec.template.spec.hardwareVersion: a hardware version is needed, such as vmx-19",
    ),
    AdmissionRule::on_create(
        "!has(object.spec) || !has(object.spec.template.spec.guestSoftPowerOffTimeout) \
         || (object.spec.template.spec.?powerOffMode.orValue('hard') == 'trySoft' \
         && duration(object.spec.template.spec.guestSoftPowerOffTimeout) > duration('0s'))",
        "spec.template.spec.guestSoftPowerOffTimeout: only with powerOffMode trySoft, and greater than 0",
    ),
    AdmissionRule::on_create(
        "object.?spec.?template.?spec.?pciDevices.orValue([]).all(device, (has(device.deviceId) \
         && has(device.vendorId)) != (device.?vGPUProfile.orValue('') != '') \
         && has(device.deviceId) == has(device.vendorId))",
        "spec.template.spec.pciDevices: give deviceId and vendorId, or vGPUProfile",
    ),
];

/// Rules of `VSphereFailureDomain`.
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

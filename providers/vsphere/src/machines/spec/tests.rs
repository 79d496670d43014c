use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

fn read_and_written<T: DeserializeOwned + Serialize>(value: &Value) -> T {
    let read: T = serde_json::from_value(value.clone()).expect("a good spec");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), *value);
    read
}

#[test]
fn a_machine_is_read_and_written_as_it_is() {
    let spec: VSphereMachineSpec = read_and_written(&json!({
        "template": "ubuntu-2404",
        "cloneMode": "linkedClone",
        "server": "vcenter.example.org",
        "datacenter": "*",
        "storagePolicyName": "gold",
        "network": {
            "devices": [{
                "networkName": "VM Network", "dhcp4": true, "mtu": 9000, "skipIPAllocation": false,
                "ipAddrs": ["192.0.2.10/24"], "dhcp4Overrides": {"routeMetric": 100, "useDNS": false},
                "addressesFromPools": [{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "pool"}],
                "routes": [{"to": "198.51.100.0/24", "via": "192.0.2.1", "metric": 3}],
            }],
        },
        "numCPUs": 4, "numCoresPerSocket": 2, "memoryMiB": 8192, "diskGiB": 40, "additionalDisksGiB": [10],
        "resources": {"requests": {"cpu": "2G", "memory": 1_073_741_824}, "shares": {"cpu": 2000}},
        "dataDisks": [{"name": "etcd", "sizeGiB": 20, "provisioningMode": "EagerlyZeroed"}],
        "pciDevices": [{"deviceId": 1, "vendorId": 2}, {"vGPUProfile": "grid_v100-4q"}],
        "os": "Linux", "hardwareVersion": "vmx-19", "nestedHV": true, "cryptoKeyID": "key",
        "customVMXKeys": {"a": "b"}, "tagIDs": ["urn:vmomi:InventoryServiceTag:1:GLOBAL"],
        "failureDomain": "zone-a", "powerOffMode": "trySoft", "guestSoftPowerOffTimeoutSeconds": 60,
        "naming": {"template": "{{ .machine.name }}"},
    }));
    assert_eq!(spec.clone.clone_mode, Some(CloneMode::LinkedClone));
    assert_eq!(spec.power_off_mode, Some(PowerOffMode::TrySoft));
    assert_eq!(spec.clone.network.devices[0].routes[0].metric, Some(3));
}

#[test]
fn what_is_left_out_or_empty_is_read_too() {
    let spec: VSphereMachineSpec = serde_json::from_value(json!({
        "template": "t", "network": {"devices": []}, "cloneMode": "", "os": "Solaris", "unknown": 1,
    }))
    .expect("a good spec");
    assert_eq!(spec.clone.clone_mode, Some(CloneMode::Other(String::new())));
    assert_eq!(spec.clone.os, Some(OperatingSystem::Other("Solaris".to_owned())));
    assert_eq!(spec.power_off_mode, None);
}

#[test]
fn a_virtual_machine_is_read_and_written_as_it_is() {
    let spec: VSphereVMSpec = read_and_written(&json!({
        "template": "t", "network": {"devices": [{"networkName": "n"}]},
        "bootstrapRef": {"name": "data"}, "biosUUID": "4210", "powerOffMode": "hard",
    }));
    assert_eq!(spec.bootstrap_ref, Some(machine::BootstrapReference { name: "data".to_owned() }));
}

#[test]
fn clusters_and_what_they_refer_to_are_read_and_written_as_they_are() {
    let cluster: VSphereClusterSpec = read_and_written(&json!({
        "server": "vcenter.example.org", "thumbprint": "AA:BB",
        "identityRef": {"kind": "VSphereClusterIdentity", "name": "all"},
        "clusterModules": [{"controlPlane": true, "targetObjectName": "kcp", "moduleUUID": "m"}],
        "disableClusterModule": true,
        "failureDomainSelector": {
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
        },
    }));
    assert_eq!(
        cluster.identity_ref.map(|identity| identity.kind),
        Some(IdentityKind::VSphereClusterIdentity)
    );
    let identity: VSphereClusterIdentitySpec =
        read_and_written(&json!({"secretName": "s", "allowedNamespaces": {"selector": {}}}));
    assert_eq!(
        identity.allowed_namespaces.and_then(|allowed| allowed.selector),
        Some(LabelSelector::default())
    );
    let zone: VSphereDeploymentZoneSpec = read_and_written(&json!({
        "server": "v", "failureDomain": "fd", "controlPlane": false,
        "placementConstraint": {"resourcePool": "p", "folder": "f"},
    }));
    assert_eq!(zone.placement_constraint.and_then(|place| place.folder).as_deref(), Some("f"));
    let domain: VSphereFailureDomainSpec = read_and_written(&json!({
        "region": {"name": "r", "type": "Datacenter", "tagCategory": "k8s-region"},
        "zone": {"name": "z", "type": "HostGroup", "tagCategory": "k8s-zone"},
        "topology": {
            "datacenter": "DC0", "computeCluster": "C0", "hosts": {"vmGroupName": "vms", "hostGroupName": "hosts"},
            "networkConfigurations": [{"networkName": "n", "dhcp4": true}], "datastore": "d",
        },
    }));
    assert_eq!(domain.zone.kind, failure_domain::FailureDomainType::HostGroup);
}

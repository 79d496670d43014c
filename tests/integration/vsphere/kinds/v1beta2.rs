//! v1beta2, beside the version of this name in Cluster API Provider vSphere: its fields, their limits, and what `kubectl get` prints.
//! The facts are those of 1.16.1, written down here: the peer of the other tests is 1.14, whose only version is v1beta1.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cloudprovider_vsphere::machine_types;
use machine_controller::crds::Definitions;
use serde_json::Value;

use super::flat;
use crate::{
    documented::{BESIDE_CAPV, Differences},
    trial::Outcome,
};

const VERSION: &str = "v1beta2";

/// The documentation has the differences in a table: it names the fields, and says why.
const TITLE: &str = "### v1beta2, beside CAPV's";

/// The limits that are compared. An empty object means the same as a missing one here, so how many fields one has at least is not among
/// them.
const LIMITS: [&str; 7] =
    ["enum", "maxItems", "maxLength", "maxProperties", "maximum", "minLength", "minimum"];

const CLONE: &str = r#"
.template maxLength=2048 minLength=1 required
.cloneMode enum=["fullClone","linkedClone"]
.snapshot maxLength=1024 minLength=1
.server maxLength=1024 minLength=1
.thumbprint maxLength=1024 minLength=1
.datacenter maxLength=2048 minLength=1
.folder maxLength=2048 minLength=1
.datastore maxLength=2048 minLength=1
.storagePolicyName maxLength=1024 minLength=1
.resourcePool maxLength=2048 minLength=1
.network required
.network.devices maxItems=128 required
.network.devices[]
.network.devices[].networkName maxLength=2048 minLength=1 required
.network.devices[].deviceName maxLength=1024 minLength=1
.network.devices[].dhcp4
.network.devices[].dhcp6
.network.devices[].gateway4 maxLength=64 minLength=1
.network.devices[].gateway6 maxLength=64 minLength=1
.network.devices[].ipAddrs maxItems=128
.network.devices[].ipAddrs[] maxLength=39 minLength=1
.network.devices[].mtu
.network.devices[].macAddr maxLength=23 minLength=1
.network.devices[].nameservers maxItems=128
.network.devices[].nameservers[] maxLength=64 minLength=1
.network.devices[].routes maxItems=512
.network.devices[].routes[]
.network.devices[].routes[].to maxLength=39 minLength=1 required
.network.devices[].routes[].via maxLength=39 minLength=1 required
.network.devices[].routes[].metric minimum=0 required
.network.devices[].searchDomains maxItems=128
.network.devices[].searchDomains[] maxLength=1024 minLength=1
.network.devices[].addressesFromPools maxItems=128
.network.devices[].addressesFromPools[]
.network.devices[].addressesFromPools[].name maxLength=253 minLength=1 required
.network.devices[].addressesFromPools[].kind maxLength=63 minLength=1 required
.network.devices[].addressesFromPools[].apiGroup maxLength=253 minLength=1 required
.network.devices[].dhcp4Overrides
.network.devices[].dhcp4Overrides.hostname maxLength=1024
.network.devices[].dhcp4Overrides.routeMetric minimum=0
.network.devices[].dhcp4Overrides.sendHostname
.network.devices[].dhcp4Overrides.useDNS
.network.devices[].dhcp4Overrides.useDomains maxLength=128
.network.devices[].dhcp4Overrides.useHostname
.network.devices[].dhcp4Overrides.useMTU
.network.devices[].dhcp4Overrides.useNTP
.network.devices[].dhcp4Overrides.useRoutes maxLength=128
.network.devices[].dhcp6Overrides
.network.devices[].dhcp6Overrides.hostname maxLength=1024
.network.devices[].dhcp6Overrides.routeMetric minimum=0
.network.devices[].dhcp6Overrides.sendHostname
.network.devices[].dhcp6Overrides.useDNS
.network.devices[].dhcp6Overrides.useDomains maxLength=128
.network.devices[].dhcp6Overrides.useHostname
.network.devices[].dhcp6Overrides.useMTU
.network.devices[].dhcp6Overrides.useNTP
.network.devices[].dhcp6Overrides.useRoutes maxLength=128
.network.devices[].skipIPAllocation
.network.routes maxItems=512
.network.routes[]
.network.routes[].to maxLength=39 minLength=1 required
.network.routes[].via maxLength=39 minLength=1 required
.network.routes[].metric minimum=0 required
.numCPUs minimum=2
.numCoresPerSocket minimum=0
.resources
.resources.requests
.resources.requests.cpu
.resources.requests.memory
.resources.limits
.resources.limits.cpu
.resources.limits.memory
.resources.shares
.resources.shares.cpu minimum=1
.resources.shares.memory minimum=1
.memoryMiB minimum=1
.diskGiB minimum=1
.additionalDisksGiB maxItems=128
.additionalDisksGiB[]
.customVMXKeys
.customVMXKeys{}
.tagIDs maxItems=128
.tagIDs[] maxLength=1024 minLength=1
.pciDevices maxItems=128
.pciDevices[]
.pciDevices[].deviceId
.pciDevices[].vendorId
.pciDevices[].vGPUProfile maxLength=1024 minLength=1
.pciDevices[].customLabel maxLength=1024 minLength=1
.os maxLength=128 minLength=1
.hardwareVersion maxLength=128 minLength=1
.dataDisks maxItems=29
.dataDisks[]
.dataDisks[].name maxLength=1024 minLength=1 required
.dataDisks[].sizeGiB minimum=1 required
.dataDisks[].provisioningMode enum=["Thin","Thick","EagerlyZeroed"]
.nestedHV
.ftEncryptionMode enum=["ftEncryptionDisabled","ftEncryptionOpportunistic","ftEncryptionRequired"]
.migrateEncryption enum=["disabled","opportunistic","required"]
.cryptoKeyID maxLength=128 minLength=1
.cryptoProfile maxLength=128 minLength=1
.powerOffMode enum=["hard","soft","trySoft"]
.guestSoftPowerOffTimeoutSeconds minimum=1
"#;

const MACHINE: &str = "
.providerID maxLength=512 minLength=1
.naming
.naming.template maxLength=1024 minLength=1
";

const VM: &str = "
.bootstrapRef
.bootstrapRef.name maxLength=253 minLength=1 required
.biosUUID maxLength=1024 minLength=1
";

const CLUSTER: &str = r#"
.server maxLength=1024 minLength=1 required
.thumbprint maxLength=1024 minLength=1
.controlPlaneEndpoint
.controlPlaneEndpoint.host maxLength=512 minLength=1
.controlPlaneEndpoint.port maximum=65535 minimum=1
.identityRef
.identityRef.kind enum=["VSphereClusterIdentity","Secret"] required
.identityRef.name maxLength=253 minLength=1 required
.clusterModules maxItems=512
.clusterModules[]
.clusterModules[].controlPlane required
.clusterModules[].targetObjectName maxLength=253 minLength=1 required
.clusterModules[].moduleUUID maxLength=2048 minLength=1 required
.disableClusterModule
.failureDomainSelector
.failureDomainSelector.matchLabels
.failureDomainSelector.matchLabels{}
.failureDomainSelector.matchExpressions
.failureDomainSelector.matchExpressions[]
.failureDomainSelector.matchExpressions[].key required
.failureDomainSelector.matchExpressions[].operator required
.failureDomainSelector.matchExpressions[].values
.failureDomainSelector.matchExpressions[].values[]
"#;

const IDENTITY: &str = "
.secretName maxLength=253 minLength=1 required
.allowedNamespaces
.allowedNamespaces.selector
.allowedNamespaces.selector.matchLabels
.allowedNamespaces.selector.matchLabels{}
.allowedNamespaces.selector.matchExpressions
.allowedNamespaces.selector.matchExpressions[]
.allowedNamespaces.selector.matchExpressions[].key required
.allowedNamespaces.selector.matchExpressions[].operator required
.allowedNamespaces.selector.matchExpressions[].values
.allowedNamespaces.selector.matchExpressions[].values[]
";

const ZONE: &str = r"
.server maxLength=1024 minLength=1
.failureDomain maxLength=253 minLength=1 required
.controlPlane
.placementConstraint
.placementConstraint.resourcePool maxLength=2048 minLength=1
.placementConstraint.folder maxLength=2048 minLength=1
";

const DOMAIN: &str = r#"
.region required
.region.name maxLength=1024 minLength=1 required
.region.type enum=["Datacenter","ComputeCluster","HostGroup"] required
.region.tagCategory maxLength=1024 minLength=1 required
.zone required
.zone.name maxLength=1024 minLength=1 required
.zone.type enum=["Datacenter","ComputeCluster","HostGroup"] required
.zone.tagCategory maxLength=1024 minLength=1 required
.topology required
.topology.datacenter maxLength=2048 minLength=1 required
.topology.computeCluster maxLength=2048 minLength=1
.topology.hosts
.topology.hosts.vmGroupName maxLength=2048 minLength=1 required
.topology.hosts.hostGroupName maxLength=2048 minLength=1 required
.topology.networks maxItems=128
.topology.networks[] maxLength=2048 minLength=1
.topology.networkConfigurations maxItems=128
.topology.networkConfigurations[]
.topology.networkConfigurations[].networkName maxLength=2048 minLength=1 required
.topology.networkConfigurations[].dhcp4
.topology.networkConfigurations[].dhcp6
.topology.networkConfigurations[].nameservers maxItems=128
.topology.networkConfigurations[].nameservers[] maxLength=64 minLength=1
.topology.networkConfigurations[].searchDomains maxItems=128
.topology.networkConfigurations[].searchDomains[] maxLength=1024 minLength=1
.topology.networkConfigurations[].dhcp4Overrides
.topology.networkConfigurations[].dhcp4Overrides.hostname maxLength=1024
.topology.networkConfigurations[].dhcp4Overrides.routeMetric minimum=0
.topology.networkConfigurations[].dhcp4Overrides.sendHostname
.topology.networkConfigurations[].dhcp4Overrides.useDNS
.topology.networkConfigurations[].dhcp4Overrides.useDomains maxLength=128
.topology.networkConfigurations[].dhcp4Overrides.useHostname
.topology.networkConfigurations[].dhcp4Overrides.useMTU
.topology.networkConfigurations[].dhcp4Overrides.useNTP
.topology.networkConfigurations[].dhcp4Overrides.useRoutes maxLength=128
.topology.networkConfigurations[].dhcp6Overrides
.topology.networkConfigurations[].dhcp6Overrides.hostname maxLength=1024
.topology.networkConfigurations[].dhcp6Overrides.routeMetric minimum=0
.topology.networkConfigurations[].dhcp6Overrides.sendHostname
.topology.networkConfigurations[].dhcp6Overrides.useDNS
.topology.networkConfigurations[].dhcp6Overrides.useDomains maxLength=128
.topology.networkConfigurations[].dhcp6Overrides.useHostname
.topology.networkConfigurations[].dhcp6Overrides.useMTU
.topology.networkConfigurations[].dhcp6Overrides.useNTP
.topology.networkConfigurations[].dhcp6Overrides.useRoutes maxLength=128
.topology.networkConfigurations[].addressesFromPools maxItems=128
.topology.networkConfigurations[].addressesFromPools[]
.topology.networkConfigurations[].addressesFromPools[].name maxLength=253 minLength=1 required
.topology.networkConfigurations[].addressesFromPools[].kind maxLength=63 minLength=1 required
.topology.networkConfigurations[].addressesFromPools[].apiGroup maxLength=253 minLength=1 required
.topology.datastore maxLength=2048 minLength=1
"#;

const OF_TEMPLATE: &str = ".spec.template.spec";

/// Each kind with where its fields are.
const FIELDS: [(&str, &str, &[&str]); 8] = [
    ("VSphereMachine", ".spec", &[CLONE, MACHINE]),
    ("VSphereMachineTemplate", OF_TEMPLATE, &[CLONE, MACHINE]),
    ("VSphereVM", ".spec", &[CLONE, VM]),
    ("VSphereCluster", ".spec", &[CLUSTER]),
    ("VSphereClusterTemplate", OF_TEMPLATE, &[CLUSTER]),
    ("VSphereClusterIdentity", ".spec", &[IDENTITY]),
    ("VSphereDeploymentZone", ".spec", &[ZONE]),
    ("VSphereFailureDomain", ".spec", &[DOMAIN]),
];

const CLUSTER_NAME: &str = r".metadata.labels.cluster\.x-k8s\.io/cluster-name";
const PAUSED: &str = r#".status.conditions[?(@.type=="Paused")].status"#;
const PROVISIONED: &str = ".status.initialization.provisioned";
const CLASS: &str = r#".metadata.ownerReferences[?(@.kind=="ClusterClass")].name"#;
const AGE: &str = ".metadata.creationTimestamp";

/// A column: its name, where its value is, and whether only `-o wide` prints it.
type Column<'a> = (&'a str, &'a str, bool);

/// The columns of the kinds that have any but the age, in their order.
const COLUMNS: [(&str, &[Column<'static>]); 4] = [
    (
        "VSphereMachine",
        &[
            ("Cluster", CLUSTER_NAME, false),
            ("Provider ID", ".spec.providerID", true),
            ("Template", ".spec.template", true),
            ("Paused", PAUSED, true),
            ("Provisioned", PROVISIONED, false),
            ("Age", AGE, false),
        ],
    ),
    (
        "VSphereMachineTemplate",
        &[
            ("ClusterClass", CLASS, false),
            ("Cluster", r#".metadata.ownerReferences[?(@.kind=="Cluster")].name"#, false),
            ("Age", AGE, false),
        ],
    ),
    (
        "VSphereCluster",
        &[
            ("Cluster", CLUSTER_NAME, false),
            ("Server", ".spec.server", false),
            ("ControlPlane Endpoint", ".spec.controlPlaneEndpoint.host", false),
            ("Paused", PAUSED, true),
            ("Provisioned", PROVISIONED, false),
            ("Age", AGE, false),
        ],
    ),
    ("VSphereClusterTemplate", &[("ClusterClass", CLASS, false), ("Age", AGE, false)]),
];

/// Ours, by their kinds.
fn ours() -> Result<BTreeMap<String, Value>> {
    let made = Definitions::of("vsphere", &machine_types())?;
    let all =
        made.crds().into_iter().map(|crd| Ok((crd.spec.names.kind.clone(), serde_json::to_value(crd)?)));
    all.collect()
}

pub(super) fn fields() -> Outcome {
    let mut differences = Differences::documented(BESIDE_CAPV, TITLE)?;
    let ours = ours()?;
    for (kind, place, sections) in FIELDS {
        let crd = ours.get(kind).with_context(|| format!("no {kind}"))?;
        let all = flat::facts(crd, VERSION);
        let below = format!("{place}.");
        let our: BTreeMap<&str, String> = all
            .iter()
            .filter(|(path, _)| path.starts_with(&below))
            .map(|(path, fact)| (path.as_str(), limits(fact)))
            .collect();
        let lines = sections.iter().flat_map(|section| section.lines()).filter(|line| !line.is_empty());
        let their: BTreeMap<String, String> = lines
            .map(|line| {
                let (path, fact) = line.split_once(' ').unwrap_or((line, ""));
                (format!("{place}{path}"), fact.to_owned())
            })
            .collect();
        let paths: BTreeSet<&str> = our.keys().copied().chain(their.keys().map(String::as_str)).collect();
        for path in paths {
            differences.see(&format!("{kind} {path}"), their.get(path), our.get(path));
        }
    }
    Ok(differences.check()?)
}

/// What a fact says of limits, and whether the field must be there.
fn limits(fact: &str) -> String {
    let is_one = |word: &&str| {
        *word == "required" || word.split_once('=').is_some_and(|(keyword, _)| LIMITS.contains(&keyword))
    };
    fact.split(' ').filter(is_one).collect::<Vec<_>>().join(" ")
}

/// Theirs are there, in their order. Ours are more.
pub(super) fn columns() -> Outcome {
    let ours = ours()?;
    for (kind, their) in COLUMNS {
        let versions = ours[kind]["spec"]["versions"].as_array().context("versions")?;
        let found = versions.iter().find(|version| version["name"] == VERSION).context(VERSION)?;
        let columns = found["additionalPrinterColumns"].as_array().context("columns")?;
        let our: Vec<Column<'_>> = columns
            .iter()
            .map(|column| {
                let text = |field: &str| column[field].as_str().unwrap_or_default();
                (text("name"), text("jsonPath"), column["priority"].as_u64().unwrap_or_default() > 0)
            })
            .filter(|(name, ..)| their.iter().any(|(their, ..)| their == name))
            .collect();
        if our != their {
            return Err(anyhow::anyhow!("{kind}: theirs are {their:?}, ours {our:?}").into());
        }
    }
    Ok(())
}

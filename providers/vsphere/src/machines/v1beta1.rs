//! The kinds of Cluster API Provider vSphere in v1beta1: those of 1.14, with the fields that 1.16 added.
//!
//! Most of it is the same as in v1beta2, so the schemas are made from those of the types of v1beta2, with what is
//! different changed here.

mod edits;
mod status;

use cloudprovider::machines::{Column, ForeignVersion, Kind, KindDefinition, schema_of};
use schemars::JsonSchema;
use serde_json::{Value, json};

use self::edits::{allow_missing, at, insert, loosen, remove, rename, require, set_default};
use super::{
    kinds,
    rules::{self, v1beta1 as own_rules},
    spec::{
        MAX_VMX_VALUE, VSphereClusterIdentitySpec, VSphereClusterSpec, VSphereDeploymentZoneSpec,
        VSphereFailureDomainSpec, VSphereMachineSpec, VSphereVMSpec,
    },
};

/// Fields of a machine's spec that v1beta1 got together with v1beta2, in Cluster API Provider vSphere 1.16.
pub(super) const LATER_FIELDS: [&str; 6] =
    ["resources", "nestedHV", "ftEncryptionMode", "migrateEncryption", "cryptoKeyID", "cryptoProfile"];

/// Texts that are not empty in this version either, by their paths in specs.
const NOT_EMPTY: [&[&str]; 3] = [&["template"], &["identityRef", "name"], &["secretName"]];

/// How many new disks a machine may have.
const MAX_DATA_DISKS: u32 = 29;

/// What the API server puts into the specs of v1beta1 where a field is missing. v1beta2 has no such defaults.
pub(super) mod defaults {
    pub(in super::super) const DATACENTER: &str = "*";
    pub(in super::super) const POWER_OFF_MODE: &str = "hard";
    pub(in super::super) const OS: &str = "Linux";
    pub(in super::super) const CONTROL_PLANE: bool = true;
    pub(in super::super) const AUTO_CONFIGURE: bool = false;
}

const CLUSTER: Column = Column::new(
    "Cluster",
    r".metadata.labels.cluster\.x-k8s\.io/cluster-name",
    "The Cluster that it belongs to.",
);

/// All kinds of the group, in v1beta1. They are as those of Cluster API Provider vSphere 1.14, so that a management
/// cluster can go from one to the other and back. They have more only where 1.16 has it, and where the controller needs it:
/// `status.failureDomain` of a machine, and the status of a template.
pub fn v1beta1() -> ForeignVersion {
    let template = |spec: Value, more: Value| {
        let mut properties = json!({ "spec": spec });
        edits::extend(&mut properties, more);
        json!({"type": "object", "required": ["template"], "properties": {"template": {
            "description": "What is made.", "type": "object", "required": ["spec"], "properties": properties,
        }}})
    };
    let mut machine = machine_spec();
    set_default(&mut machine, "datacenter", json!(defaults::DATACENTER));
    let kinds = vec![
        KindDefinition::new(kinds::KINDS.machine, "A machine that Cluster API asked for.", machine)
            .with_status(status::of_machines())
            .with_rules(&own_rules::OF_MACHINES)
            .with_columns([
                CLUSTER,
                Column::new("Ready", ".status.ready", "Whether the machine exists."),
                Column::new("ProviderID", ".spec.providerID", "The provider ID of its Node."),
                Column::new(
                    "Machine",
                    r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#,
                    "The Machine that owns it.",
                )
                .wide(),
                Column::age(),
            ]),
        KindDefinition::new(
            Kind::new("VSphereMachineTemplate", "vspheremachinetemplates"),
            "A template from which Cluster API makes VSphereMachines.",
            template(machine_spec(), json!({ "metadata": metadata() })),
        )
        .template()
        .with_status(status::of_machine_templates())
        .with_rules(&own_rules::OF_MACHINE_TEMPLATES),
        KindDefinition::new(
            kinds::VM,
            "A virtual machine. The controller makes one for each VSphereMachine.",
            vm_spec(),
        )
        .with_status(status::of_vms())
        .with_rules(&own_rules::OF_VMS),
        KindDefinition::new(kinds::KINDS.cluster, "What the machines of a cluster share.", cluster_spec())
            .with_status(status::of_clusters())
            .with_columns([
                Column::new("Ready", ".status.ready", "Whether its infrastructure is there."),
                Column::new("Server", ".spec.server", "The vCenter."),
                Column::new(
                    "ControlPlaneEndpoint",
                    ".spec.controlPlaneEndpoint.host",
                    "Where its API server is reached.",
                )
                .wide(),
                Column::age(),
            ]),
        KindDefinition::new(
            Kind::new("VSphereClusterTemplate", "vsphereclustertemplates"),
            "A template from which Cluster API makes VSphereClusters.",
            template(cluster_spec(), json!({})),
        )
        .template(),
        KindDefinition::new(
            kinds::CLUSTER_IDENTITY,
            "Credentials for a vCenter, for all namespaces that it allows.",
            identity_spec(),
        )
        .cluster_scoped()
        .with_status(status::of_others()),
        KindDefinition::new(
            kinds::DEPLOYMENT_ZONE,
            "A place for machines: a failure domain for Cluster API.",
            deployment_zone_spec(),
        )
        .cluster_scoped()
        .with_status(status::of_others()),
        KindDefinition::new(
            kinds::FAILURE_DOMAIN,
            "A part of vSphere that can fail as a whole.",
            failure_domain_spec(),
        )
        .cluster_scoped()
        .with_rules(&rules::OF_FAILURE_DOMAINS),
    ];
    ForeignVersion::new("v1beta1", "v1beta1", kinds)
}

/// The schema of a spec, without the limits that came with v1beta2. Fields that came with them have them here too.
fn spec_of<T: JsonSchema>() -> Value {
    let limited = schema_of::<T>();
    let mut spec = limited.clone();
    loosen(&mut spec);
    for path in NOT_EMPTY {
        if let Some(text) = at(&mut spec, path) {
            text["minLength"] = json!(1);
        }
    }
    for field in LATER_FIELDS {
        if let Some(is) = limited["properties"].get(field) {
            insert(&mut spec, field, is.clone());
        }
    }
    spec
}

fn machine_spec() -> Value {
    let mut spec = spec_of::<VSphereMachineSpec>();
    change_clone_spec(&mut spec);
    rename(&mut spec, "naming", "namingStrategy");
    insert(
        &mut spec,
        "providerID",
        json!({
            "description": "The provider ID of the machine's Node. The controller sets it once the machine exists.",
            "type": "string",
        }),
    );
    spec
}

fn vm_spec() -> Value {
    let mut spec = spec_of::<VSphereVMSpec>();
    change_clone_spec(&mut spec);
    set_default(&mut spec, "os", json!(defaults::OS));
    let text = |about: &str| json!({"description": about, "type": "string"});
    insert(
        &mut spec,
        "bootstrapRef",
        json!({
            "description": "The Secret with the bootstrap data.",
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "apiVersion": text("`v1`."),
                "kind": text("`Secret`."),
                "name": text("The Secret's name."),
                "namespace": text("The Secret's namespace."),
                "uid": text("Not used."),
                "resourceVersion": text("Not used."),
                "fieldPath": text("Not used."),
            },
        }),
    );
    spec
}

fn change_clone_spec(spec: &mut Value) {
    if let Some(mode) = at(spec, &["cloneMode"]).and_then(Value::as_object_mut) {
        mode.remove("enum");
    }
    if let Some(disks) = at(spec, &["dataDisks"]) {
        disks["maxItems"] = json!(MAX_DATA_DISKS);
    }
    if let Some(keys) = at(spec, &["customVMXKeys"]) {
        keys["additionalProperties"]["maxLength"] = json!(MAX_VMX_VALUE);
    }
    remove(spec, "guestSoftPowerOffTimeoutSeconds");
    insert(
        spec,
        "guestSoftPowerOffTimeout",
        json!({
            "description": "With `trySoft`: how long a guest may take to shut down before it is powered off, such as `5m0s`. \
                            Default: five minutes.",
            "type": "string",
        }),
    );
    set_default(spec, "powerOffMode", json!(defaults::POWER_OFF_MODE));
    if let Some(network) = at(spec, &["network"]) {
        insert(network, "preferredAPIServerCidr", json!({"description": "Not used.", "type": "string"}));
        for routes in [&["routes", "[]"][..], &["devices", "[]", "routes", "[]"]] {
            if let Some(route) = at(network, routes) {
                require(route, "metric");
            }
        }
        allow_pools_without_group(network, &["devices", "[]"]);
    }
}

/// A pool may have no group.
fn allow_pools_without_group(owner: &mut Value, path: &[&str]) {
    if let Some(pool) = at(owner, path).and_then(|owner| at(owner, &["addressesFromPools", "[]"])) {
        allow_missing(pool, "apiGroup");
    }
}

fn cluster_spec() -> Value {
    let mut spec = spec_of::<VSphereClusterSpec>();
    insert(
        &mut spec,
        "controlPlaneEndpoint",
        json!({
            "description": "Where the API server of the cluster is reached. Set by the user.",
            "type": "object",
            "required": ["host", "port"],
            "properties": {
                "host": {"description": "A DNS name or an address.", "type": "string"},
                "port": {"description": "A TCP port.", "type": "integer", "format": "int32"},
            },
        }),
    );
    spec
}

fn identity_spec() -> Value {
    let mut spec = spec_of::<VSphereClusterIdentitySpec>();
    allow_missing(&mut spec, "secretName");
    spec
}

fn deployment_zone_spec() -> Value {
    let mut spec = spec_of::<VSphereDeploymentZoneSpec>();
    allow_missing(&mut spec, "failureDomain");
    require(&mut spec, "placementConstraint");
    set_default(&mut spec, "controlPlane", json!(defaults::CONTROL_PLANE));
    spec
}

fn failure_domain_spec() -> Value {
    let mut spec = spec_of::<VSphereFailureDomainSpec>();
    allow_pools_without_group(&mut spec, &["topology", "networkConfigurations", "[]"]);
    for part in ["region", "zone"] {
        if let Some(part) = at(&mut spec, &[part]) {
            insert(part, "autoConfigure", json!({"description": "Not used.", "type": "boolean"}));
            set_default(part, "autoConfigure", json!(defaults::AUTO_CONFIGURE));
        }
    }
    spec
}

fn metadata() -> Value {
    let texts = |of: &str| {
        json!({
            "description": format!("{of} of what is made from this template."),
            "type": "object", "additionalProperties": {"type": "string"},
        })
    };
    json!({
        "description": "Metadata of what is made from this template.",
        "type": "object",
        "properties": {"labels": texts("Labels"), "annotations": texts("Annotations")},
    })
}

#[cfg(test)]
mod tests;

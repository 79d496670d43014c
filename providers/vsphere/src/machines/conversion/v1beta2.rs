//! From v1beta1 to v1beta2.

use serde_json::{Map, Value, json};

use super::{
    duration,
    shape::{Body, FAILURE_DOMAIN_PARTS, Shape, object, objects, rename},
};

/// Gives `body` the names and forms of v1beta2.
pub(super) fn from_v1beta1(shape: Shape, body: &mut Body) {
    if let Some(spec) = shape.spec(body) {
        if shape.has_clone_spec() {
            clone_spec(spec);
        }
        if shape.has_cluster_spec() {
            endpoint(spec);
            leave_out_empty(spec, &["server", "thumbprint"]);
        }
        if shape == Shape::DeploymentZone {
            leave_out_empty(spec, &["server"]);
            if let Some(constraint) = object(spec, "placementConstraint") {
                leave_out_empty(constraint, &["resourcePool", "folder"]);
            }
        }
        if shape == Shape::VirtualMachine {
            bootstrap_reference(spec);
        }
        if shape == Shape::MachineTemplate {
            // A template is for many machines, and each has its own ID.
            spec.remove("providerID");
        }
        if shape == Shape::FailureDomain {
            for part in FAILURE_DOMAIN_PARTS {
                if let Some(part) = object(spec, part) {
                    part.remove("autoConfigure");
                }
            }
            if let Some(topology) = object(spec, "topology") {
                leave_out_empty(topology, &["computeCluster", "datastore"]);
                objects(topology, "networkConfigurations").for_each(network_device);
            }
        }
    }
    if shape.has_conditions()
        && let Some(status) = object(body, "status")
    {
        conditions(status);
        if shape == Shape::Cluster {
            failure_domains(status);
        }
    }
}

/// `status.ready` and `status.initialization.provisioned` say the same; the second wins.
pub(super) fn repeat_ready(shape: Shape, body: &mut Body) {
    let Some(status) = object(body, "status").filter(|_| shape.is_provisioned()) else { return };
    match (status.get("initialization"), status.get("ready").cloned()) {
        (None, Some(ready)) => {
            status.insert("initialization".to_owned(), json!({ "provisioned": ready }));
        }
        (Some(Value::Object(initialization)), ready) => {
            match (initialization.get("provisioned").cloned(), ready) {
                (Some(provisioned), _) => {
                    status.insert("ready".to_owned(), provisioned);
                }
                (None, Some(ready)) => {
                    if let Some(initialization) = object(status, "initialization") {
                        initialization.insert("provisioned".to_owned(), ready);
                    }
                }
                (None, None) => {}
            }
        }
        _ => {}
    }
}

/// Numbers of which zero means the same as none. v1beta2 does not allow it.
const NONE_IF_ZERO: [&str; 3] = ["numCPUs", "memoryMiB", "diskGiB"];

/// Texts about a virtual machine of which an empty one means the same as none. v1beta2 does not allow it.
const NONE_IF_EMPTY: [&str; 13] = [
    "cloneMode",
    "snapshot",
    "server",
    "thumbprint",
    "datacenter",
    "folder",
    "datastore",
    "storagePolicyName",
    "resourcePool",
    "os",
    "hardwareVersion",
    "biosUUID",
    "providerID",
];

/// Leaves those of these texts out that are empty.
fn leave_out_empty(fields: &mut Map<String, Value>, texts: &[&str]) {
    for text in texts {
        if fields.get(*text).is_some_and(|value| value == "") {
            fields.remove(*text);
        }
    }
}

fn clone_spec(spec: &mut Map<String, Value>) {
    rename(spec, "namingStrategy", "naming");
    for field in NONE_IF_ZERO {
        if spec.get(field).and_then(Value::as_i64) == Some(0) {
            spec.remove(field);
        }
    }
    leave_out_empty(spec, &NONE_IF_EMPTY);
    if let Some(naming) = object(spec, "naming") {
        leave_out_empty(naming, &["template"]);
    }
    for device in objects(spec, "pciDevices") {
        leave_out_empty(device, &["vGPUProfile", "customLabel"]);
    }
    if let Some(timeout) = spec.remove("guestSoftPowerOffTimeout")
        && let Some(seconds) = timeout.as_str().and_then(duration::seconds)
    {
        spec.insert("guestSoftPowerOffTimeoutSeconds".to_owned(), seconds.into());
    }
    if let Some(network) = object(spec, "network") {
        network.remove("preferredAPIServerCidr");
        objects(network, "devices").for_each(network_device);
    }
}

/// A network device, or what a failure domain says of one.
fn network_device(device: &mut Map<String, Value>) {
    leave_out_empty(device, &["deviceName", "gateway4", "gateway6", "macAddr"]);
    for pool in objects(device, "addressesFromPools") {
        leave_out_empty(pool, &["apiGroup"]);
    }
}

/// A Secret in the namespace of the object is all that it can be.
fn bootstrap_reference(spec: &mut Map<String, Value>) {
    if let Some(reference) = spec.remove("bootstrapRef")
        && let Some(name) = reference.get("name")
    {
        spec.insert("bootstrapRef".to_owned(), json!({ "name": name }));
    }
}

/// An empty host and a port that is zero are none. Cluster API Provider vSphere writes them where there is no endpoint.
fn endpoint(spec: &mut Map<String, Value>) {
    let Some(endpoint) = object(spec, "controlPlaneEndpoint") else { return };
    for (part, none) in [("host", json!("")), ("port", json!(0))] {
        if endpoint.get(part) == Some(&none) {
            endpoint.remove(part);
        }
    }
    if endpoint.is_empty() {
        spec.remove("controlPlaneEndpoint");
    }
}

fn conditions(status: &mut Map<String, Value>) {
    let mut old = Map::new();
    for field in ["conditions", "failureReason", "failureMessage"] {
        if let Some(value) = status.remove(field) {
            old.insert(field.to_owned(), value);
        }
    }
    if let Some(conditions) = status.remove("v1beta2").as_ref().and_then(|new| new.get("conditions")) {
        status.insert("conditions".to_owned(), conditions.clone());
    }
    if !old.is_empty() {
        status.insert("deprecated".to_owned(), json!({ "v1beta1": old }));
    }
}

/// A map by name becomes a list, sorted by name.
fn failure_domains(status: &mut Map<String, Value>) {
    let Some(domains) = object(status, "failureDomains") else { return };
    let listed = domains.iter().map(|(name, domain)| {
        let mut domain = domain.as_object().cloned().unwrap_or_default();
        domain.insert("name".to_owned(), name.as_str().into());
        (name, Value::Object(domain))
    });
    let mut listed: Vec<(&String, Value)> = listed.collect();
    listed.sort_by_key(|(name, _)| *name);
    let listed: Vec<Value> = listed.into_iter().map(|(_, domain)| domain).collect();
    status.insert("failureDomains".to_owned(), listed.into());
}

//! From v1beta1 to v1beta2.

use serde_json::{Map, Value, json};

use super::{
    duration,
    shape::{Body, FAILURE_DOMAIN_PARTS, Shape, object, rename},
};

/// Gives `body` the names and forms of v1beta2.
pub(super) fn from_v1beta1(shape: Shape, body: &mut Body) {
    if let Some(spec) = shape.spec(body) {
        if shape.has_clone_spec() {
            clone_spec(spec);
        }
        if shape.has_cluster_spec() {
            endpoint(spec);
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

fn clone_spec(spec: &mut Map<String, Value>) {
    rename(spec, "namingStrategy", "naming");
    for field in NONE_IF_ZERO {
        if spec.get(field).and_then(Value::as_i64) == Some(0) {
            spec.remove(field);
        }
    }
    if spec.get("cloneMode").is_some_and(|mode| mode == "") {
        spec.remove("cloneMode");
    }
    if let Some(timeout) = spec.remove("guestSoftPowerOffTimeout")
        && let Some(seconds) = timeout.as_str().and_then(duration::seconds)
    {
        spec.insert("guestSoftPowerOffTimeoutSeconds".to_owned(), seconds.into());
    }
    if let Some(network) = object(spec, "network") {
        network.remove("preferredAPIServerCidr");
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

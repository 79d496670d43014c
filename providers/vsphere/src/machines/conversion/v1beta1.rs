//! From v1beta2 to v1beta1.

use serde_json::{Map, Value, json};

use super::{
    duration,
    shape::{Body, FAILURE_DOMAIN_PARTS, Shape, object, objects, rename},
};
use crate::machines::v1beta1::defaults;

/// Gives `body` the names and forms of v1beta1. `namespace` is that of the object.
pub(super) fn from_v1beta2(shape: Shape, namespace: Option<&str>, body: &mut Body) {
    if let Some(spec) = shape.spec(body) {
        if shape.has_clone_spec() {
            clone_spec(spec);
        }
        if shape.has_cluster_spec() {
            cluster_spec(spec);
        }
        if shape == Shape::VirtualMachine {
            bootstrap_reference(spec, namespace);
        }
        add_defaults(shape, spec);
    }
    if shape == Shape::ClusterTemplate
        && let Some(template) = object(body, "spec").and_then(|spec| object(spec, "template"))
    {
        template.remove("metadata");
    }
    if shape.has_conditions()
        && let Some(status) = object(body, "status")
    {
        if shape.is_provisioned() {
            // `ready` says the same.
            status.remove("initialization");
        }
        conditions(shape, status);
        if shape == Shape::Cluster {
            failure_domains(status);
        }
    }
}

/// What the API server adds here when it reads the object again. It is added now, so that the conversion sees that it was
/// not there, and takes it out on the way back.
fn add_defaults(shape: Shape, spec: &mut Map<String, Value>) {
    if shape == Shape::FailureDomain {
        for part in FAILURE_DOMAIN_PARTS {
            if let Some(part) = object(spec, part) {
                part.entry("autoConfigure").or_insert(defaults::AUTO_CONFIGURE.into());
            }
        }
        return;
    }
    let mut add = |field: &str, value: Value| {
        spec.entry(field).or_insert(value);
    };
    if shape.has_clone_spec() {
        add("powerOffMode", defaults::POWER_OFF_MODE.into());
    }
    match shape {
        Shape::Machine => add("datacenter", defaults::DATACENTER.into()),
        Shape::VirtualMachine => add("os", defaults::OS.into()),
        Shape::DeploymentZone => {
            add("controlPlane", defaults::CONTROL_PLANE.into());
            // It may be missing later, and must be there here.
            add("placementConstraint", json!({}));
        }
        _ => {}
    }
}

fn clone_spec(spec: &mut Map<String, Value>) {
    rename(spec, "naming", "namingStrategy");
    if let Some(seconds) = spec.remove("guestSoftPowerOffTimeoutSeconds").as_ref().and_then(Value::as_i64)
        && let Some(timeout) = duration::text(seconds)
    {
        spec.insert("guestSoftPowerOffTimeout".to_owned(), timeout.into());
    }
    if let Some(network) = object(spec, "network") {
        routes(network);
        objects(network, "devices").for_each(routes);
    }
}

/// A route must have a metric here.
fn routes(owner: &mut Map<String, Value>) {
    for route in objects(owner, "routes") {
        route.entry("metric").or_insert_with(|| json!(0));
    }
}

/// What may be missing later must be there here.
fn cluster_spec(spec: &mut Map<String, Value>) {
    for module in objects(spec, "clusterModules") {
        module.entry("controlPlane").or_insert_with(|| json!(false));
    }
    if let Some(endpoint) = object(spec, "controlPlaneEndpoint") {
        endpoint.entry("host").or_insert_with(|| json!(""));
        endpoint.entry("port").or_insert_with(|| json!(0));
    }
}

/// The reference as Cluster API Provider vSphere writes it.
fn bootstrap_reference(spec: &mut Map<String, Value>, namespace: Option<&str>) {
    if let Some(reference) = spec.remove("bootstrapRef")
        && let Some(name) = reference.get("name")
    {
        let mut whole = json!({"apiVersion": "v1", "kind": "Secret", "name": name});
        if let Some(namespace) = namespace {
            whole["namespace"] = namespace.into();
        }
        spec.insert("bootstrapRef".to_owned(), whole);
    }
}

fn conditions(shape: Shape, status: &mut Map<String, Value>) {
    if let Some(conditions) = status.remove("conditions") {
        status.insert("v1beta2".to_owned(), json!({ "conditions": conditions }));
    }
    let mut deprecated = status.remove("deprecated");
    let old = deprecated.as_mut().and_then(|deprecated| deprecated.get_mut("v1beta1"));
    if let Some(old) = old.and_then(Value::as_object_mut) {
        for field in shape.older_fields() {
            if let Some(value) = old.remove(*field) {
                status.insert((*field).to_owned(), value);
            }
        }
    }
}

/// A list becomes a map by name.
fn failure_domains(status: &mut Map<String, Value>) {
    let Some(listed) = status.get("failureDomains").and_then(Value::as_array) else { return };
    let mut domains = Map::new();
    for domain in listed {
        let mut fields = domain.as_object().cloned().unwrap_or_default();
        if let Some(Value::String(name)) = fields.remove("name") {
            domains.insert(name, fields.into());
        }
    }
    status.insert("failureDomains".to_owned(), domains.into());
}

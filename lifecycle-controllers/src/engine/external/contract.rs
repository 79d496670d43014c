//! What is read of an object of a provider: the fields of Cluster API's contract v1beta2.

use std::borrow::Cow;

use controller_kit::cache::{CachedObject, Watched};
use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
};
use lifecycle::conditions::{Condition, Status};
use serde::Deserialize;
use serde_json::Value;

use crate::engine::object::{SyncedKeys, key_of};

/// An object of a provider. Fields that have another type than in the contract count as missing: other authors' kinds are not checked
/// by this daemon, and one odd object must not stop the watch of all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireExternal")]
pub struct External {
    /// Without `managedFields`.
    pub metadata: ObjectMeta,
    /// The keys of labels and annotations that it has from its `MachineSet`.
    pub synced: SyncedKeys,
    /// `spec.providerID`, not empty.
    pub provider_id: Option<String>,
    /// `spec.controlPlaneEndpoint`, with a host and a port.
    pub endpoint: Option<Endpoint>,
    /// `spec.version`, of control planes.
    pub version: Option<String>,
    /// `spec.replicas`, of control planes.
    pub replicas: Option<i64>,
    /// `status.initialization.provisioned`
    pub provisioned: bool,
    /// `status.initialization.dataSecretCreated`
    pub data_secret_created: bool,
    /// `status.initialization.controlPlaneInitialized`
    pub control_plane_initialized: bool,
    /// `status.dataSecretName`
    pub data_secret_name: Option<String>,
    /// `status.failureDomain`
    pub failure_domain: Option<String>,
    /// `status.failureDomains`
    pub failure_domains: Vec<FailureDomain>,
    /// `status.addresses`: type and address.
    pub addresses: Vec<(String, String)>,
    /// `status.interruptible`
    pub interruptible: bool,
    /// `status.externalManagedControlPlane`
    pub external_managed_control_plane: bool,
    /// `status.versions` or `status.version`: what a control plane has reached.
    pub reached: Vec<String>,
    /// `status.versions`: each with how many replicas have it, if it says so.
    pub versions: Vec<(String, Option<i64>)>,
    /// `status.replicas`, `status.readyReplicas`, `status.availableReplicas`, `status.upToDateReplicas`
    pub counts: [Option<i64>; 4],
    /// `status.conditions`
    pub conditions: Vec<Condition>,
}

/// Where an API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address.
    pub host: String,
    /// A port, 1 to 65535.
    pub port: u16,
}

/// A failure domain of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDomain {
    /// Its name.
    pub name: String,
    /// Whether it is one for control planes.
    pub control_plane: bool,
    /// Whatever the provider says of it.
    pub attributes: Vec<(String, String)>,
}

impl External {
    /// Its condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

impl Resource for External {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl CachedObject for External {
    fn key(&self) -> Cow<'_, str> {
        key_of(&self.metadata).into()
    }

    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn set_resource_version(&mut self, version: &str) {
        self.metadata.resource_version = Some(version.to_owned());
    }

    fn same_content(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.metadata.resource_version.clone_from(&self.metadata.resource_version);
        *self == other
    }
}

/// An object as the API server sends it.
#[derive(Clone, Debug, Deserialize)]
struct WireExternal {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl Watched<Self> for External {}

impl From<WireExternal> for External {
    fn from(wire: WireExternal) -> Self {
        let WireExternal { mut metadata, spec, status } = wire;
        let synced = SyncedKeys::take_from(&mut metadata);
        metadata.managed_fields = None;
        let initialization = &status["initialization"];
        let version = text(&status["version"]).into_iter();
        let versions =
            list(&status["versions"]).filter_map(|one| text(&one["version"]).or_else(|| text(one)));
        let mut reached: Vec<String> = versions.collect();
        if reached.is_empty() {
            reached.extend(version);
        }
        Self {
            metadata,
            synced,
            provider_id: text(&spec["providerID"]),
            endpoint: endpoint(&spec["controlPlaneEndpoint"]),
            version: text(&spec["version"]),
            replicas: spec["replicas"].as_i64(),
            provisioned: flag(&initialization["provisioned"]),
            data_secret_created: flag(&initialization["dataSecretCreated"]),
            control_plane_initialized: flag(&initialization["controlPlaneInitialized"]),
            data_secret_name: text(&status["dataSecretName"]),
            failure_domain: text(&status["failureDomain"]),
            failure_domains: list(&status["failureDomains"]).filter_map(failure_domain).collect(),
            addresses: list(&status["addresses"])
                .filter_map(|one| Some((text(&one["type"])?, text(&one["address"])?)))
                .collect(),
            interruptible: flag(&status["interruptible"]),
            external_managed_control_plane: flag(&status["externalManagedControlPlane"]),
            reached,
            versions: list(&status["versions"])
                .filter_map(|one| Some((text(&one["version"])?, one["replicas"].as_i64())))
                .collect(),
            counts: ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"]
                .map(|name| status[name].as_i64()),
            conditions: list(&status["conditions"]).filter_map(condition).collect(),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn endpoint(value: &Value) -> Option<Endpoint> {
    let port = value["port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
    Some(Endpoint { host: text(&value["host"])?, port })
}

fn failure_domain(value: &Value) -> Option<FailureDomain> {
    let attributes = value["attributes"].as_object().into_iter().flatten();
    Some(FailureDomain {
        name: text(&value["name"])?,
        control_plane: flag(&value["controlPlane"]),
        attributes: attributes.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect(),
    })
}

fn condition(value: &Value) -> Option<Condition> {
    let since = value["lastTransitionTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    Some(Condition {
        kind: text(&value["type"])?,
        status: Status::from_text(value["status"].as_str()?),
        reason: text(&value["reason"]).unwrap_or_default(),
        message: text(&value["message"]).unwrap_or_default(),
        since: since.map_or(0, jiff::Timestamp::as_second),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> External {
        serde_json::from_value(object).expect("it is read")
    }

    #[test]
    fn the_fields_of_the_contract_are_read() {
        let machine = read(json!({
            "metadata": {"name": "m", "namespace": "n", "managedFields": [{"manager": "x"}]},
            "spec": {"providerID": "libvirt:///1", "size": 7},
            "status": {
                "initialization": {"provisioned": true}, "failureDomain": "a",
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "1970-01-01T00:01:00Z"}],
            },
        }));
        assert_eq!((machine.provider_id.as_deref(), machine.provisioned), (Some("libvirt:///1"), true));
        assert_eq!(machine.addresses, [("InternalIP".to_owned(), "10.0.0.1".to_owned())]);
        assert_eq!(
            machine.condition("Ready").map(|ready| (ready.status, ready.since)),
            Some((Status::True, 60))
        );
        assert_eq!(machine.metadata.managed_fields, None);
        let cluster = read(json!({
            "metadata": {},
            "spec": {"controlPlaneEndpoint": {"host": "h", "port": 6443}},
            "status": {"failureDomains": [{"name": "a", "controlPlane": true, "attributes": {"k": "v"}}]},
        }));
        assert_eq!(cluster.endpoint, Some(Endpoint { host: "h".to_owned(), port: 6443 }));
        assert_eq!(cluster.failure_domains[0].attributes, [("k".to_owned(), "v".to_owned())]);
        let control_plane = read(json!({
            "metadata": {}, "status": {"versions": [{"version": "v1.37.1", "replicas": 2}, {"version": "v1.36.0"}]},
        }));
        let expected = [("v1.37.1".to_owned(), Some(2)), ("v1.36.0".to_owned(), None)];
        assert_eq!(control_plane.versions, expected);
        assert_eq!(control_plane.reached, ["v1.37.1", "v1.36.0"]);
    }

    #[test]
    fn an_object_with_odd_fields_is_read_without_them() {
        let odd = read(json!({
            "metadata": {"name": "m"},
            "spec": {"providerID": 7, "controlPlaneEndpoint": {"host": "h", "port": 70000}, "replicas": "3"},
            "status": {"initialization": [], "conditions": {"type": "Ready"}, "addresses": [1], "versions": [{}, "v1.2.3"]},
        }));
        let metadata = ObjectMeta { name: Some("m".to_owned()), ..ObjectMeta::default() };
        assert_eq!(odd, External { metadata, reached: vec!["v1.2.3".to_owned()], ..External::default() });
        assert_eq!(read(json!({"metadata": {}, "spec": "x", "status": null})), External::default());
    }
}

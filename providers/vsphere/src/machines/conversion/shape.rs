//! The kinds as the conversion sees them: where in an object is what.

use serde_json::{Map, Value};

/// What an object says, by the names of its fields: all but its type and metadata.
pub(super) type Body = Map<String, Value>;

/// What a failure domain is: fields of its spec.
pub(super) const FAILURE_DOMAIN_PARTS: [&str; 2] = ["region", "zone"];

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Machine,
    MachineTemplate,
    VirtualMachine,
    Cluster,
    ClusterTemplate,
    ClusterIdentity,
    DeploymentZone,
    FailureDomain,
}

impl Shape {
    pub(super) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "VSphereMachine" => Self::Machine,
            "VSphereMachineTemplate" => Self::MachineTemplate,
            "VSphereVM" => Self::VirtualMachine,
            "VSphereCluster" => Self::Cluster,
            "VSphereClusterTemplate" => Self::ClusterTemplate,
            "VSphereClusterIdentity" => Self::ClusterIdentity,
            "VSphereDeploymentZone" => Self::DeploymentZone,
            "VSphereFailureDomain" => Self::FailureDomain,
            _ => return None,
        })
    }

    /// Whether the spec says what a virtual machine is cloned from.
    pub(super) fn has_clone_spec(self) -> bool {
        matches!(self, Self::Machine | Self::MachineTemplate | Self::VirtualMachine)
    }

    /// Whether the spec is that of a cluster.
    pub(super) fn has_cluster_spec(self) -> bool {
        matches!(self, Self::Cluster | Self::ClusterTemplate)
    }

    /// Whether Cluster API reads from the status that the first creation is done.
    pub(super) fn is_provisioned(self) -> bool {
        matches!(self, Self::Machine | Self::Cluster)
    }

    /// Whether the status has conditions.
    pub(super) fn has_conditions(self) -> bool {
        !matches!(self, Self::MachineTemplate | Self::ClusterTemplate | Self::FailureDomain)
    }

    /// What v1beta1 has in the status, and v1beta2 below `deprecated`.
    pub(super) fn older_fields(self) -> &'static [&'static str] {
        match self {
            Self::Machine | Self::VirtualMachine => &["conditions", "failureReason", "failureMessage"],
            _ => &["conditions"],
        }
    }

    /// The spec, which is inside a template for templates.
    pub(super) fn spec(self, body: &mut Body) -> Option<&mut Map<String, Value>> {
        let spec = body.get_mut("spec")?;
        match self {
            Self::MachineTemplate | Self::ClusterTemplate => spec.get_mut("template")?.get_mut("spec")?,
            _ => spec,
        }
        .as_object_mut()
    }
}

/// Gives a field another name.
pub(super) fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

/// The objects of a list.
pub(super) fn objects<'a>(
    fields: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// A field that is an object.
pub(super) fn object<'a>(
    fields: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

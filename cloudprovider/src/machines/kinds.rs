//! The kinds of objects that a provider's machines and clusters have in the API.

use serde_json::Value;

/// The group of every kind, unless a [`Kinds`] has another.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// The kinds of a provider. From each follow its list, its template (`LibvirtMachineTemplate`,
/// `libvirtmachinetemplates`) and their CRDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kinds {
    /// The API group.
    pub group: &'static str,
    /// The version whose objects the steps get, such as `v1alpha1`. It is the stored one. Others are converted
    /// before they come here.
    pub version: &'static str,
    /// The machine.
    pub machine: Kind,
    /// The cluster.
    pub cluster: Kind,
}

/// A kind of object. Cluster API finds its CRD as `<plural>.<group>`, so the plural is the regular one in lower
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kind {
    /// In CamelCase, such as `LibvirtMachine`.
    pub kind: &'static str,
    /// In lower case, such as `libvirtmachines`.
    pub plural: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
}

impl Kinds {
    /// Kinds in the group [`GROUP`].
    pub const fn new(version: &'static str, machine: Kind, cluster: Kind) -> Self {
        Self { group: GROUP, version, machine, cluster }
    }

    /// Sets the group.
    #[must_use]
    pub const fn in_group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }
}

impl Kind {
    /// A kind without short names.
    pub const fn new(kind: &'static str, plural: &'static str) -> Self {
        Self { kind, plural, short_names: &[] }
    }

    /// Sets the short names.
    #[must_use]
    pub const fn with_short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }
}

/// The JSON schemas of a provider's types, in the dialect of `OpenAPI` 3 and without references. What the
/// controller owns is not in them: `providerID`, `controlPlaneEndpoint`, `conditions` and the like.
///
/// Rules for the API server (CEL) come with the type:
/// `#[schemars(extend("x-kubernetes-validations" = [{"rule": "self > 0"}]))]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Schemas {
    /// Of the machine's spec.
    pub machine_spec: Value,
    /// Of the provider's part of the machine's status.
    pub machine_status: Value,
    /// Of the cluster's spec.
    pub cluster_spec: Value,
    /// Of the provider's part of the cluster's status.
    pub cluster_status: Value,
}

//! The kinds of objects that a provider's machines and clusters have in the API.

use serde_json::Value;

use super::V1Beta1Condition;

/// The group of every kind, unless a [`Kinds`] has another.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// The kinds of a provider. From each follow its list, its template (`LibvirtMachineTemplate`,
/// `libvirtmachinetemplates`) and their CRDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kinds {
    /// The API group.
    pub group: &'static str,
    /// The version whose objects the steps get, such as `v1alpha1`. It is the stored one, unless
    /// [`MachineTypes::older`](super::MachineTypes::older) says that an older one is.
    pub version: &'static str,
    /// The machine.
    pub machine: Kind,
    /// The cluster.
    pub cluster: Kind,
    /// The kinds of other objects that steps read or want to have, or whose status the provider says.
    pub auxiliary: &'static [AuxiliaryKind],
    /// Whether another program makes machines of these kinds too, from which this one can
    /// [take them over](super::Machines::identify_machine).
    pub is_shared: bool,
    /// Whether objects name Secrets that the provider [follows](crate::StartContext::secrets).
    pub has_secrets: bool,
    /// Whether the provider can [reset](super::Machines::reset_machine) a machine.
    pub can_reset: bool,
}

/// A kind of object. Cluster API finds its CRD as `<plural>.<group>`, so the plural is the regular one in
/// lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kind {
    /// In CamelCase, such as `LibvirtMachine`.
    pub kind: &'static str,
    /// In lower case, such as `libvirtmachines`.
    pub plural: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
    /// Conditions of its objects that readers of the contract v1beta1 look for.
    pub v1beta1_conditions: &'static [V1Beta1Condition],
    /// A condition that says what `Ready` says, for programs that look there. The controller sets it with
    /// each `Ready` of its own, such as a wait for bootstrap data. A step sets it by itself.
    pub ready_twin: Option<&'static str>,
}

impl Kinds {
    /// Kinds in the group [`GROUP`].
    pub const fn new(version: &'static str, machine: Kind, cluster: Kind) -> Self {
        Self {
            group: GROUP,
            version,
            machine,
            cluster,
            auxiliary: &[],
            is_shared: false,
            has_secrets: false,
            can_reset: false,
        }
    }

    /// Sets the group.
    #[must_use]
    pub const fn in_group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// Another program makes machines of these kinds too.
    #[must_use]
    pub const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Sets the kinds of other objects that steps read or want to have, or whose status the provider says.
    #[must_use]
    pub const fn with_auxiliary(mut self, kinds: &'static [AuxiliaryKind]) -> Self {
        self.auxiliary = kinds;
        self
    }

    /// The provider can [reset](super::Machines::reset_machine) machines.
    #[must_use]
    pub const fn with_reset(mut self) -> Self {
        self.can_reset = true;
        self
    }

    /// Objects name Secrets in their namespaces, or in that of the daemon, which the provider follows.
    #[must_use]
    pub const fn with_secrets(mut self) -> Self {
        self.has_secrets = true;
        self
    }
}

impl Kind {
    /// A kind without short names.
    pub const fn new(kind: &'static str, plural: &'static str) -> Self {
        Self { kind, plural, short_names: &[], v1beta1_conditions: &[], ready_twin: None }
    }

    /// Sets the short names.
    #[must_use]
    pub const fn with_short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// Sets the conditions that readers of the contract v1beta1 look for.
    #[must_use]
    pub const fn with_v1beta1_conditions(mut self, conditions: &'static [V1Beta1Condition]) -> Self {
        self.v1beta1_conditions = conditions;
        self
    }

    /// Sets the condition that says what `Ready` says.
    #[must_use]
    pub const fn with_ready_twin(mut self, condition: &'static str) -> Self {
        self.ready_twin = Some(condition);
        self
    }
}

/// A kind of objects beside machines and clusters, which steps read or want to have, or whose status the
/// provider says. A provider names them in [`Kinds::auxiliary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AuxiliaryKind {
    /// The API group.
    pub group: &'static str,
    /// The version in which the objects are read and written.
    pub version: &'static str,
    /// In CamelCase, such as `VSphereVM`.
    pub kind: &'static str,
    /// In lower case, such as `vspherevms`.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// Whether steps [want](super::Record::want) objects of it. Otherwise they only read it.
    pub is_made: bool,
    /// Whether the provider [says](super::Machines::observe) what the status of its objects is.
    pub is_status_only: bool,
    /// Finalizers that another program may have left on owned or status-only objects. They are removed when
    /// such an object goes.
    pub left_finalizers: &'static [&'static str],
    /// A finalizer of the objects that steps want. They stay until nothing is left of the step's object,
    /// whoever deletes them.
    pub held_by: Option<&'static str>,
    /// Status-only objects are failure domains with their names, and have this finalizer. One that is deleted
    /// stays while Machines are in it. Another program may have the same finalizer for the same.
    pub failure_domain: Option<&'static str>,
    /// Conditions of its objects that readers of the contract v1beta1 look for. They are derived for owned
    /// and status-only objects.
    pub v1beta1_conditions: &'static [V1Beta1Condition],
}

impl AuxiliaryKind {
    /// A kind in namespaces that steps read.
    pub const fn new(group: &'static str, version: &'static str, kind: Kind) -> Self {
        Self {
            group,
            version,
            kind: kind.kind,
            plural: kind.plural,
            is_namespaced: true,
            is_made: false,
            is_status_only: false,
            left_finalizers: &[],
            held_by: None,
            failure_domain: None,
            v1beta1_conditions: kind.v1beta1_conditions,
        }
    }

    /// Its objects are in no namespace.
    #[must_use]
    pub const fn cluster_scoped(mut self) -> Self {
        self.is_namespaced = false;
        self
    }

    /// Steps want objects of it.
    #[must_use]
    pub const fn made(mut self) -> Self {
        self.is_made = true;
        self
    }

    /// The provider says what the status of its objects is. Users make the objects.
    #[must_use]
    pub const fn status_only(mut self) -> Self {
        self.is_status_only = true;
        self
    }

    /// Sets the finalizers that another program may have left.
    #[must_use]
    pub const fn with_left_finalizers(mut self, finalizers: &'static [&'static str]) -> Self {
        self.left_finalizers = finalizers;
        self
    }

    /// Sets the finalizer that wanted objects have.
    #[must_use]
    pub const fn held_by(mut self, finalizer: &'static str) -> Self {
        self.held_by = Some(finalizer);
        self
    }

    /// The objects, which are [status-only](Self::status_only), are failure domains with their names, and
    /// this finalizer keeps them while Machines are in them.
    #[must_use]
    pub const fn failure_domains(mut self, finalizer: &'static str) -> Self {
        self.failure_domain = Some(finalizer);
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

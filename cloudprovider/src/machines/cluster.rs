//! What a step of a cluster gets and answers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Mark, Objects, Wait};
use crate::ControlPlaneEndpoint;

/// What a step gets of its cluster: `C` is the cluster's spec.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterRequest<C> {
    /// Whose what the step creates is. Fixed before the first step.
    pub mark: Mark,
    /// The UID that the object has now. Unlike that of the mark it changes when the object moves, and nobody
    /// but the API server chooses it. Empty if it is not known: then nothing proves that the object is the
    /// one that first had the UID of the mark.
    pub object_uid: String,
    /// The spec, without `controlPlaneEndpoint`.
    pub spec: C,
    /// `spec.controlPlaneEndpoint`: the user's, or what an earlier step reported.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// Reads objects of the [auxiliary kinds](super::Kinds::auxiliary).
    pub objects: Objects,
}

impl<C> ClusterRequest<C> {
    /// A request for a cluster without an endpoint, whose object has a UID that is not known.
    pub fn new(mark: Mark, spec: C) -> Self {
        Self {
            mark,
            object_uid: String::new(),
            spec,
            control_plane_endpoint: None,
            objects: Objects::default(),
        }
    }

    /// Sets the UID that the object has now. Without it, nothing is proven by the UID.
    #[must_use]
    pub fn with_object_uid(mut self, uid: impl Into<String>) -> Self {
        self.object_uid = uid.into();
        self
    }

    /// Sets the endpoint.
    #[must_use]
    pub fn with_control_plane_endpoint(mut self, endpoint: impl Into<Option<ControlPlaneEndpoint>>) -> Self {
        self.control_plane_endpoint = endpoint.into();
        self
    }

    /// Sets what reads auxiliary objects.
    #[must_use]
    pub fn with_objects(mut self, objects: Objects) -> Self {
        self.objects = objects;
        self
    }
}

/// What a step towards existing saw of its cluster. Without a wait the cluster's infrastructure is
/// provisioned, and machines may be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterReport {
    /// Where the API server will be reached, if the provider makes the endpoint. It never changes once it was
    /// reported. `None` leaves it to the user.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// Where machines can be, sorted by name. Empty if the cloud does not tell places apart.
    pub failure_domains: Vec<FailureDomain>,
    /// Fields of the spec that are the provider's to set, by their names, in the version that steps work on.
    /// The controller writes those that differ from what the object has. Others stay. The next step, of this
    /// object and of its machines, sees them.
    pub spec: BTreeMap<String, Value>,
    /// What it waits for. `None` if nothing is left to do.
    pub wait: Option<Wait>,
}

impl ClusterReport {
    /// A cluster with nothing left to do.
    pub fn done() -> Self {
        Self::default()
    }

    /// Sets the endpoint.
    #[must_use]
    pub fn with_control_plane_endpoint(mut self, endpoint: impl Into<Option<ControlPlaneEndpoint>>) -> Self {
        self.control_plane_endpoint = endpoint.into();
        self
    }

    /// Sets the failure domains.
    #[must_use]
    pub fn with_failure_domains(mut self, domains: impl IntoIterator<Item = FailureDomain>) -> Self {
        self.failure_domains = domains.into_iter().collect();
        self
    }

    /// Sets a field of the spec.
    #[must_use]
    pub fn with_spec_field(mut self, name: impl Into<String>, value: Value) -> Self {
        self.spec.insert(name.into(), value);
        self
    }

    /// Sets what it waits for.
    #[must_use]
    pub fn with_wait(mut self, wait: impl Into<Option<Wait>>) -> Self {
        self.wait = wait.into();
        self
    }
}

/// A place that fails apart from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDomain {
    /// Its name, as in `spec.failureDomain` of a Machine.
    pub name: String,
    /// Whether machines of the control plane may be there.
    pub control_plane: bool,
    /// Anything else about it, for people and tools.
    pub attributes: BTreeMap<String, String>,
}

impl FailureDomain {
    /// A place for all machines.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), control_plane: true, attributes: BTreeMap::new() }
    }
}

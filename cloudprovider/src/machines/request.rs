//! What a step of a machine gets.

use super::{BootstrapData, Mark, Objects};
use crate::ControlPlaneEndpoint;

/// What a step gets of its machine: `S` is the machine's spec and `C` that of its cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MachineRequest<S, C> {
    /// Whose the machine is. Fixed before the first step, and the same in every step.
    pub mark: Mark,
    /// The UID that the object has now. Unlike that of the mark it changes when the object moves, and nobody
    /// but the API server chooses it. What the object owns names it. Empty if it is not known: then nothing
    /// proves that the object is the one that first had the UID of the mark.
    pub object_uid: String,
    /// The name of its Machine, Cluster API's own object. Mostly it is the [name](Mark::name) of the mark
    /// too; an object that somebody made by hand may have another one. It does not change.
    pub machine_name: String,
    /// The spec, without `providerID`.
    pub spec: S,
    /// The cluster that the machine belongs to.
    pub cluster: ClusterContext<C>,
    /// `spec.providerID`: what an earlier step reported. With it the machine existed, so one that is absent
    /// now is [`Lost`](super::MachineReport::Lost).
    pub provider_id: Option<String>,
    /// Whether a step has reported the machine with nothing left to do. False again after a move to another
    /// management cluster.
    pub is_provisioned: bool,
    /// Whether the machine has become a Node, so that its bootstrap data have served. A provider that removes
    /// them from the cloud does so then.
    pub has_node: bool,
    /// The failure domain that the machine must be in. `None` leaves the choice to the provider.
    pub failure_domain: Option<String>,
    /// Whether it is a machine of the control plane.
    pub is_control_plane: bool,
    /// The name of what makes it and others like it: of its control plane, or of its `MachineDeployment`.
    /// `None` of a machine that belongs to neither.
    pub group: Option<String>,
    /// `None` until they are there, after a wait that [does not need
    /// them](super::Wait::needs_bootstrap_data), once the machine is provisioned, and in a step towards gone.
    /// A machine must be neither made nor started without them.
    pub bootstrap: Option<BootstrapData>,
    /// Reads objects of the [auxiliary kinds](super::Kinds::auxiliary).
    pub objects: Objects,
}

/// What a step towards gone gets of its machine. Somebody may have removed the cluster's object by force, so
/// its spec is `None` if there is no such object. The machine has to go all the same: what the deletion needs
/// is in its own spec and status, or is found by the mark.
pub type MachineDeletionRequest<S, C> = MachineRequest<S, Option<C>>;

/// What a step of a machine gets of its cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterContext<C> {
    /// The spec of the infrastructure's cluster, without `controlPlaneEndpoint`.
    pub spec: C,
    /// Where the API server of the cluster is reached, if that is known.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// Whether steps towards existing are made of this cluster. False if another program manages its object
    /// (`cluster.x-k8s.io/managed-by`), `--watch-filter` leaves it out, or it is being deleted. Then a
    /// machine must not wait for what only such a step does.
    pub is_reconciled: bool,
}

impl<C> ClusterContext<C> {
    /// A cluster without an endpoint, of which steps are made.
    pub fn new(spec: C) -> Self {
        Self { spec, control_plane_endpoint: None, is_reconciled: true }
    }

    /// Sets whether steps of it are made.
    #[must_use]
    pub fn reconciled(mut self, is_reconciled: bool) -> Self {
        self.is_reconciled = is_reconciled;
        self
    }

    /// Sets the endpoint.
    #[must_use]
    pub fn with_control_plane_endpoint(mut self, endpoint: impl Into<Option<ControlPlaneEndpoint>>) -> Self {
        self.control_plane_endpoint = endpoint.into();
        self
    }
}

impl<S, C> MachineRequest<S, C> {
    /// A request for a new worker, whose object has a UID that is not known.
    pub fn new(mark: Mark, spec: S, cluster: ClusterContext<C>) -> Self {
        Self {
            object_uid: String::new(),
            machine_name: mark.name().to_owned(),
            mark,
            spec,
            cluster,
            provider_id: None,
            is_provisioned: false,
            has_node: false,
            failure_domain: None,
            is_control_plane: false,
            group: None,
            bootstrap: None,
            objects: Objects::default(),
        }
    }

    /// Sets the UID that the object has now. Without it, nothing is proven by the UID.
    #[must_use]
    pub fn with_object_uid(mut self, uid: impl Into<String>) -> Self {
        self.object_uid = uid.into();
        self
    }

    /// Sets the name of the Machine. Without it, it is that of the mark.
    #[must_use]
    pub fn with_machine_name(mut self, name: impl Into<String>) -> Self {
        self.machine_name = name.into();
        self
    }

    /// Sets the provider ID that an earlier step reported.
    #[must_use]
    pub fn with_provider_id(mut self, id: impl Into<Option<String>>) -> Self {
        self.provider_id = id.into();
        self
    }

    /// Sets whether the machine was provisioned.
    #[must_use]
    pub fn provisioned(mut self, is_provisioned: bool) -> Self {
        self.is_provisioned = is_provisioned;
        self
    }

    /// Sets whether the machine has become a Node.
    #[must_use]
    pub fn with_node(mut self, has_node: bool) -> Self {
        self.has_node = has_node;
        self
    }

    /// Sets the failure domain that the machine must be in.
    #[must_use]
    pub fn with_failure_domain(mut self, name: impl Into<Option<String>>) -> Self {
        self.failure_domain = name.into();
        self
    }

    /// Sets whether it is a machine of the control plane.
    #[must_use]
    pub fn control_plane(mut self, is_control_plane: bool) -> Self {
        self.is_control_plane = is_control_plane;
        self
    }

    /// Sets the name of its control plane, or of its `MachineDeployment`.
    #[must_use]
    pub fn with_group(mut self, name: impl Into<Option<String>>) -> Self {
        self.group = name.into();
        self
    }

    /// Sets what reads auxiliary objects.
    #[must_use]
    pub fn with_objects(mut self, objects: Objects) -> Self {
        self.objects = objects;
        self
    }

    /// Sets the bootstrap data.
    #[must_use]
    pub fn with_bootstrap(mut self, data: impl Into<Option<BootstrapData>>) -> Self {
        self.bootstrap = data.into();
        self
    }
}

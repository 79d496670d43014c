//! What a provider implements, and what the daemon holds.

use std::fmt;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Capacity, ClusterReport, ClusterRequest, Deletion, Kinds, MachineDeletionRequest, MachineReport,
    MachineRequest, ObjectLocks, ObserveRequest, Record, Reset, Schemas, StatusReport,
};
use crate::{Error, ErrorKind, InstanceStream, Result};

/// A type for a spec. It goes on reading what earlier versions of it accepted: an object whose spec cannot be
/// read can neither be made nor deleted. Every type with serde's `Deserialize` and schemars' `JsonSchema` is
/// one.
pub trait Spec: DeserializeOwned + JsonSchema + Send + Sync + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> Spec for T {}

/// A type for the provider's part of a status. Its fields stand beside those of the contract, so they have
/// other names, and it ignores fields that it does not know. `()` if there is nothing to remember.
pub trait Status: Serialize + DeserializeOwned + JsonSchema + Default + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + JsonSchema + Default + Send + Sync + 'static> Status for T {}

/// Machines of a cloud, as a provider author writes them: see [the module](super).
#[async_trait]
pub trait Machines: fmt::Debug + Send + Sync {
    /// What a user says about a machine. Without `providerID`, which is the controller's.
    type MachineSpec: Spec;
    /// What steps of a machine remember.
    type MachineStatus: Status;
    /// What a user says about a cluster. Without `controlPlaneEndpoint`, which is the controller's.
    type ClusterSpec: Spec;
    /// What steps of a cluster remember.
    type ClusterStatus: Status;

    /// The kinds of the objects.
    const KINDS: Kinds;

    /// The locks of its machines and clusters: a field of the provider, [`ObjectLocks::default()`] at first.
    /// The daemon takes the lock of an object for each step, so implementations take none. A task that a step
    /// spawns takes the lock along: see [`ObjectLock`](super::ObjectLock).
    fn object_locks(&self) -> &ObjectLocks;

    /// One step of a machine towards existing.
    ///
    /// - A machine with the request's mark is not made again, whatever the status says.
    /// - One that does not exist is begun only if the cloud confirmed that, if the request has no provider
    ///   ID, and if it has bootstrap data.
    /// - Something foreign in the way is left alone ([`Mark::conflict`](super::Mark::conflict)).
    /// - A machine that a person powered off is [`Present`](MachineReport::Present). Whether the step starts
    ///   it again is the provider's choice.
    async fn ensure_machine(
        &self,
        request: &MachineRequest<Self::MachineSpec, Self::ClusterSpec>,
        record: &mut Record<Self::MachineStatus>,
    ) -> Result<MachineReport>;

    /// One step of a machine towards gone, with all that was made for it. It creates nothing, and touches
    /// nothing without the request's mark. The cluster's object may be gone already.
    async fn delete_machine(
        &self,
        request: &MachineDeletionRequest<Self::MachineSpec, Self::ClusterSpec>,
        record: &mut Record<Self::MachineStatus>,
    ) -> Result<Deletion>;

    /// Finds out which machine in the cloud belongs to an object that another program has worked on. Only
    /// [shared](Kinds::shared) kinds have such objects: those with the finalizer or a provider ID, and
    /// without the annotation with an identity. The controller asks before the first step, whether the object
    /// is being deleted or not, and fixes the answer in the annotation. So all steps, those of later
    /// processes too, find the same machine.
    ///
    /// The request's mark has the object's own UID. Nothing is changed in the cloud.
    ///
    /// The answer is the [`Mark::uid`](super::Mark::uid) of the object: that of the mark if nothing was made
    /// for it. `None` says that it is not known. Then nothing is done about an object that has the finalizer,
    /// which is not released.
    ///
    /// # Errors
    /// Why it is not known, or what contradicts itself. A condition says it, and the controller asks again
    /// later.
    async fn identify_machine(
        &self,
        _request: &MachineDeletionRequest<Self::MachineSpec, Self::ClusterSpec>,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Resets a machine: its guest starts anew without being asked, as after a press of the reset button. One that is off is
    /// powered on. It is called for kinds with [`Kinds::can_reset`] alone. `record` is what the last step has left.
    ///
    /// - Only a machine with the request's mark is touched, and nothing else of it is changed.
    /// - The cloud is asked once. A request that may have reached it is not repeated.
    /// - It does not wait for the guest.
    ///
    /// # Errors
    /// What keeps the provider from it. Unless [`Reset::may_have_happened`] says otherwise, the error states that nothing
    /// was reset, and the controller may call again.
    async fn reset_machine(
        &self,
        _request: &MachineRequest<Self::MachineSpec, Self::ClusterSpec>,
        _record: &Record<Self::MachineStatus>,
    ) -> Result<Reset> {
        Err(Error::unsupported("machines of this cloud cannot be reset"))
    }

    /// One step of a cluster towards existing: what its machines share, its endpoint and its failure domains.
    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Self::ClusterSpec>,
        record: &mut Record<Self::ClusterStatus>,
    ) -> Result<ClusterReport>;

    /// One step of a cluster towards gone. The controller calls it once there are no machines left.
    async fn delete_cluster(
        &self,
        request: &ClusterRequest<Self::ClusterSpec>,
        record: &mut Record<Self::ClusterStatus>,
    ) -> Result<Deletion>;

    /// What a machine with this spec will have. It may ask the cloud, for example for the size of an image.
    async fn capacity(&self, spec: &Self::MachineSpec) -> Result<Capacity>;

    /// What the status of an object is to say whose kind is [status-only](super::AuxiliaryKind::status_only).
    /// It changes nothing in the cloud. What is wrong with the object is said in its conditions. An error is
    /// for what cannot be said now: nothing is written then, and the next look comes as after a step that
    /// failed.
    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        let words = format!("nothing is said about objects of the kind {}", request.kind.kind);
        Err(Error::new(ErrorKind::Internal, words))
    }

    /// There is no object any more with this identity: the [`Mark::uid`](super::Mark::uid) of a machine or a
    /// cluster, or the UID of an object whose kind is [status-only](super::AuxiliaryKind::status_only).
    /// Somebody may have removed its finalizer by force, so there need not have been a step towards gone. It
    /// is also called after the last one, and for objects that the provider does not know.
    ///
    /// What this process keeps for the object ends, such as a session that is opened with its credentials.
    /// Nothing is changed in the cloud. It does not block.
    fn forget(&self, _uid: &str) {}

    /// A stream of changes of machines, where there is none of [instances](crate::Instances::changes): a
    /// provider may be configured for machines alone. With neither, the controller looks when a step's wait
    /// ends, and now and then.
    fn changes(&self) -> Option<InstanceStream> {
        None
    }
}

/// [`Machines`] with JSON in the place of the types, as the daemon holds providers of any kind. Not for
/// provider authors: every [`Machines`] implements it.
///
/// Specs are whole, as in the API: `providerID` and `controlPlaneEndpoint` are taken out before the
/// provider's type is read. A spec that cannot be read is an error of kind
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) that names the field. A status that cannot be read counts
/// as empty. A step of an object waits for the end of the one before: see [`ObjectLock`](super::ObjectLock).
#[async_trait]
pub trait DynMachines: fmt::Debug + Send + Sync {
    /// See [`Machines::KINDS`].
    fn kinds(&self) -> Kinds;

    /// The schemas of the four types.
    fn schemas(&self) -> Schemas;

    /// See [`Machines::ensure_machine`].
    async fn ensure_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<MachineReport>;

    /// See [`Machines::delete_machine`]. A spec of the cluster that is null is `None`.
    async fn delete_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion>;

    /// See [`Machines::identify_machine`]. A spec of the cluster that is null is `None`.
    async fn identify_machine(&self, request: &MachineRequest<Value, Value>) -> Result<Option<String>>;

    /// See [`Machines::reset_machine`].
    async fn reset_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &Record<Value>,
    ) -> Result<Reset>;

    /// See [`Machines::ensure_cluster`].
    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<ClusterReport>;

    /// See [`Machines::delete_cluster`].
    async fn delete_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion>;

    /// See [`Machines::capacity`].
    async fn capacity(&self, spec: &Value) -> Result<Capacity>;

    /// See [`Machines::observe`].
    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport>;

    /// See [`Machines::forget`].
    fn forget(&self, uid: &str);

    /// See [`Machines::changes`].
    fn changes(&self) -> Option<InstanceStream>;
}

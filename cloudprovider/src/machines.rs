//! Machines: what a provider writes so that Cluster API's objects become machines of its cloud.
//!
//! A provider has a spec type for a machine and one for a cluster, and four idempotent steps: a machine or a
//! cluster goes one step further *towards existing*, or one step further *towards gone*. One generic
//! controller does everything that is the same for every cloud: owner, pause, finalizer, waiting for the
//! cluster and its bootstrap data, status, conditions, events, deletion. This module knows no Kubernetes
//! client.
//!
//! ```text
//!   objects of the API  ──>  generic controller  ──  MachineRequest, Record  ──>  a step of Machines  ──>  cloud
//!   (LibvirtMachine,    <──  (one for all kinds) <──  MachineReport, Record  ──                       <──  inventory
//!    VSphereVM, ...)                             <──  InstanceRef::machine, the stream of changes   ──────┘
//! ```
//!
//! A provider author implements [`Machines`] with plain types. The daemon holds providers of many kinds at
//! once as [`DynMachines`], with JSON in the place of the types. Every [`Machines`] is a [`DynMachines`], so
//! [`CloudProvider::machines`](crate::CloudProvider::machines) is one line: `Some(self)`.
//!
//! # A step
//!
//! The controller calls a step when the object changed, when the cloud said that its machine changed, when
//! the time that the last step named has come, and once a resync period. Steps of different objects run at the
//! same time, thousands if need be. Of one object, one step runs at a time: each holds the
//! [lock of its object](ObjectLock).
//!
//! A step
//!
//! 1. finds in the provider's inventory what carries the object's [`Mark`]. An inventory that is not complete
//!    yet is an error;
//! 2. begins what is to be done next. It makes a few calls and never waits for long work or for a guest;
//! 3. answers with what it saw and, unless everything is done, with one [`Wait`]: for what, and when to look
//!    again.
//!
//! The daemon gives up a step after 60 s and may end at any point of one. So each step must end right from
//! wherever an earlier one stopped.
//!
//! A step that is given up is dropped, and tasks that it has spawned go on. Such a task takes along
//! [`ObjectLock::current`], so that the next step of the object begins after its end, and
//! [`Term::current`](crate::Term::current), so that it sends nothing once the daemon does not lead any more. A
//! next step that waits for longer than 20 s is an error of kind `Timeout`, and is tried again.
//!
//! | A step towards existing answers | Meaning | The condition `Ready` |
//! |---|---|---|
//! | [`MachineReport::Creating`] | the cloud has no such machine yet | `False`, the reason and message of the [`Wait`] |
//! | [`MachineReport::Present`] with a wait | it exists and is not complete | `False`, the same |
//! | [`MachineReport::Present`] | nothing is left to do | `True`; `status.initialization.provisioned` becomes true and stays so |
//! | [`MachineReport::Lost`] | it existed, and the cloud confirmed that it is gone | `False`, `MachineLost` |
//! | an error | the step could not do or see what it had to | `False`, the reason of the kind, below |
//!
//! A step towards gone answers [`Deletion::Deleting`] or [`Deletion::Gone`]. `Gone` releases the finalizer,
//! so it says that the cloud confirmed it: nothing of the machine is left, and no work is under way that
//! could still make something. An error is never `Gone`, and never `Lost`.
//!
//! # Long work is a task in the status
//!
//! A clone, an import of an image or a shutdown of a guest is begun by one step and seen to be finished by a
//! later one. What the provider needs to find it again (vSphere's task ID) goes to its [`Status`] in the
//! [`Record`]. The controller writes the record after each step, whether it succeeded or not, and only if it
//! changed. The answer is a [`Wait`] for [`WaitsFor::Task`]. Where the cloud has the bootstrap data already,
//! the next step may be called [without them](Wait::without_bootstrap_data), which saves a read of their
//! Secret.
//!
//! Most waits are over within seconds. So the controller writes the status of a wait once that has lasted
//! five seconds, and what steps record meanwhile is there for the next step all the same. The provider ID,
//! and that a move has to wait, are written at once. A step whose record the next process needs, such as the
//! choice of a place, answers with a wait for [`WaitsFor::Objects`].
//!
//! The status is a hint, never the truth. It is lost when the daemon ends before it was written, and when
//! `clusterctl move` takes the objects to another management cluster. With an empty status, steps must reach
//! the same end: everything is found again in the cloud by the mark. A failed task is removed from the status
//! in the step that returns its error, so that the next one begins it again.
//!
//! # Identity and marks
//!
//! The identity of a machine is fixed before the first call: [`Mark::uid`], the UID of its object. The
//! controller keeps it in an annotation, written together with the finalizer, so that it survives `clusterctl
//! move`, which gives objects new UIDs. A provider derives the UUID, the MAC addresses and the names of disks
//! from it, and puts the whole [`Mark`] on everything that it creates *in the same call that creates it*. So
//! a create call whose answer was lost is found again, and a second one cannot make a second machine.
//!
//! [`Mark::owns`] decides whether something in the cloud is ours: all of its fields must be equal. Only what
//! is ours is ever adopted, changed or deleted. Anything else that is in the way, such as a machine of the
//! same name, is an error: [`Mark::conflict`], which names it. A UID alone is not enough, since people copy
//! manifests together with annotations. Clouds that can keep nothing but a UUID use [`Mark::uid`] for it, as
//! Cluster API's vSphere provider does with `instanceUuid`, and say so in their documentation.
//!
//! Another program may have made the machine of an object, where it and this one work on the same kinds at
//! different times. Then the identity is what that program has given to the machine, and only the provider
//! can tell it: [`Machines::identify_machine`]. The controller fixes it in the annotation all the same,
//! before the first step. The step that finds the machine writes the mark on it, if everything agrees by
//! which that program knows the machine, and from then on it is ours.
//!
//! # One inventory, one stream, one provider ID
//!
//! - What a step sees of a machine is an [`Instance`](crate::Instance), made by the same function that
//!   answers [`Instances::lookup`](crate::Instances::lookup). So the provider ID of a Machine and that of its
//!   Node are the same bytes, and so are addresses and power state.
//! - There is no polling loop for a machine. The stream of [`Instances::changes`](crate::Instances::changes)
//!   names the mark's UID in [`InstanceRef::machine`](crate::InstanceRef::machine), of a machine as well as
//!   of a cluster, for every change that a step could be waiting for: the machine itself, its lease, its
//!   task, its image. The controller wakes the object with this identity. A resync wakes all.
//! - So a provider with machines has [`Instances`](crate::Instances) too.
//! - A provider without a stream names times in its [`Wait`]s.
//!
//! # Errors
//!
//! | Kind | Here it means | Reason of `Ready` | The next try |
//! |---|---|---|---|
//! | `InvalidInput` | terminal: the spec is wrong. The message names the field | `InvalidSpec` | when the object changes, or with a resync |
//! | `Unsupported`, `ImplementedElsewhere` | terminal: the spec asks for what this cloud cannot do | `Unsupported` | when the object changes, or with a resync |
//! | `NotFound` | something that the spec names is missing, such as an image or a network | `DependencyNotFound` | after 60 s |
//! | `Conflict` | something foreign is in the way, which the message names | `ForeignObject` | after 60 s |
//! | `Ambiguous` | two machines carry the same mark. Nothing is done to either | `MachineAmbiguous` | after 60 s |
//! | `Unauthenticated` | a person has to act | `ProviderUnauthenticated` | after 60 s |
//! | `PermissionDenied` | a person has to act | `ProviderPermissionDenied` | after 60 s |
//! | `InvalidConfiguration` | a person has to act | `ProviderMisconfigured` | after 60 s |
//! | `RateLimited`, `Unavailable` | the cloud is in trouble, or its work failed | `ProviderUnavailable` | after 0.2 s, then with growing delays |
//! | `Timeout` | it is not known whether the call took place; the next step finds out | `ProviderTimeout` | the same |
//! | `Internal` | a fault of the provider, a panic included | `ProviderError` | the same |
//!
//! [`Error::retry_after`](crate::Error::retry_after) takes precedence, and a pushed change over both. Waiting
//! is not an error: `InProgress` is not used here.
//!
//! # Which rule of Cluster API (contract v1beta2) asks for what
//!
//! | Rule | Piece |
//! |---|---|
//! | `spec.providerID` equals the Node's byte for byte | [`PresentMachine::instance`] |
//! | `status.initialization.provisioned`, never back | [`MachineReport::Present`] without a wait, kept by the controller |
//! | the infrastructure may be named after its Machine | [`MachineRequest::machine_name`]; [`Mark::name`] is the name of its own object |
//! | `status.addresses` | [`InstanceMetadata::addresses`](crate::InstanceMetadata::addresses) |
//! | `status.failureDomain` obeys the Machine's | [`MachineRequest::failure_domain`], [`PresentMachine::failure_domain`] |
//! | `status.conditions` | [`Wait::reason`], the errors, [`Record::conditions`] for conditions of the provider's own |
//! | readers of the contract v1beta1 find conditions by the names that it has for them | [`Kind::v1beta1_conditions`], from which the controller derives them |
//! | no terminal failures; health checks look at conditions | [`MachineReport::Lost`]: told, and not made again |
//! | bootstrap Secret with `value` and `format` | [`MachineRequest::bootstrap`], [`BootstrapData`]; [`MachineRequest::has_node`] says that they have served |
//! | finalizer, then outside calls; deletion confirmed | [`Deletion::Gone`] |
//! | delete also where bootstrap data never came | the step towards gone needs none |
//! | infrastructure of a cluster goes after its machines, and can be removed by force | [`MachineDeletionRequest`]: the cluster's spec may be missing |
//! | pause | the controller calls no step; a running task ends by itself and is found by its mark |
//! | `clusterctl move`: status is not carried over, `block-move` | [`Status`] is a hint; the annotation is there until the provider ID is written, and during [`WaitsFor::Task`] |
//! | `InfraMachineTemplate`: `status.capacity`, `status.nodeInfo` | [`Machines::capacity`] |
//! | `InfraCluster`: endpoint, failure domains | [`ClusterReport`] |
//! | a `MachineDeployment` or control plane makes machines that are alike | [`MachineRequest::group`] |
//! | CRDs: kind, regular plural, version label | [`Kinds`], [`Schemas`] |
//! | a control plane's machine is a member of its load balancer | [`MachineRequest::is_control_plane`] |
//!
//! # How two clouds fit
//!
//! | | libvirt | vSphere |
//! |---|---|---|
//! | identity | domain UUID and MAC from [`Mark::uid`] | `config.instanceUuid` = [`Mark::uid`] |
//! | mark | `<metadata>` of the domain; names of volumes and seeds contain the UID | `instanceUuid` and an `extraConfig` key |
//! | object of a step | `LibvirtMachine` | `VSphereVM`; `VSphereMachine` is a view of it that the controller keeps |
//! | made by another program | never adopted | machines of Cluster API's vSphere provider, by the `VSphereVM`, [`MachineRequest::provider_id`] and `instanceUuid` |
//! | task in the status | import of a base image | `status.taskRef` |
//! | wait for an address | DHCP lease or guest agent | `guest.net` |
//! | stream | domain events | the property collector that already follows the inventory, tasks included |
//!
//! # A machine that is reset
//!
//! A machine that does not become a healthy Node may only have to start anew. Where
//! [`Kinds::can_reset`] says that the provider can do that, the controller calls [`Machines::reset_machine`] for an
//! object of its own kind `RebootRemediation`. It counts each call before it makes it, so a call that dies on the way
//! is not made a second time. Only an error of a kind that [says that nothing was reset](Reset::may_have_happened) is
//! tried again.
//!
//! # Auxiliary objects
//!
//! A spec may name other objects of the API: a place, an identity, a pool of addresses. And a provider may
//! have objects beside the machine that people and programs look at. The provider names their kinds in
//! [`Kinds::auxiliary`].
//!
//! - A step reads them with [`MachineRequest::objects`], from what the controller's watches show. The
//!   controller makes the next step when something changes that the last one read, also when something
//!   appears that it did not find. A kind that the API server does not serve is an error of the step that
//!   reads it, and of no other.
//! - A step says with [`Record::want`] which objects it wants to have beside its own. The controller makes
//!   them, owned by the step's object, and writes spec and status where they differ from what is there. So a
//!   step wants them again each time, and nothing is written once all is well. What a step that succeeded
//!   does not want any more is deleted. So is everything after [`Deletion::Gone`], before the finalizer goes.
//!   While the step's object is being deleted, nothing is made anew.
//! - An object of the same name that the step's object does not own is an error that names it. It is left
//!   alone. One that belongs to another companion of the step's object counts as its own.
//! - Of a kind that is [held](AuxiliaryKind::held_by), one that was made stays until [`Deletion::Gone`],
//!   whatever the steps want and whoever deletes it.
//! - Of kinds that are [status-only](AuxiliaryKind::status_only), users make the objects and the provider
//!   says what their status is: [`Machines::observe`]. The controller asks when the object changes, when
//!   something changes that the last look has read, when the stream of changes names the object's UID in
//!   [`InstanceRef::machine`](crate::InstanceRef::machine) or says that anything may have changed, at the
//!   time that the last look named, and once a resync period. It writes the status where it differs. Such an
//!   object has no finalizer, and no owner. One that is paused or being deleted is left alone.
//! - Secrets are no auxiliary objects: nothing secret is in the controller's caches.
//!
//! Requests and answers are `#[non_exhaustive]`.

mod adapter;
mod bootstrap;
mod bounded;
mod capacity;
mod cluster;
mod condition;
mod desired;
mod kinds;
mod mark;
mod object_lock;
mod objects;
mod provider;
mod record;
mod report;
mod request;
mod reset;
mod status_only;
mod types;
mod v1beta1_conditions;
mod versions;
mod wait;

pub use self::{
    adapter::{schema_of, schemas_of},
    bootstrap::{BootstrapData, BootstrapFormat},
    bounded::BoundedObject,
    capacity::{Capacity, NodeInfo},
    cluster::{ClusterReport, ClusterRequest, FailureDomain},
    condition::{Condition, ConditionStatus},
    desired::DesiredObject,
    kinds::{AuxiliaryKind, GROUP, Kind, Kinds, Schemas},
    mark::Mark,
    object_lock::{ObjectLock, ObjectLocks},
    objects::{AuxiliaryObject, ObjectSource, Objects, not_served},
    provider::{DynMachines, Machines, Spec, Status},
    record::Record,
    report::{Deletion, MachineReport, PresentMachine},
    request::{ClusterContext, MachineDeletionRequest, MachineRequest},
    reset::Reset,
    status_only::{ObserveRequest, StatusReport},
    types::{Convert, MachineColumns, MachineTypes, OlderVersion},
    v1beta1_conditions::{Severity, V1Beta1Condition, V1Beta1Reason},
    versions::{AdmissionRule, AdmissionTime, Column, ForeignVersion, KindDefinition},
    wait::{Wait, WaitsFor},
};

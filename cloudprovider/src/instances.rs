//! Instances: what the cloud runs. Controllers look them up in batches, and a cloud may push changes.

use std::{collections::BTreeMap, fmt, str::FromStr};

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{Error, NodeAddress, NodeIdentity, ProviderId, UnknownWord};

/// Looks up the instances behind Nodes. Without this part no Node is initialised.
#[async_trait]
pub trait Instances: fmt::Debug + Send + Sync {
    /// Whether `provider_id` has a form that this provider writes, or wrote in an earlier version.
    ///
    /// Only the form counts: this method makes no call to the cloud. The controllers ask it before any
    /// look-up:
    /// - `true`: the Node belongs to this provider. The controllers look it up, keep it up to date, and
    ///   delete it once its instance is gone.
    /// - `false` for an ID that begins with this provider's [name](crate::CloudProvider::name) and `://`: the
    ///   ID is broken. The Node is never looked up. A new Node with such an ID is reported as `InvalidNode`.
    /// - `false` for any other ID: the Node belongs to another cloud and is left alone.
    ///
    /// A provider may also own IDs without `://`. `owns` must accept every ID that [`lookup`](Self::lookup)
    /// returns. A Node keeps its ID for ever, so the controllers do not write an ID that `owns` refuses.
    fn owns(&self, provider_id: &str) -> bool;

    /// The form of this provider's IDs, such as `mycloud:///<uuid>`, for messages about a broken ID.
    fn provider_id_form(&self) -> Option<&str> {
        None
    }

    /// Looks up `nodes`. Returns one answer per node, in the order of `nodes`.
    ///
    /// Each node has no provider ID, or one that this provider [owns](Self::owns). Names and UUIDs may be
    /// anything: the daemon's subcommand `check` looks up a machine that does not exist, called
    /// [`CHECK_NODE_NAME`].
    ///
    /// The rules of a look-up (those of upstream's `InstancesV2`):
    /// - A node that has a provider ID is looked up by this ID and by nothing else.
    /// - Any other node is looked up by whatever identifies it: system UUID, name, labels.
    /// - A stopped instance is [`Present`](InstanceLookup::Present).
    /// - The answer is [`Absent`](InstanceLookup::Absent) only if the cloud itself confirmed that there is no
    ///   such instance. In any other difficulty the answer is [`Unknown`](InstanceLookup::Unknown), for the
    ///   nodes concerned and for no others.
    /// - If two instances match one node, and nothing that is known tells which one is meant ([`ties`](crate::ties)), the answer is
    ///   `Unknown` with [`ErrorKind::Ambiguous`](crate::ErrorKind::Ambiguous) and a message that names both instances.
    ///
    /// If a call panics, takes longer than 60 s or returns a wrong number of answers, the caller repeats it
    /// with each half of `nodes`, until it knows for which nodes the call fails. The answers for these nodes
    /// are `Unknown`. So the answer for a node must not depend on which other nodes are in the call. The next
    /// calls look these nodes up separately from the others.
    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup>;

    /// A stream of changes, for clouds that can push them. With `None` the controllers rely on their periodic
    /// look-ups.
    ///
    /// This method may be called more than once. Each stream gets every change from its call on. A provider
    /// that may have missed changes, for example because it lost a connection, sends
    /// [`InstanceChange::Resync`].
    fn changes(&self) -> Option<InstanceStream>;
}

/// Changes as they happen. The stream ends when the provider stops.
pub type InstanceStream = BoxStream<'static, InstanceChange>;

/// One element of [`Instances::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceChange {
    /// These instances changed, appeared or vanished. The controllers look them up again.
    Changed(Vec<InstanceRef>),
    /// Anything may have changed. The controllers look up everything again.
    Resync,
}

/// Identifies an instance for the controllers, which look up every Node again that matches in any of the
/// fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceRef {
    /// Its provider ID, in the form that this provider writes.
    pub provider_id: Option<String>,
    /// Its system UUID, in the form that the guest reports. Nodes that are not initialised yet have no
    /// provider ID and are matched by this.
    pub system_uuid: Option<String>,
    /// Its name, for Nodes whose system UUID does not identify them.
    pub name: Option<String>,
    /// The UID in its [`Mark`](crate::machines::Mark), if it was made for a machine's or a cluster's object. That object is
    /// looked at again, and no Node.
    pub machine: Option<String>,
}

/// The name of the node that the daemon's subcommand `check` looks up, with a random system UUID. No machine
/// has this name, since the domain `invalid` is reserved. A provider that answers
/// [`Absent`](InstanceLookup::Absent) can see everything that it needs to see.
pub const CHECK_NODE_NAME: &str = "cloud-controller-manager-check.invalid";

/// The three answers of a look-up.
#[derive(Clone, Debug)]
pub enum InstanceLookup {
    /// The instance exists, running or not.
    Present(Box<Instance>),
    /// The cloud confirmed that there is no such instance.
    Absent,
    /// The provider cannot tell at the moment. The error says why.
    Unknown(Error),
}

impl InstanceLookup {
    /// The answers for a batch that cannot be looked up at all: one clone of `error` for each of `nodes`.
    pub fn all_unknown<T>(nodes: &[T], error: &Error) -> Vec<Self> {
        nodes.iter().map(|_| Self::Unknown(error.clone())).collect()
    }
}

impl From<Instance> for InstanceLookup {
    fn from(instance: Instance) -> Self {
        Self::Present(Box::new(instance))
    }
}

impl From<Error> for InstanceLookup {
    fn from(error: Error) -> Self {
        Self::Unknown(error)
    }
}

/// Whether an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PowerState {
    /// It runs, or is about to.
    Running,
    /// It is paused or suspended to memory. Its pods may resume, so it does not count as shut down.
    Paused,
    /// It is shutting down. It does not count as shut down yet.
    ShuttingDown,
    /// It is powered off. Its memory is lost or saved to disk.
    Off,
    /// It crashed and does nothing any more.
    Crashed,
}

impl PowerState {
    /// Every state.
    pub const ALL: &'static [Self] =
        &[Self::Running, Self::Paused, Self::ShuttingDown, Self::Off, Self::Crashed];

    /// Whether the instance counts as shut down (upstream's `InstanceShutdown`). Its pods no longer run, so
    /// the Node gets the shutdown taint.
    pub fn is_shutdown(self) -> bool {
        matches!(self, Self::Off | Self::Crashed)
    }

    /// The state as a word for tables and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ShuttingDown => "shutting down",
            Self::Off => "off",
            Self::Crashed => "crashed",
        }
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PowerState {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        UnknownWord::look_up("power state", text, Self::ALL, Self::as_str)
    }
}

/// An instance that exists.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// The identity of the instance in the cloud. It is written to `spec.providerID` of a Node that has none.
    /// A Node that has one keeps its own, whatever this field says.
    ///
    /// `None` means that the cloud does not say, for example because the Node's own ID does not have the form
    /// of a [`ProviderId`]. This is enough for a Node that has an ID. A Node without an ID stays
    /// uninitialised.
    pub provider_id: Option<ProviderId>,
    /// Whether it runs.
    pub power_state: PowerState,
    /// What is written to the Node.
    pub metadata: InstanceMetadata,
    /// Why `metadata` is not complete yet, if it is not. A Node that is not initialised keeps its taint until
    /// the reason is gone, and its condition shows the reason. Initialised Nodes are not affected.
    pub incomplete: Option<Error>,
    /// What the instance was found by, such as `system UUID`. For people who ask why this instance was
    /// chosen.
    pub matched_by: Option<String>,
}

impl Instance {
    /// An instance with empty, complete metadata. `provider_id` is a [`ProviderId`], or `None` if the cloud
    /// does not say.
    pub fn new(provider_id: impl Into<Option<ProviderId>>, power_state: PowerState) -> Self {
        Self {
            provider_id: provider_id.into(),
            power_state,
            metadata: InstanceMetadata::default(),
            incomplete: None,
            matched_by: None,
        }
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: InstanceMetadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets what the instance was found by.
    #[must_use]
    pub fn with_matched_by(mut self, what: impl Into<String>) -> Self {
        self.matched_by = Some(what.into());
        self
    }

    /// Marks the metadata as not complete yet, for this reason.
    #[must_use]
    pub fn with_incomplete(mut self, why: Error) -> Self {
        self.incomplete = Some(why);
        self
    }
}

/// What the cloud says about an instance, to be written to its Node. An empty or `None` field means that the
/// cloud does not say. The Node's own value is then left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Goes to the label `node.kubernetes.io/instance-type` (and the beta one).
    pub instance_type: Option<String>,
    /// Go to `status.addresses`, in this order.
    pub addresses: Vec<NodeAddress>,
    /// Goes to the label `topology.kubernetes.io/zone` (and the beta one).
    pub zone: Option<String>,
    /// Goes to the label `topology.kubernetes.io/region` (and the beta one).
    pub region: Option<String>,
    /// Further labels. Keys in `kubernetes.io` and `k8s.io` domains are dropped, as upstream does.
    pub additional_labels: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_power_state_is_read_as_it_is_printed() {
        for state in PowerState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        let last = PowerState::ALL.last().map(|state| *state as usize);
        assert_eq!(last, Some(PowerState::ALL.len() - 1), "one more state is one more word");
        let error = "on".parse::<PowerState>().expect_err("no such state").to_string();
        assert_eq!(error, "unknown power state \"on\", known: running, paused, shutting down, off, crashed");
    }

    #[test]
    fn one_error_answers_for_a_whole_batch() {
        let away = Error::new(ErrorKind::Unavailable, "away");
        let answers = InstanceLookup::all_unknown(&[1, 2, 3], &away);
        assert_eq!(answers.len(), 3);
        for answer in answers {
            assert!(matches!(answer, InstanceLookup::Unknown(error) if error.report() == "away"));
        }
        assert!(InstanceLookup::all_unknown::<NodeIdentity>(&[], &away).is_empty());
    }

    #[test]
    fn an_instance_may_have_no_id() {
        let id = ProviderId::new("x", "/1");
        assert_eq!(Instance::new(id.clone(), PowerState::Off).provider_id, Some(id));
        assert_eq!(Instance::new(None, PowerState::Off).provider_id, None);
    }
}

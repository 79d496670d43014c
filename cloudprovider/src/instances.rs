//! Instances: what the cloud runs, asked for in batches and optionally pushed.

use std::{collections::BTreeMap, fmt, str::FromStr};

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{Error, NodeAddress, NodeIdentity, ProviderId, UnknownWord};

/// Looks up the instances behind Nodes. A provider without it can initialise no Node.
#[async_trait]
pub trait Instances: fmt::Debug + Send + Sync {
    /// Whether `provider_id` is one that this provider writes, or wrote in an earlier version.
    ///
    /// The answer is about the form only; no call to the cloud is made. It decides before any look-up:
    /// - `true`: the Node is looked up, repaired and judged;
    /// - `false` for an ID that begins with this provider's [name](crate::CloudProvider::name) and `://`: the Node is
    ///   nobody's. It is never looked up; a new one is reported as `InvalidNode`;
    /// - `false` for any other ID: the Node is another cloud's, and left alone.
    ///
    /// IDs without `://` can be a provider's own too, if `owns` says so. Every ID that [`lookup`](Self::lookup) gives
    /// must be one: a Node keeps its ID for ever, so one that `owns` refuses is not written.
    fn owns(&self, provider_id: &str) -> bool;

    /// The form of its provider IDs, such as `mycloud:///<uuid>`, for whoever is told that one is broken.
    fn provider_id_form(&self) -> Option<&str> {
        None
    }

    /// One answer per node, in the order of `nodes`.
    ///
    /// `nodes` have no provider ID or one that this provider [owns](Self::owns). Names and UUIDs may be any: the daemon's
    /// subcommand `check` asks about a machine that nobody has, called [`CHECK_NODE_NAME`].
    ///
    /// The rules of a look-up (upstream's `InstancesV2`):
    /// - a node that has a provider ID is looked up by it and by nothing else;
    /// - otherwise by whatever identifies it: system UUID, name, labels;
    /// - a stopped instance is [`Present`](InstanceLookup::Present);
    /// - [`Absent`](InstanceLookup::Absent) only where the cloud itself confirmed it; whatever else is in the way is
    ///   [`Unknown`](InstanceLookup::Unknown), for the nodes concerned and no others;
    /// - two instances that match one node are `Unknown` with [`ErrorKind::Ambiguous`](crate::ErrorKind::Ambiguous)
    ///   and a message that names both.
    ///
    /// A call that panics, takes longer than 60 s or has another number of answers than `nodes` is made again with
    /// halves of `nodes`, until it is clear which of them it fails for: these are `Unknown`. So it must not matter how
    /// nodes are put together. The next calls ask about those apart from the others.
    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup>;

    /// A stream of what changed, for clouds that can push. `None` leaves the controllers to their periods.
    ///
    /// May be called more than once; each stream gets everything from then on. A provider that may have missed
    /// changes (a lost connection, say) sends [`InstanceChange::Resync`].
    fn changes(&self) -> Option<InstanceStream>;
}

/// Changes as they come; ends when the provider stops.
pub type InstanceStream = BoxStream<'static, InstanceChange>;

/// One element of [`Instances::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceChange {
    /// These instances changed, appeared or vanished: look at them again.
    Changed(Vec<InstanceRef>),
    /// Anything may have changed: look at everything again.
    Resync,
}

/// Names an instance towards the controllers, which look again at every Node that matches in any of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceRef {
    /// Its provider ID, in the form that this provider writes.
    pub provider_id: Option<String>,
    /// Its system UUID, in the form that its guest reports: Nodes that are not initialised yet have nothing else.
    pub system_uuid: Option<String>,
    /// Its name, for Nodes whose system UUID tells nothing.
    pub name: Option<String>,
}

/// The name of the machine that nobody has, about which the daemon's subcommand `check` asks (with a random system
/// UUID): a provider that answers [`Absent`](InstanceLookup::Absent) sees everything that it has to see. The domain
/// `invalid` is reserved, so no machine has this name.
pub const CHECK_NODE_NAME: &str = "cloud-controller-manager-check.invalid";

/// The three answers of a look-up.
#[derive(Clone, Debug)]
pub enum InstanceLookup {
    /// The instance exists, running or not.
    Present(Box<Instance>),
    /// The cloud confirmed that there is no such instance.
    Absent,
    /// Nobody can tell now, and why.
    Unknown(Error),
}

impl InstanceLookup {
    /// The answer for a whole batch about which nobody can tell: one clone of `error` for each of `nodes`.
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
    /// It is paused or suspended to memory, and may go on with all its pods alive: not shut down.
    Paused,
    /// It is on its way down: not shut down yet.
    ShuttingDown,
    /// It is powered off, its memory gone or saved to disk.
    Off,
    /// It crashed and does nothing any more.
    Crashed,
}

impl PowerState {
    /// Every state.
    pub const ALL: &'static [Self] =
        &[Self::Running, Self::Paused, Self::ShuttingDown, Self::Off, Self::Crashed];

    /// Whether the instance counts as shut down (upstream's `InstanceShutdown`): its pods run no more, so the
    /// shutdown taint is right.
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
    /// Its identity in the cloud, written to `spec.providerID` of a Node that has none. A Node that has one keeps its
    /// own, whatever stands here.
    ///
    /// `None`: the cloud does not say, as where a Node's own ID has not the form of a [`ProviderId`]. That is enough for
    /// a Node that has an ID; one that has none stays uninitialised.
    pub provider_id: Option<ProviderId>,
    /// Whether it runs.
    pub power_state: PowerState,
    /// What goes into the Node.
    pub metadata: InstanceMetadata,
    /// Why `metadata` is not complete yet, if so: a Node that is not initialised is left tainted, and says this in
    /// its condition, until the reason is gone. Initialised Nodes are not affected.
    pub incomplete: Option<Error>,
    /// By what the instance was found, as in `system UUID`: for people who ask why this one.
    pub matched_by: Option<String>,
}

impl Instance {
    /// An instance with empty, complete metadata. `provider_id` is a [`ProviderId`], or `None` where the cloud does not
    /// say.
    pub fn new(provider_id: impl Into<Option<ProviderId>>, power_state: PowerState) -> Self {
        Self {
            provider_id: provider_id.into(),
            power_state,
            metadata: InstanceMetadata::default(),
            incomplete: None,
            matched_by: None,
        }
    }

    /// The same with this metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: InstanceMetadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// The same, found by this.
    #[must_use]
    pub fn with_matched_by(mut self, what: impl Into<String>) -> Self {
        self.matched_by = Some(what.into());
        self
    }

    /// The same, marked as not complete yet.
    #[must_use]
    pub fn with_incomplete(mut self, why: Error) -> Self {
        self.incomplete = Some(why);
        self
    }
}

/// What a Node is told about its instance. Empty or `None` means "the cloud does not say", and leaves the Node's own
/// value alone.
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

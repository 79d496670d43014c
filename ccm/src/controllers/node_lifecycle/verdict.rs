//! The verdict about a Node whose instance is gone, and its texts.

use controller_kit::conditions::{INSTANCE_EXISTS, WantedCondition};
use tokio::time::Instant;

use super::{
    ALLOW_DELETION, EXCLUDE_LABEL,
    absence::MAX_CALL_AGE,
    silence::{SilentKubelet, Undecided},
    unseen,
};

/// Why a Node whose instance is gone is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HeldBack {
    /// The exclusion label is set.
    Excluded,
    /// The breaker is open.
    BreakerOpen,
    /// The kubelet keeps renewing its lease.
    KubeletAlive,
    /// The Node is Ready, and there is no lease that shows whether its kubelet is alive.
    NodeReady,
    /// The kubelet's lease cannot be read in time.
    LeaseUnread,
    /// The kubelet has not been silent for long enough.
    LeaseRecent,
    /// No other kubelet is seen to renew either.
    NoKubeletHeard,
    /// The provider takes too long to say that the instance is gone.
    CloudTooSlow,
    /// The provider has never seen the instance, and has not reported it as gone for long enough.
    InstanceNeverSeen,
}

/// The next step for a Node whose instance is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again at this time.
    Wait(Instant),
    /// Only the state of the kubelet is uncertain. Look again at this time.
    Listen(Instant),
    /// Do not delete it now, for a reason that is reported. Look again at the given time.
    HoldBack(HeldBack, Option<Instant>),
    /// Delete it.
    Delete(SilentKubelet),
    /// Leave it alone: it is already being deleted.
    Ignore,
}

impl Verdict {
    /// For the log.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Wait(_) => "the instance seems to be gone: waiting until that is certain",
            Self::Listen(_) => "the instance is gone: waiting until it is certain that its kubelet is dead",
            Self::HoldBack(..) => "the instance is gone, and the node is kept",
            Self::Delete(_) => "the instance is gone: the node is to be deleted",
            Self::Ignore => "nothing to delete",
        }
    }
}

impl HeldBack {
    /// The word for reasons and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "Excluded",
            Self::BreakerOpen => "BreakerOpen",
            Self::KubeletAlive => "KubeletAlive",
            Self::NodeReady => "NodeReady",
            Self::LeaseUnread => "LeaseUnread",
            Self::LeaseRecent => "LeaseRecent",
            Self::NoKubeletHeard => "NoKubeletHeard",
            Self::CloudTooSlow => "CloudTooSlow",
            Self::InstanceNeverSeen => "InstanceNeverSeen",
        }
    }

    /// Whether it is unknown if the kubelet is alive, or if the instance is still gone.
    pub(super) fn is_uncertain(self) -> bool {
        matches!(self, Self::LeaseUnread | Self::LeaseRecent | Self::NoKubeletHeard | Self::CloudTooSlow)
    }

    /// Whether the reason is the kubelet, and not a decision about the Node.
    pub(super) fn is_about_kubelet(self) -> bool {
        matches!(self, Self::KubeletAlive | Self::NodeReady) || self.is_uncertain()
    }

    /// A sentence for people.
    pub(super) fn message(self) -> String {
        let why = match self {
            Self::Excluded => format!("the node has the label {EXCLUDE_LABEL}"),
            Self::BreakerOpen => format!(
                "too many nodes would be deleted at once; if that is right, set the annotation {ALLOW_DELETION}=true on them"
            ),
            Self::KubeletAlive => "its kubelet goes on renewing its lease in kube-node-lease".to_owned(),
            Self::NodeReady => {
                "it is Ready, and there is no lease in kube-node-lease to tell otherwise".to_owned()
            }
            Self::LeaseUnread => {
                "its kubelet's lease in kube-node-lease cannot be read, or not in time".to_owned()
            }
            Self::LeaseRecent => {
                "its kubelet may yet renew its lease in kube-node-lease: a lease of long duration, or an API server that did not answer all the time".to_owned()
            }
            Self::NoKubeletHeard => format!(
                "no other kubelet renews its lease in kube-node-lease either, so the fault may be the API server's or the network's; if not, set the annotation {ALLOW_DELETION}=true on the node"
            ),
            Self::CloudTooSlow => format!(
                "the cloud provider takes more than {MAX_CALL_AGE:?} to say so, and the instance may be back by then"
            ),
            Self::InstanceNeverSeen => unseen::MESSAGE.to_owned(),
        };
        format!("the cloud provider has no instance for this node, but it is not deleted: {why}")
    }

    /// The condition on the Node with this reason.
    pub(super) fn condition(self) -> WantedCondition {
        WantedCondition::new(INSTANCE_EXISTS, "False", self.as_str(), self.message())
    }
}

impl From<Undecided> for HeldBack {
    fn from(why: Undecided) -> Self {
        match why {
            Undecided::Unread => Self::LeaseUnread,
            Undecided::Recent => Self::LeaseRecent,
            Undecided::NobodyHeard => Self::NoKubeletHeard,
        }
    }
}

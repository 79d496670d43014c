//! Determines whether a kubelet is alive from its lease over time. Pure.

use std::time::Duration;

use controller_kit::nodes::{Node, ReadyStatus};
use tokio::time::Instant;

use super::{
    availability::Availability,
    lease::{DEFAULT_DURATION, LeaseAnswer, LeaseRead, LeaseView},
    renewal::{renewal_interval, silence_of},
};

/// How often a kubelet's lease is read until it is clear whether the kubelet is alive.
pub(super) const LEASE_POLL: Duration = Duration::from_secs(2);

/// A proof from a read that was sent longer ago is no longer valid.
const MAX_PROOF_AGE: Duration = Duration::from_secs(3);

/// The state of one kubelet's lease since the cloud reported the instance as gone, on our own monotonic
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseHistory {
    shown: Shown,
    duration: Duration,
    /// When the present state of the lease was first seen. This is the time of a response, so the renewal
    /// itself was earlier.
    since: Instant,
    /// When the last answered read was sent.
    last_sent: Instant,
    /// Whether the last read was answered.
    is_answered: bool,
    /// Whether the lease ever existed.
    was_found: bool,
    /// Whether a renewal was observed.
    pub renewed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    RenewTime(String),
    Missing,
    Forbidden,
}

impl LeaseHistory {
    /// Adds a read to the history. A read without an answer says nothing about the kubelet.
    pub(super) fn update(history: &mut Option<Self>, read: &LeaseRead) {
        let (shown, duration) = match read.answer() {
            LeaseAnswer::NoAnswer => {
                if let Some(history) = history {
                    history.is_answered = false;
                }
                return;
            }
            LeaseAnswer::Found(LeaseView { renew_time, duration }) => {
                (Shown::RenewTime(renew_time.clone()), Some(*duration))
            }
            LeaseAnswer::Missing => (Shown::Missing, None),
            LeaseAnswer::Forbidden => (Shown::Forbidden, None),
        };
        let history = history.get_or_insert_with(|| Self {
            shown: shown.clone(),
            duration: DEFAULT_DURATION,
            since: read.answered(),
            last_sent: read.sent(),
            is_answered: true,
            was_found: false,
            renewed: false,
        });
        history.last_sent = read.sent();
        history.is_answered = true;
        history.duration = duration.unwrap_or(history.duration);
        history.was_found |= duration.is_some();
        if history.shown != shown {
            // If only the permission to read the lease was restored, that is not a renewal.
            history.renewed |= duration.is_some() && history.shown != Shown::Forbidden;
            history.shown = shown;
            history.since = read.answered();
        }
    }

    /// Whether the kubelet was seen to renew its lease, and the next renewal was not yet due at the last
    /// read. If that read was not answered, this is unknown.
    pub(super) fn is_in_time(&self) -> bool {
        let is_due = self.last_sent >= self.since + renewal_interval(self.duration);
        matches!(self.shown, Shown::RenewTime(_)) && self.renewed && self.is_answered && !is_due
    }

    /// Whether the last read gave no lease to judge the kubelet by: it does not exist, or reading it is
    /// forbidden.
    pub(super) fn is_mute(&self) -> bool {
        !matches!(self.shown, Shown::RenewTime(_))
    }

    /// Whether reading the lease is forbidden.
    pub(super) fn is_forbidden(&self) -> bool {
        self.shown == Shown::Forbidden
    }
}

/// Proof from a read of its lease that the kubelet of one Node does not renew it. No Node is deleted without
/// this proof. Only [`judge`] creates it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SilentKubelet {
    uid: String,
    read_sent: Instant,
}

impl SilentKubelet {
    /// Whether the proof permits deleting this Node now.
    pub(super) fn proves(&self, node: &Node, now: Instant) -> bool {
        self.uid == node.identity.uid && now <= self.good_until()
    }

    /// When the proof expires.
    pub(super) fn good_until(&self) -> Instant {
        self.read_sent + MAX_PROOF_AGE
    }
}

#[cfg(test)]
impl SilentKubelet {
    /// A proof for tests.
    pub(super) fn fake(uid: &str, read_sent: Instant) -> Self {
        Self { uid: uid.to_owned(), read_sent }
    }
}

/// The state of a kubelet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kubelet {
    /// It is silent.
    Silent(SilentKubelet),
    /// It was seen to renew its lease, and has not been silent for long enough.
    Renews {
        /// When it will have been silent for long enough, without another renewal.
        silent_at: Instant,
    },
    /// The Node is Ready, and its lease does not exist or reading it is forbidden.
    ReadyWithoutLease,
    /// Still unknown: judge again at this time.
    Undecided(Undecided, Instant),
}

/// Why it is unknown whether a kubelet is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    /// The lease could not be read in time.
    Unread,
    /// It has not been silent for long enough.
    Recent,
    /// No other kubelet is seen to renew either.
    NobodyHeard,
}

/// Judges a Node's kubelet from this read of its lease and from its history. Without `must_hear`, renewals of
/// other kubelets are not required.
///
/// The silence ends when the read was sent, since a later renewal may be missing in the response. It begins
/// when the present state of the lease was first seen, but not before the current period in which the API
/// server responds without interruption. After an outage, kubelets have as much time to renew as the outage
/// took: at least the usual time, and at most the duration of the lease.
pub(super) fn judge(
    read: &LeaseRead,
    history: Option<&LeaseHistory>,
    ready: ReadyStatus,
    api: &Availability,
    must_hear: bool,
) -> Kubelet {
    let poll_at = read.answered() + LEASE_POLL;
    let unread = Kubelet::Undecided(Undecided::Unread, poll_at);
    let Some(history) = history.filter(|_| *read.answer() != LeaseAnswer::NoAnswer) else { return unread };
    // These two cases hold the Node back for now, whatever the state of the API server.
    if history.is_in_time() {
        return Kubelet::Renews { silent_at: history.since + silence_of(history.duration) };
    }
    if history.is_mute() && ready == ReadyStatus::True {
        return Kubelet::ReadyWithoutLease;
    }
    let Some(stretch) = api.stretch() else { return unread };
    let proof = || Kubelet::Silent(SilentKubelet { uid: read.uid().to_owned(), read_sent: read.sent() });
    let usual = silence_of(history.duration);
    let (since, silence) = if stretch.since > history.since {
        (stretch.since, stretch.outage.min(history.duration).max(usual))
    } else {
        (history.since, usual)
    };
    let silent_at = since + silence;
    let is_silent = read.sent() >= silent_at;
    let recent = || Kubelet::Undecided(Undecided::Recent, silent_at.min(poll_at));
    match &history.shown {
        // Upstream's rule: a kubelet that never had a lease is judged by the Node's Ready condition.
        Shown::Missing if is_silent || !history.was_found => proof(),
        // The kubelet was alive when the permission to read its lease was lost. Its present state is unknown.
        Shown::Forbidden if history.renewed => Kubelet::Undecided(Undecided::Unread, poll_at),
        Shown::Forbidden if is_silent => proof(),
        Shown::RenewTime(_) if is_silent => {
            if must_hear && !api.kubelets_are_heard(since, history.duration, read.sent()) {
                return Kubelet::Undecided(Undecided::NobodyHeard, poll_at);
            }
            proof()
        }
        Shown::RenewTime(_) if history.renewed => Kubelet::Renews { silent_at },
        Shown::RenewTime(_) | Shown::Missing | Shown::Forbidden => recent(),
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod campaign;

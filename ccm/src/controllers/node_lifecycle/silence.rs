//! Whether a kubelet lives, from what its lease shows over time. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    availability::Availability,
    lease::{DEFAULT_DURATION, LeaseAnswer, LeaseRead, LeaseView},
    renewal::{renewal_interval, silence_of},
};
use crate::nodes::{Node, ReadyStatus};

/// How often a kubelet's lease is looked at until it is clear whether it lives.
pub(super) const LEASE_POLL: Duration = Duration::from_secs(2);

/// A read that was sent longer ago proves nothing any more.
const MAX_PROOF_AGE: Duration = Duration::from_secs(3);

/// What one kubelet's lease showed since the cloud said that the instance is gone, on our own monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseHistory {
    shown: Shown,
    duration: Duration,
    /// When the lease was first seen as it is now. That is the time of an answer, so the renewal itself was earlier.
    since: Instant,
    /// When the last read was sent that was answered.
    last_sent: Instant,
    /// Whether the last read of all was answered.
    is_answered: bool,
    /// Whether the lease was ever there.
    was_found: bool,
    /// Whether a renewal was seen happening.
    pub renewed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    RenewTime(String),
    Missing,
    Forbidden,
}

impl LeaseHistory {
    /// Adds a read to what was seen before. One without an answer says nothing of the kubelet.
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
            // Where only the permission to read it came back, nobody need have written it.
            history.renewed |= duration.is_some() && history.shown != Shown::Forbidden;
            history.shown = shown;
            history.since = read.answered();
        }
    }

    /// Whether the kubelet was seen renewing its lease, and was not due to do so again at the last read. It must have been
    /// answered: otherwise nobody can tell.
    pub(super) fn is_in_time(&self) -> bool {
        let is_due = self.last_sent >= self.since + renewal_interval(self.duration);
        matches!(self.shown, Shown::RenewTime(_)) && self.renewed && self.is_answered && !is_due
    }

    /// Whether by the last read there is no lease to tell anything of the kubelet: none at all, or none that we may read.
    pub(super) fn is_mute(&self) -> bool {
        !matches!(self.shown, Shown::RenewTime(_))
    }

    /// Whether we may not read the lease.
    pub(super) fn is_forbidden(&self) -> bool {
        self.shown == Shown::Forbidden
    }
}

/// Proof that the kubelet of one Node does not renew its lease, from a read of the lease. No Node is deleted without it. Only
/// [`judge`] makes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SilentKubelet {
    uid: String,
    read_sent: Instant,
}

impl SilentKubelet {
    /// Whether it is good for deleting this Node now.
    pub(super) fn proves(&self, node: &Node, now: Instant) -> bool {
        self.uid == node.identity.uid && now <= self.good_until()
    }

    /// When it proves nothing any more.
    pub(super) fn good_until(&self) -> Instant {
        self.read_sent + MAX_PROOF_AGE
    }
}

#[cfg(test)]
impl SilentKubelet {
    /// A proof for tests of what is done with it.
    pub(super) fn fake(uid: &str, read_sent: Instant) -> Self {
        Self { uid: uid.to_owned(), read_sent }
    }
}

/// What is known of a kubelet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kubelet {
    /// It is silent.
    Silent(SilentKubelet),
    /// It was seen renewing its lease, and is not silent for long enough.
    Renews {
        /// When it will have been silent for long enough, if no renewal comes.
        silent_at: Instant,
    },
    /// There is no lease, or we may not read it, and the Node is Ready.
    ReadyWithoutLease,
    /// Nobody can tell yet: ask again then.
    Undecided(Undecided, Instant),
}

/// Why nobody can tell whether a kubelet lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    /// The lease could not be read in time.
    Unread,
    /// It has not been silent for long enough.
    Recent,
    /// No other kubelet is heard either.
    NobodyHeard,
}

/// Judges a Node's kubelet by this read of its lease and what was seen before. Whether other kubelets are heard does not
/// matter without `must_hear`.
///
/// The silence ends when the read was sent, since a later renewal may be missing in the answer. It begins when the lease was
/// first seen as it is now, but not before the present time in which the API server answers without a break. After an outage
/// kubelets have as long to renew as the outage took: at least what they always have, and at most the duration of the lease.
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
    // These two keep the Node for now, whatever is known of the API server.
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
        // The kubelet was alive when we lost the permission to read its lease. Nobody can tell how it is now.
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

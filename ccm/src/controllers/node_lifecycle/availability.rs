//! Whether the API server answers, and whether any kubelets are heard. In a time when nobody can renew a lease, the silence of
//! one kubelet says nothing about it. Pure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    lease::{LeaseAnswer, LeaseRead},
    renewal::{MAX_PAUSE, renewal_interval, silence_of},
};

/// An answer that takes longer counts as none. Kubernetes' own objective is one second.
pub(super) const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest pause of a kubelet between two tries to read its lease (client-go's `maxBackoff`).
const MAX_KUBELET_BACKOFF: Duration = Duration::from_secs(7);

/// How long a renewal takes after the pause before it, until we notice it.
const SETTLE_SLACK: Duration = Duration::from_millis(500);

/// Where fewer kubelets are heard, they may all renew by chance between two short faults, both of which hit the kubelet in
/// question.
const ENOUGH_HEARD: usize = 3;

/// After so many Nodes without a lease no further Node is tried as a peer: hardly any Node here has one.
const MAX_MUTE: usize = 100;

/// Renewals that are remembered.
const MAX_HEARD: usize = 64;

/// What reads of leases say of the API server.
#[derive(Debug, Default)]
pub(super) struct Availability {
    /// Whether the API server is being watched. If it is not, the reads that happen to be made leave gaps and prove nothing.
    is_watched: bool,
    stretch: Option<Stretch>,
    /// While the API server does not answer: since when, at least.
    away_since: Option<Instant>,
    peers: HashMap<String, Peer>,
    /// Names of the Nodes that turned out to have no lease when they were peers.
    mute: HashSet<String>,
    /// The renewals of peers, oldest first.
    heard: VecDeque<Heard>,
    /// When a peer was heard last, or the first one was listened to.
    last_heard: Option<Instant>,
}

/// A time in which every question was answered, and no pause between two of them was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Its begin.
    pub since: Instant,
    /// How long the outage before it was. Zero: it is not known, since nothing was read.
    pub outage: Duration,
    /// When the last read was sent that was answered.
    last_sent: Instant,
}

/// A kubelet that is listened to, only to know whether kubelets can renew their leases.
#[derive(Debug)]
enum Peer {
    /// Its lease was not read yet.
    Unread,
    /// It has none, or we may not read it: nothing can be heard of it.
    Mute,
    Renews {
        renew_time: String,
        duration: Duration,
        /// When it was read last.
        sent: Instant,
        /// When it was first seen as it is.
        since: Instant,
    },
}

/// How long all other kubelets may still take when the first one is heard after a time in which renewals were refused.
///
/// A kubelet (client-go's lease controller) whose lease can be read and not written tries five times, twice, and then
/// waits for a whole renewal interval. Only where it cannot read either does it try again earlier.
fn settle_time(duration: Duration) -> Duration {
    renewal_interval(duration).max(MAX_KUBELET_BACKOFF) + SETTLE_SLACK
}

/// How long a kubelet must be silent where hardly anybody else is heard: until its lease has expired and one more renewal
/// is missing, four in a row. For the usual lease that is the 50 s after which kube-controller-manager takes it for dead.
fn expiry_of(duration: Duration) -> Duration {
    silence_of(duration).max(duration) + renewal_interval(duration)
}

/// A renewal of a peer.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// When the last read was sent that did not show it yet.
    after: Instant,
    /// When the read that showed it was answered.
    by: Instant,
    /// How long this peer had not been heard at `after`, at least.
    pause: Duration,
    /// How long such a pause takes at most where no renewal is refused.
    usual: Duration,
}

impl Availability {
    /// Takes note of any read, at once.
    pub(super) fn note(&mut self, read: &LeaseRead) {
        if !self.is_watched {
            return;
        }
        let (sent, answered) = (read.sent(), read.answered());
        if *read.answer() == LeaseAnswer::NoAnswer || answered.duration_since(sent) > MAX_ANSWER_TIME {
            let away_since = self.stretch.take().map_or(sent, |stretch| stretch.last_sent);
            self.away_since.get_or_insert(away_since);
            return;
        }
        match &mut self.stretch {
            Some(stretch) if sent <= stretch.last_sent + MAX_PAUSE => {
                stretch.last_sent = stretch.last_sent.max(sent);
            }
            // The API server hung, or this process did. Either way nobody knows what happened in between.
            Some(stretch) => {
                let away_since = stretch.last_sent;
                self.begin(sent, answered, Some(away_since));
            }
            None => {
                let away_since = self.away_since;
                self.begin(sent, answered, away_since);
            }
        }
    }

    fn begin(&mut self, last_sent: Instant, since: Instant, away_since: Option<Instant>) {
        let outage = away_since.map_or(Duration::ZERO, |then| since.duration_since(then));
        if !outage.is_zero() {
            tracing::info!(?outage, "the API server answers again: kubelets have time to renew their leases");
        }
        self.away_since = None;
        self.stretch = Some(Stretch { since, outage, last_sent });
    }

    /// Whether the API server answered the last read, if there was any.
    pub(super) fn answers(&self) -> bool {
        self.away_since.is_none()
    }

    /// The time up to now in which the API server has answered without a break. `None`: it does not answer, or nothing was
    /// read.
    pub(super) fn stretch(&self) -> Option<Stretch> {
        self.stretch
    }

    /// From now on the API server is watched, and these Nodes are the peers.
    pub(super) fn listen_to(&mut self, names: &[String]) {
        self.is_watched = true;
        self.peers.retain(|name, _| names.contains(name));
        for name in names {
            self.peers.entry(name.clone()).or_insert(Peer::Unread);
        }
        if self.peers.is_empty() {
            self.last_heard = None;
        }
    }

    /// Names of the Nodes that were tried as peers and have no lease.
    pub(super) fn mute(&self) -> &HashSet<String> {
        &self.mute
    }

    /// Takes note of a read of this lease, if it is that of a peer.
    pub(super) fn hear(&mut self, name: &str, read: &LeaseRead) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        match read.answer() {
            LeaseAnswer::NoAnswer => {}
            LeaseAnswer::Forbidden => *peer = Peer::Mute,
            LeaseAnswer::Missing => {
                *peer = Peer::Mute;
                self.mute.insert(name.to_owned());
            }
            LeaseAnswer::Found(lease) => {
                self.mute.remove(name);
                let by = read.answered();
                let mut now = Peer::Renews {
                    renew_time: lease.renew_time.clone(),
                    duration: lease.duration,
                    sent: read.sent(),
                    since: by,
                };
                if let (
                    Peer::Renews { renew_time: before, since: seen, .. },
                    Peer::Renews { renew_time, since, .. },
                ) = (&*peer, &mut now)
                    && before == renew_time
                {
                    *since = *seen;
                }
                let before = std::mem::replace(peer, now);
                let last_heard = *self.last_heard.get_or_insert(by);
                if let Peer::Renews { renew_time, sent, since, .. } = before
                    && renew_time != lease.renew_time
                {
                    let pause = by.duration_since(last_heard);
                    // A peer that can renew is heard long before that. So none of them could.
                    if pause > silence_of(lease.duration) + MAX_PAUSE {
                        self.begin(read.sent(), by, Some(last_heard));
                    }
                    self.last_heard = Some(by);
                    self.heard.push_back(Heard {
                        after: sent,
                        by,
                        // The pause was at least as long: a read comes some time after the renewal that it shows.
                        pause: sent.saturating_duration_since(since),
                        usual: settle_time(lease.duration),
                    });
                    if self.heard.len() > MAX_HEARD {
                        self.heard.pop_front();
                    }
                }
            }
        }
    }

    /// Whether other kubelets renewed their leases at a time when a certain kubelet should have. If so, that one is silent by
    /// itself. It has a lease of this `duration`, and was silent from `since` until a read that was sent at `sent`. Where no
    /// other kubelet has a lease, none can be heard, and the answer is yes.
    pub(super) fn kubelets_are_heard(&self, since: Instant, duration: Duration, sent: Instant) -> bool {
        if self.peers.values().all(|peer| matches!(peer, Peer::Mute)) {
            return true;
        }
        // A peer that is late as well may suffer from the same fault. So may all peers that seem to be dead.
        let mut in_time = 0;
        for peer in self.peers.values() {
            match peer.renews() {
                Some(Renews::InTime) => in_time += 1,
                Some(Renews::Late) => return false,
                Some(Renews::NoMore) | None => {}
            }
        }
        if in_time == 0 || (in_time < ENOUGH_HEARD && sent < since + expiry_of(duration)) {
            return false;
        }
        let (due, settle) = (since + renewal_interval(duration), settle_time(duration));
        let Some(first) = self.heard.iter().find(|heard| heard.after >= due) else { return false };
        let mut settled_at = first.by + settle;
        for heard in self.heard.iter().filter(|heard| heard.by > due && heard.pause > heard.usual) {
            // A pause that began after all had had time to renew does not excuse a kubelet that was silent in that time.
            if heard.after - heard.pause < settled_at {
                settled_at = settled_at.max(heard.by + settle);
            }
        }
        settled_at <= sent
    }
}

impl Peer {
    /// How it renews its lease, by the last read. `None`: nobody can tell.
    fn renews(&self) -> Option<Renews> {
        let Self::Renews { duration, since, sent, .. } = self else { return None };
        let pause = sent.saturating_duration_since(*since);
        Some(if pause <= settle_time(*duration) {
            Renews::InTime
        } else if pause < *duration + settle_time(*duration) {
            Renews::Late
        } else {
            Renews::NoMore
        })
    }
}

/// How a peer renews its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renews {
    InTime,
    /// It has missed a renewal.
    Late,
    /// It has missed so many that it is taken for dead itself. Otherwise it would delay the decision on others for ever.
    NoMore,
}

/// Nodes to listen to, at most `count` of `names`. As many as possible of `current` stay, but those without a lease make room
/// for others. With [`MAX_MUTE`] of these no others are tried, since hardly any Node has a lease.
pub(super) fn choose_peers(
    current: &[String],
    names: &HashSet<&str>,
    mute: &HashSet<String>,
    count: usize,
) -> Vec<String> {
    let current = current.iter().map(String::as_str).filter(|name| names.contains(name));
    let mut order: Vec<&str> = current.collect();
    let known: HashSet<&str> = order.iter().copied().collect();
    order.extend(names.iter().filter(|name| !known.contains(*name)));
    if mute.len() < MAX_MUTE {
        // Stable: the rest keeps its order.
        order.sort_by_key(|name| mute.contains(*name));
    }
    order.into_iter().take(count).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;

//! Whether the API server responds, and whether other kubelets renew their leases. While no kubelet can renew
//! its lease, the silence of a single kubelet proves nothing. Pure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    lease::{LeaseAnswer, LeaseRead},
    renewal::{MAX_PAUSE, renewal_interval, silence_of},
};

/// A response that takes longer counts as none. Kubernetes' own objective is one second.
pub(super) const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest pause of a kubelet between two attempts to read its lease (client-go's `maxBackoff`).
const MAX_KUBELET_BACKOFF: Duration = Duration::from_secs(7);

/// The time that a renewal takes after the preceding pause, until this process sees it.
const SETTLE_SLACK: Duration = Duration::from_millis(500);

/// If fewer peers renew, they may all do so by chance between two short faults, both of which affect the
/// kubelet in question.
const ENOUGH_HEARD: usize = 3;

/// After this many Nodes without a lease, no other Nodes are tried as peers: hardly any Node of this cluster
/// has a lease.
const MAX_MUTE: usize = 100;

/// Maximum number of renewals that are remembered.
const MAX_HEARD: usize = 64;

/// The state of the API server, derived from reads of leases.
#[derive(Debug, Default)]
pub(super) struct Availability {
    /// Whether the API server is being observed. If not, the occasional reads leave gaps and prove nothing.
    is_watched: bool,
    stretch: Option<Stretch>,
    /// The earliest known start of the current outage of the API server, if there is one.
    away_since: Option<Instant>,
    peers: HashMap<String, Peer>,
    /// Names of the Nodes without a lease among the peers so far.
    mute: HashSet<String>,
    /// Renewals of peers, oldest first.
    heard: VecDeque<Heard>,
    /// When the last renewal of a peer was seen, or when the first peer's lease was read.
    last_heard: Option<Instant>,
}

/// A period in which every read was answered, without too long a pause between two reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Its start.
    pub since: Instant,
    /// The duration of the outage before it. Zero: unknown, since nothing was read.
    pub outage: Duration,
    /// When the last answered read was sent.
    last_sent: Instant,
}

/// A kubelet whose lease is read only to find out whether kubelets can renew their leases.
#[derive(Debug)]
enum Peer {
    /// Its lease has not been read yet.
    Unread,
    /// It has no lease, or reading the lease is forbidden.
    Mute,
    Renews {
        renew_time: String,
        duration: Duration,
        /// When the last read was sent.
        sent: Instant,
        /// When the present state of the lease was first seen.
        since: Instant,
    },
}

/// How long the other kubelets may need after the first one renews, once renewals are no longer refused.
///
/// A kubelet (client-go's lease controller) that can read its lease but not write it makes two rounds of five
/// attempts, and then waits for a whole renewal interval. Only if it cannot read its lease either does it
/// retry earlier.
fn settle_time(duration: Duration) -> Duration {
    renewal_interval(duration).max(MAX_KUBELET_BACKOFF) + SETTLE_SLACK
}

/// How long a kubelet must be silent if few peers renew: until its lease has expired and one more renewal is
/// missing, four in a row. For the usual lease that is 50 s, after which kube-controller-manager treats the
/// kubelet as dead.
fn expiry_of(duration: Duration) -> Duration {
    silence_of(duration).max(duration) + renewal_interval(duration)
}

/// A renewal of a peer's lease.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// When the last read without this renewal was sent.
    after: Instant,
    /// When the read that showed it was answered.
    by: Instant,
    /// The minimum time without a renewal of this peer, up to `after`.
    pause: Duration,
    /// The maximum length of such a pause if no renewal is refused.
    usual: Duration,
}

impl Availability {
    /// Records any read, immediately.
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
            // Either the API server or this process was suspended. In both cases it is unknown what happened
            // meanwhile.
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

    /// Whether the last read was answered, or there was none.
    pub(super) fn answers(&self) -> bool {
        self.away_since.is_none()
    }

    /// The current period in which the API server has responded without interruption. `None`: it does not
    /// respond, or nothing was read.
    pub(super) fn stretch(&self) -> Option<Stretch> {
        self.stretch
    }

    /// From now on the API server is observed, with these Nodes as peers.
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

    /// Records a read of this lease if it belongs to a peer.
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
                    // A peer that can renew does so much earlier. So no peer could.
                    if pause > silence_of(lease.duration) + MAX_PAUSE {
                        self.begin(read.sent(), by, Some(last_heard));
                    }
                    self.last_heard = Some(by);
                    self.heard.push_back(Heard {
                        after: sent,
                        by,
                        // This is a lower bound, since the read that shows a renewal comes some time after
                        // it.
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

    /// Whether other kubelets renewed their leases at a time when this kubelet should have renewed its own.
    /// If so, the fault is its own. Its lease has this `duration`, and it was silent from `since` until the
    /// read sent at `sent`. If no peer has a lease, the answer is yes, since no renewal could be seen.
    pub(super) fn kubelets_are_heard(&self, since: Instant, duration: Duration, sent: Instant) -> bool {
        if self.peers.values().all(|peer| matches!(peer, Peer::Mute)) {
            return true;
        }
        // A peer that is late as well may suffer from the same fault. So may all peers if they seem to be
        // dead.
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
            // A pause that began after all kubelets had had time to renew does not excuse a kubelet that was
            // silent during that time.
            if heard.after - heard.pause < settled_at {
                settled_at = settled_at.max(heard.by + settle);
            }
        }
        settled_at <= sent
    }
}

impl Peer {
    /// How regularly it renews its lease, according to the last read. `None`: unknown.
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

/// How regularly a peer renews its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renews {
    InTime,
    /// It has missed one renewal.
    Late,
    /// It has missed so many renewals that it counts as dead. Otherwise it would delay the decisions about
    /// other Nodes for ever.
    NoMore,
}

/// Chooses Nodes whose leases are read as peers, at most `count` of `names`. As many as possible of `current`
/// stay, but Nodes without a lease are replaced. After [`MAX_MUTE`] of these no others are tried, since
/// hardly any Node has a lease.
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
        // The sort is stable: the other names keep their order.
        order.sort_by_key(|name| mute.contains(*name));
    }
    order.into_iter().take(count).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;

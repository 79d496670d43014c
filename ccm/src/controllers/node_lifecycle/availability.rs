//! Whether the API server answers, and whether kubelets are heard at all: time in which nobody could renew a lease is no
//! silence of one kubelet. Pure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    lease::{LeaseAnswer, LeaseRead},
    renewal::{MAX_PAUSE, renewal_interval, silence_of},
};

/// An answer that takes longer is none. Kubernetes' own objective is one second.
pub(super) const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest pause of a kubelet between two tries to read its lease (client-go's `maxBackoff`).
const MAX_KUBELET_BACKOFF: Duration = Duration::from_secs(7);

/// What a renewal takes beside the pause before it, and until it is noticed.
const SETTLE_SLACK: Duration = Duration::from_millis(500);

/// With fewer kubelets that are heard, chance may let all of them renew between two short faults that each hit the one in
/// question.
const ENOUGH_HEARD: usize = 3;

/// After so many Nodes without a lease no other Node is tried instead of them.
const MAX_MUTE: usize = 100;

/// Renewals that are remembered.
const MAX_HEARD: usize = 64;

/// What reads of leases say of the API server.
#[derive(Debug, Default)]
pub(super) struct Availability {
    /// Whether anybody wants to know. What was asked before says nothing of the time in between.
    is_watched: bool,
    stretch: Option<Stretch>,
    /// While it does not answer: since when, at least.
    away_since: Option<Instant>,
    peers: HashMap<String, Peer>,
    /// Names of those that had no lease when they were peers.
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
    /// How long the outage was before it. Zero: nobody asked.
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
    /// It was not there when this was.
    after: Instant,
    /// It was there by then.
    by: Instant,
    /// How long this peer was not heard before `after`, at least.
    pause: Duration,
    /// The longest that takes where nothing is refused.
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
            // It hung, or we did: either way nobody knows what was in between.
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

    /// Whether it answered what it was asked last, if anything.
    pub(super) fn answers(&self) -> bool {
        self.away_since.is_none()
    }

    /// The time in which it has answered up to now. `None`: it does not, or was not asked.
    pub(super) fn stretch(&self) -> Option<Stretch> {
        self.stretch
    }

    /// From now on somebody wants to know, and these are the peers.
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

    /// Names of the Nodes of which nothing can be heard, as far as they were tried.
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
                    // One that renews is heard long before that: nobody could renew.
                    if pause > silence_of(lease.duration) + MAX_PAUSE {
                        self.begin(read.sent(), by, Some(last_heard));
                    }
                    self.last_heard = Some(by);
                    self.heard.push_back(Heard {
                        after: sent,
                        by,
                        // At least: reads come some time after what they show.
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

    /// Whether other kubelets were heard to renew their leases when one with leases of this `duration` should have, which was
    /// silent from `since` until a read that was sent then: so it is silent by itself. Where no other kubelet has a lease
    /// there is nobody to be heard, and nothing to be learned from that.
    pub(super) fn kubelets_are_heard(&self, since: Instant, duration: Duration, sent: Instant) -> bool {
        if self.peers.values().all(|peer| matches!(peer, Peer::Mute)) {
            return true;
        }
        // Another one that is late as well may have met with the same fault, and so may all that seem to be dead.
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
            // A pause that began when all had had their time says nothing of who was silent through that.
            if heard.after - heard.pause < settled_at {
                settled_at = settled_at.max(heard.by + settle);
            }
        }
        settled_at <= sent
    }
}

impl Peer {
    /// How it renews its lease, by the last read. `None`: it cannot be told.
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
    /// It has missed so many that it is taken for dead itself, by which nobody is delayed for ever.
    NoMore,
}

/// Nodes to listen to, at most `count` of `names`: as few changes of `current` as can be, but those of which nothing can be
/// heard make room for others. After so many of these that hardly any Node has a lease, nobody else is tried.
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

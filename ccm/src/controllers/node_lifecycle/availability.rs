//! Whether the API server answers, and whether kubelets are heard at all: time in which nobody could renew a lease is no
//! silence of one kubelet. Pure.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    lease::{LeaseAnswer, LeaseRead},
    silence::silence_of,
};

/// An answer that takes longer is none. Kubernetes' own objective is one second.
pub(super) const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest pause between two reads that were answered, from sending to sending, in which nothing can have been amiss
/// that matters. A kubelet's renewal can be late by that much without being noticed, so it is less than the slack in
/// [`silence_of`].
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// After a kubelet is heard again, as long until all others must have been whose requests waited: they are served in any
/// order.
const SETTLE: Duration = Duration::from_secs(2);

/// The same for those whose requests were refused: a kubelet doubles its pauses between two tries, up to 7 s. So after a
/// time in which nobody was heard it may take as long again.
const MAX_SETTLE: Duration = Duration::from_secs(8);

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
        sent: Instant,
    },
}

/// A renewal of a peer.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// It was not there when this was.
    after: Instant,
    /// It was there by then.
    by: Instant,
    /// How long nobody was heard before it.
    pause: Duration,
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

    /// Takes note of a read of this lease, if it is that of a peer.
    pub(super) fn hear(&mut self, name: &str, read: &LeaseRead) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        match read.answer() {
            LeaseAnswer::NoAnswer => {}
            LeaseAnswer::Missing | LeaseAnswer::Forbidden => *peer = Peer::Mute,
            LeaseAnswer::Found(lease) => {
                let now = Peer::Renews { renew_time: lease.renew_time.clone(), sent: read.sent() };
                let before = std::mem::replace(peer, now);
                let last_heard = *self.last_heard.get_or_insert(read.answered());
                if let Peer::Renews { renew_time, sent } = before
                    && renew_time != lease.renew_time
                {
                    let by = read.answered();
                    let pause = by.duration_since(last_heard);
                    // One that renews is heard long before that: nobody could renew.
                    if pause > silence_of(lease.duration) + MAX_PAUSE {
                        self.begin(read.sent(), by, Some(last_heard));
                    }
                    self.last_heard = Some(by);
                    self.heard.push_back(Heard { after: sent, by, pause });
                    if self.heard.len() > MAX_HEARD {
                        self.heard.pop_front();
                    }
                }
            }
        }
    }

    /// Whether other kubelets were heard to renew their leases after `due`, so that one which was not, in a read that was
    /// sent then, is silent by itself. Where no other kubelet has a lease there is nobody to be heard, and nothing to be
    /// learned from that.
    pub(super) fn kubelets_are_heard(&self, due: Instant, sent: Instant) -> bool {
        if self.peers.values().all(|peer| matches!(peer, Peer::Mute)) {
            return true;
        }
        let Some(first) = self.heard.iter().find(|heard| heard.after >= due) else { return false };
        let mut settled_at = first.by + SETTLE;
        for heard in self.heard.iter().filter(|heard| heard.by > due && heard.pause > SETTLE) {
            // A pause that began when all had had their time says nothing of who was silent through that.
            if heard.by - heard.pause < settled_at {
                settled_at = settled_at.max(heard.by + heard.pause.min(MAX_SETTLE));
            }
        }
        settled_at <= sent
    }
}

#[cfg(test)]
mod tests {
    use super::{super::lease::LeaseView, *};

    const QUICK: Duration = Duration::from_millis(5);

    fn seconds(n: f64) -> Duration {
        Duration::from_secs_f64(n)
    }

    fn found(renew_time: &str) -> LeaseAnswer {
        LeaseAnswer::Found(LeaseView { renew_time: renew_time.into(), duration: seconds(40.0) })
    }

    fn watched() -> Availability {
        Availability { is_watched: true, ..Availability::default() }
    }

    fn answered(sent: Instant) -> LeaseRead {
        LeaseRead::fake("", sent, QUICK, LeaseAnswer::Missing)
    }

    #[test]
    fn a_stretch_begins_anew_after_each_outage() {
        let start = Instant::now();
        let mut api = Availability::default();
        api.note(&answered(start));
        assert_eq!(api.stretch(), None, "nobody wants to know");
        let mut api = watched();
        for n in 0..10 {
            api.note(&answered(start + seconds(1.9) * n));
        }
        let first = api.stretch().expect("it answers");
        assert_eq!((first.since, first.outage), (start + QUICK, Duration::ZERO));
        let last = start + seconds(1.9) * 9;
        // An answer that says nothing, or comes late, is none.
        for bad in [
            LeaseRead::fake("", last + seconds(1.0), QUICK, LeaseAnswer::NoAnswer),
            LeaseRead::fake("", last + seconds(1.0), seconds(9.0), found("a")),
        ] {
            let mut api = Availability { stretch: api.stretch, ..watched() };
            api.note(&bad);
            assert_eq!(api.stretch(), None, "{bad:?}");
            let thawed = last + seconds(10.0);
            api.note(&answered(thawed));
            let again = api.stretch().expect("it answers again");
            assert_eq!((again.since, again.outage), (thawed + QUICK, seconds(10.0) + QUICK));
        }
    }

    #[test]
    fn a_pause_is_an_outage_whoever_made_it() {
        let start = Instant::now();
        let mut api = watched();
        api.note(&answered(start));
        api.note(&answered(start + seconds(2.1)));
        let stretch = api.stretch().expect("it answers");
        assert_eq!((stretch.since, stretch.outage), (start + seconds(2.1) + QUICK, seconds(2.1) + QUICK));
        // Reads end in another order than they begin.
        api.note(&answered(start + seconds(1.0)));
        assert_eq!(api.stretch(), Some(stretch));
    }

    #[test]
    fn kubelets_are_heard_when_somebody_renews_in_time() {
        let start = Instant::now();
        let at = |second: f64| start + seconds(second);
        let mut api = watched();
        assert!(api.kubelets_are_heard(at(0.0), at(100.0)), "there is nobody to be heard");
        api.listen_to(&["a".into(), "b".into()]);
        assert!(!api.kubelets_are_heard(at(0.0), at(100.0)), "nobody was asked");
        api.hear("b", &LeaseRead::fake("", at(0.0), QUICK, LeaseAnswer::Missing));
        api.hear("a", &LeaseRead::fake("", at(0.0), QUICK, found("1")));
        api.hear("a", &LeaseRead::fake("", at(5.0), QUICK, found("1")));
        assert!(!api.kubelets_are_heard(at(0.0), at(100.0)), "nobody renewed");
        api.hear("a", &LeaseRead::fake("", at(6.0), QUICK, found("2")));
        assert!(
            !api.kubelets_are_heard(at(5.0), at(11.9)),
            "nobody was for 6 s: others may wait as long again"
        );
        assert!(api.kubelets_are_heard(at(5.0), at(12.1)));
        api.hear("a", &LeaseRead::fake("", at(7.0), QUICK, found("3")));
        assert!(!api.kubelets_are_heard(at(6.0), at(8.9)), "others may be about to");
        assert!(api.kubelets_are_heard(at(6.0), at(12.1)));
        assert!(!api.kubelets_are_heard(at(6.1), at(100.0)), "it may have been before that");
        api.listen_to(&["b".into()]);
        assert!(api.kubelets_are_heard(at(50.0), at(100.0)), "who has no lease cannot be heard");
    }

    #[test]
    fn silence_of_all_together_is_an_outage() {
        let start = Instant::now();
        let mut api = watched();
        api.listen_to(&["a".into()]);
        let mut sent = start;
        let mut read = |api: &mut Availability, until: f64, renew_time: &str| {
            while sent < start + seconds(until) {
                let read = LeaseRead::fake("", sent, QUICK, found(renew_time));
                api.note(&read);
                api.hear("a", &read);
                sent += seconds(0.25);
            }
        };
        read(&mut api, 10.5, "1");
        read(&mut api, 21.0, "2");
        assert_eq!(api.stretch().map(|stretch| stretch.outage), Some(Duration::ZERO));
        read(&mut api, 36.0, "3");
        read(&mut api, 36.25, "4");
        let stretch = api.stretch().expect("it answers");
        assert_eq!((stretch.since, stretch.outage), (start + seconds(36.0) + QUICK, seconds(15.0)));
    }
}

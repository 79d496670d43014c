//! How many connections there may be, and which one makes room for another.
//!
//! Whoever opens connections must keep nobody from asking, least of all the kubelet, which restarts who does not answer
//! it. So a new connection always gets a place: where there is none left, that of the connection on which nothing
//! happened for longest, of whoever has most of them. Those that are new, said something and were not answered yet go last,
//! so that who comes and asks at once is gone before its turn comes.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a new connection may take until its first answer before it counts as one of many.
const GRACE: Duration = Duration::from_secs(5);

/// Where connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// This machine, as the kubelet of a daemon in the host's network. Its places are its own.
    Here,
    Address(IpAddr),
}

impl Source {
    pub(super) fn of(peer: IpAddr, local: Option<IpAddr>) -> Self {
        if peer.is_loopback() || local == Some(peer) {
            return Self::Here;
        }
        Self::Address(match peer {
            IpAddr::V4(_) => peer,
            // Whoever has one address of IPv6 has all of its network.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// Keeps count of connections. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    open: Arc<Mutex<Open>>,
    connections: usize,
    from_one_source: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Rises with each thing that happens.
    time: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    source: Source,
    /// When something happened on it.
    last: u64,
    began: Instant,
    /// Whether anything came.
    heard: bool,
    /// Whether a request was answered.
    answered: bool,
    evicted: CancellationToken,
}

impl Connection {
    fn waits_for_us(&self) -> bool {
        self.heard && !self.answered && self.began.elapsed() < GRACE
    }
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: u64,
    evicted: CancellationToken,
}

impl Slots {
    /// So many at the same time from other machines, and so many from one of them or from here.
    pub(super) fn new(connections: usize, from_one_source: usize) -> Self {
        Self { open: Arc::default(), connections, from_one_source }
    }

    /// A place for a connection from there.
    pub(super) fn take(&self, source: Source) -> Slot {
        let mut open = self.lock();
        let counts = open.counts();
        let count = |source: Source| counts.get(&source).copied().unwrap_or_default();
        let others = open.connections.len() - count(Source::Here);
        let has_its_share = count(source) >= self.from_one_source;
        if has_its_share || (source != Source::Here && others >= self.connections) {
            let may_go = |one: &Connection| {
                if has_its_share { one.source == source } else { one.source != Source::Here }
            };
            let those = open.connections.iter().filter(|(_, one)| may_go(one));
            let victim =
                those.min_by_key(|(_, one)| (Reverse(count(one.source)), one.waits_for_us(), one.last));
            if let Some(one) = victim.map(|(&id, _)| id).and_then(|id| open.connections.remove(&id)) {
                one.evicted.cancel();
            }
        }
        let (id, evicted) = (open.tick(), CancellationToken::new());
        let (began, token) = (Instant::now(), evicted.clone());
        open.connections.insert(
            id,
            Connection { source, last: id, began, heard: false, answered: false, evicted: token },
        );
        drop(open);
        Slot { slots: self.clone(), id, evicted }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn counts(&self) -> HashMap<Source, usize> {
        let mut counts = HashMap::new();
        for one in self.connections.values() {
            *counts.entry(one.source).or_default() += 1;
        }
        counts
    }
}

impl Slot {
    /// Waits until another connection takes the place.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Says that something happens: the client is encrypted, or a request begins.
    pub(super) fn used(&self) {
        self.note(|_| {});
    }

    /// Says that the client sent something.
    pub(super) fn heard(&self) {
        self.note(|one| one.heard = true);
    }

    /// Says that a request was answered.
    pub(super) fn answered(&self) {
        self.note(|one| one.answered = true);
    }

    fn note(&self, what: impl FnOnce(&mut Connection)) {
        let mut open = self.slots.lock();
        let now = open.tick();
        if let Some(one) = open.connections.get_mut(&self.id) {
            one.last = now;
            what(one);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn there(last: u8) -> Source {
        Source::of(IpAddr::from([192, 0, 2, last]), Some(IpAddr::from([192, 0, 2, 200])))
    }

    fn are_open<const N: usize>(slots: [&Slot; N]) -> [bool; N] {
        slots.map(|slot| !slot.evicted.is_cancelled())
    }

    #[test]
    fn the_node_itself_is_here() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let six: IpAddr = "::1".parse().expect("an address");
        let here = [own, Ipv4Addr::LOCALHOST.into(), IpAddr::from([127, 0, 0, 9]), six];
        assert!(here.iter().all(|peer| Source::of(*peer, Some(own)) == Source::Here));
        assert_eq!(Source::of(own, None), Source::Address(own));
        let of = |address: &str| Source::of(address.parse().expect("an address"), Some(own));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_not_answered_yet_stays() {
        let slots = Slots::new(100, 2);
        let (busy, new) = (slots.take(there(1)), slots.take(there(1)));
        busy.answered();
        new.heard();
        busy.answered();
        // Though it is the one on which something happened last.
        let third = slots.take(there(1));
        assert_eq!(are_open([&busy, &new, &third]), [false, true, true]);
        tokio::time::advance(GRACE).await;
        third.answered();
        let fourth = slots.take(there(1));
        assert_eq!(are_open([&new, &third, &fourth]), [false, true, true], "it had its time");
        fourth.heard();
        third.used();
        let _fifth = slots.take(there(1));
        let _sixth = slots.take(there(1));
        assert_eq!(are_open([&third, &fourth]), [false, true], "who says nothing goes first");
    }

    #[test]
    fn one_address_does_not_take_all() {
        let slots = Slots::new(100, 2);
        let (first, second, other) = (slots.take(there(1)), slots.take(there(1)), slots.take(there(2)));
        first.used();
        let third = slots.take(there(1));
        assert_eq!(are_open([&first, &second, &third, &other]), [true, false, true, true]);
        let fourth = slots.take(there(1));
        assert_eq!(are_open([&first, &third, &fourth, &other]), [false, true, true, true]);
    }

    #[test]
    fn who_has_most_makes_room() {
        let slots = Slots::new(4, 3);
        let single = slots.take(there(2));
        let crowd = [0; 3].map(|_| slots.take(there(1)));
        let newcomer = slots.take(there(3));
        assert_eq!(are_open([&crowd[0], &crowd[1], &single, &newcomer]), [false, true, true, true]);
    }

    #[test]
    fn nobody_else_takes_the_places_of_here() {
        let slots = Slots::new(2, 2);
        let others = [slots.take(there(1)), slots.take(there(2))];
        let here = [slots.take(Source::Here), slots.take(Source::Here)];
        assert_eq!(are_open([&others[0], &others[1], &here[0], &here[1]]), [true; 4]);
        let probe = slots.take(Source::Here);
        assert_eq!(are_open([&here[0], &here[1], &probe]), [false, true, true]);
        let crowd = [0; 5].map(|_| slots.take(there(3)));
        assert_eq!(
            are_open([&others[0], &others[1], &here[1], &probe, &crowd[4]]),
            [false, false, true, true, true]
        );
    }

    #[test]
    fn a_place_is_free_again() {
        let slots = Slots::new(2, 2);
        let taken = [slots.take(there(1)), slots.take(Source::Here)];
        drop(taken);
        assert!(slots.lock().connections.is_empty());
    }
}

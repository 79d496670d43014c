//! Which connections may be open, and how much memory they may hold.
//!
//! Clients of this node, such as its kubelet, have a share of the connections, and all others have another one. A new connection is
//! always admitted: if its share is used up, it replaces a connection of the client that has most in that share. An idle connection
//! goes first: its client has all answers. Without an idle one, any may go, at random. So one client takes nothing from others, and no
//! request is lost while the share has room for all busy connections. Where many clients attack together, each busy connection is as
//! likely as any other to last, whatever it does: with `n` places and `r` new connections a second, a request of `t` seconds is
//! answered with a probability of at least e^(-rt/n), and clients retry.
//!
//! A connection is busy from its first byte until its first answer is written. If a handshake counted as idle, attackers with requests
//! under way could keep all new clients out.
//!
//! Memory has one bound for all connections. Each counts with the most that it can hold by itself, plus its certificates, requests
//! and responses. Beyond the bound, the client with most memory loses the connection that holds most.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::limits::CONNECTION_MEMORY;
use crate::serving::server::source::Source;

/// Clients with up to this part of a share or of the memory count as equal: who has a few connections more than others is no attacker.
const LITTLE: usize = 16;

/// Admits connections. Clones share the state.
#[derive(Clone, Debug)]
pub(in super::super) struct Admission {
    open: Arc<Mutex<Open>>,
    /// Connections of this node.
    here: usize,
    /// Connections of all other clients.
    elsewhere: usize,
    /// Bytes of all connections.
    memory: u64,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Bytes that all connections hold.
    held: u64,
    connections: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    /// Bytes that it holds.
    held: u64,
    /// Requests whose response hyper does not have in full. `None`: there was no request yet.
    under_way: Option<usize>,
    /// Whether its client has all that it asked for.
    is_idle: bool,
    replaced: CancellationToken,
}

/// An open connection. Its place is free again when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Connection {
    pub source: Source,
    admission: Admission,
    id: u64,
    replaced: CancellationToken,
}

/// Memory of a connection, counted until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Held {
    connection: Arc<Connection>,
    bytes: u64,
}

/// A request on a connection, with its memory, until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    held: Held,
}

impl Admission {
    /// How many connections this node and all other clients may have, and the bytes that all connections may hold.
    pub(super) fn new(here: usize, elsewhere: usize, memory: u64) -> Self {
        Self { open: Arc::default(), here, elsewhere, memory }
    }

    /// Admits a connection of this client. Another one may be closed for it.
    pub(super) fn admit(&self, source: Source) -> Arc<Connection> {
        let mut open = self.open.lock();
        let is_here = source == Source::Here;
        let share = if is_here { self.here } else { self.elsewhere };
        let is_of_share = |entry: &Entry| (entry.source == Source::Here) == is_here;
        let counts = open.sum(|entry| usize::from(is_of_share(entry)));
        if counts.values().sum::<usize>() >= share {
            let few = share / LITTLE;
            open.close_one(is_of_share, |entry, _| {
                let of_client = counts.get(&entry.source).copied().unwrap_or_default();
                (of_client.max(few), entry.is_idle, fastrand::u64(..))
            });
        }
        open.next += 1;
        let (id, replaced) = (open.next, CancellationToken::new());
        let entry = Entry { source, held: 0, under_way: None, is_idle: false, replaced: replaced.clone() };
        open.connections.insert(id, entry);
        self.hold(&mut open, id, CONNECTION_MEMORY);
        Arc::new(Connection { source, admission: self.clone(), id, replaced })
    }

    /// Adds bytes to this connection if it still has its place. Without memory for them connections are closed, possibly this one.
    fn hold(&self, open: &mut Open, id: u64, bytes: u64) {
        let Some(entry) = open.connections.get_mut(&id) else { return };
        entry.held += bytes;
        open.held += bytes;
        let little = self.memory / LITTLE as u64;
        while open.held > self.memory {
            let held = open.sum(|entry| entry.held);
            let is_closed = open.close_one(
                |_| true,
                |entry, id| {
                    let of_client = held.get(&entry.source).copied().unwrap_or_default();
                    (of_client.max(little), entry.held, Reverse(id))
                },
            );
            if !is_closed {
                break;
            }
        }
    }
}

impl Open {
    /// The sum for each client.
    fn sum<N: Default + std::ops::AddAssign>(&self, of: impl Fn(&Entry) -> N) -> HashMap<Source, N> {
        let mut sums = HashMap::<Source, N>::new();
        for entry in self.connections.values() {
            *sums.entry(entry.source).or_default() += of(entry);
        }
        sums
    }

    /// Closes the connection with the largest weight among those that may go. Returns whether there is one.
    fn close_one<W: Ord>(
        &mut self,
        may_go: impl Fn(&Entry) -> bool,
        weight: impl Fn(&Entry, u64) -> W,
    ) -> bool {
        let all = self.connections.iter().filter(|(_, entry)| may_go(entry));
        let heaviest = all.max_by_key(|(id, entry)| weight(entry, **id)).map(|(id, _)| *id);
        let Some(entry) = heaviest.and_then(|id| self.remove(id)) else { return false };
        entry.replaced.cancel();
        true
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.connections.remove(&id)?;
        self.held -= entry.held;
        Some(entry)
    }
}

impl Connection {
    /// Waits until this connection has to make room for others.
    pub(super) async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// Adds bytes to this connection. Without memory for them connections are closed, possibly this one.
    pub(in super::super) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX / 4);
        self.admission.hold(&mut self.admission.open.lock(), self.id, bytes);
        Held { connection: self.clone(), bytes }
    }

    /// Begins a request that takes this memory.
    pub(super) fn request(self: &Arc<Self>, bytes: usize) -> UnderWay {
        if let Some(entry) = self.admission.open.lock().connections.get_mut(&self.id) {
            entry.under_way = Some(entry.under_way.unwrap_or_default() + 1);
            entry.is_idle = false;
        }
        UnderWay { held: self.hold(bytes) }
    }

    /// Records that all responses that hyper has were written. Only then is a connection without requests idle.
    pub(super) fn all_is_written(&self) {
        if let Some(entry) = self.admission.open.lock().connections.get_mut(&self.id) {
            entry.is_idle = entry.under_way == Some(0);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.admission.open.lock().remove(self.id);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.connection.admission.open.lock();
        if let Some(entry) = open.connections.get_mut(&self.connection.id) {
            entry.held -= self.bytes;
            open.held -= self.bytes;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let connection = &self.held.connection;
        if let Some(entry) = connection.admission.open.lock().connections.get_mut(&connection.id) {
            entry.under_way = entry.under_way.map(|requests| requests - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A client elsewhere.
    fn client(last: u8) -> Source {
        Source::Address(IpAddr::from([192, 0, 2, last]))
    }

    fn admit(admission: &Admission, source: Source, count: usize) -> Vec<Arc<Connection>> {
        (0..count).map(|_| admission.admit(source)).collect()
    }

    fn open(connections: &[Arc<Connection>]) -> usize {
        connections.iter().filter(|connection| !connection.replaced.is_cancelled()).count()
    }

    #[test]
    fn nobody_elsewhere_takes_the_share_of_this_node() {
        let admission = Admission::new(4, 8, u64::MAX);
        let probes = admit(&admission, Source::Here, 4);
        let strangers: Vec<_> = (0..100).map(|last| admission.admit(client(last))).collect();
        assert_eq!((open(&probes), open(&strangers)), (4, 8));
        let more = admit(&admission, Source::Here, 9);
        assert_eq!((open(&probes) + open(&more), open(&strangers)), (4, 8), "nor the other way round");
        assert_eq!(open(&more[8..]), 1, "a new connection is admitted");
    }

    #[test]
    fn the_client_with_most_makes_room() {
        let admission = Admission::new(4, 32, u64::MAX);
        let others: Vec<_> = (1..=10).map(|last| admission.admit(client(last))).collect();
        let attackers = admit(&admission, client(99), 1000);
        assert_eq!((open(&others), open(&attackers)), (10, 22));
        assert_eq!(open(&attackers[999..]), 1);
        let new = admit(&admission, client(11), 1);
        assert_eq!((open(&others), open(&attackers), open(&new)), (10, 21, 1));
        drop(attackers);
        let many = admit(&admission, client(99), 21);
        assert_eq!((open(&others), open(&many)), (10, 21), "a closed connection leaves its place");
    }

    #[test]
    fn an_idle_connection_makes_room_first() {
        let admission = Admission::new(4, 4, u64::MAX);
        // One in each state; many times, since what goes may be chosen at random.
        for _ in 0..100 {
            let handshake = admission.admit(Source::Here);
            let under_way = admission.admit(Source::Here);
            let _request = under_way.request(1);
            under_way.all_is_written();
            let unsent = admission.admit(Source::Here);
            drop(unsent.request(1));
            let idle = admission.admit(Source::Here);
            drop(idle.request(1));
            idle.all_is_written();
            let new = admission.admit(Source::Here);
            assert_eq!((open(&[idle]), open(&[handshake, under_way, unsent, new])), (0, 4));
        }
    }

    #[test]
    fn an_idle_connection_that_is_used_again_is_busy() {
        let admission = Admission::new(2, 2, u64::MAX);
        let [first, second] = [(); 2].map(|()| {
            let connection = admission.admit(Source::Here);
            drop(connection.request(1));
            connection.all_is_written();
            connection
        });
        let _request = first.request(1);
        let _new = admission.admit(Source::Here);
        assert_eq!((open(&[first]), open(&[second])), (1, 0));
    }

    #[test]
    fn who_has_most_makes_room_before_who_has_an_idle_connection() {
        let admission = Admission::new(4, 32, u64::MAX);
        let scrape = admission.admit(client(1));
        drop(scrape.request(1));
        scrape.all_is_written();
        let attackers = admit(&admission, client(99), 100);
        assert_eq!((open(&[scrape]), open(&attackers)), (1, 31));
    }

    #[test]
    fn where_all_clients_have_little_any_connection_goes() {
        // Each attempt replaces one of 32 connections, so all but one in 10^13 runs see the first one go.
        let replaced = (0..1000).any(|_| {
            let admission = Admission::new(4, 32, u64::MAX);
            let first = admit(&admission, client(0), 2);
            let _others: Vec<_> = (1..=31).map(|last| admission.admit(client(last))).collect();
            open(&first) < 2
        });
        let kept = (0..1000).any(|_| {
            let admission = Admission::new(4, 32, u64::MAX);
            let first = admit(&admission, client(0), 2);
            let _others: Vec<_> = (1..=31).map(|last| admission.admit(client(last))).collect();
            open(&first) == 2
        });
        assert!(replaced && kept);
    }

    #[test]
    fn the_client_with_most_memory_loses_its_largest_connection() {
        const ALL: u64 = 64 * CONNECTION_MEMORY;
        let admission = Admission::new(64, 64, ALL);
        let kubelet = admit(&admission, Source::Here, 4);
        let scrape = admit(&admission, client(1), 1);
        let answer = scrape[0].hold(3 * usize::try_from(CONNECTION_MEMORY).expect("small"));
        let attackers = admit(&admission, client(2), 20);
        let sizes = (0..1000).map(|index| 100_000 + index);
        let held: Vec<_> = attackers.iter().cycle().zip(sizes).map(|(one, size)| one.hold(size)).collect();
        assert_eq!((open(&kubelet), open(&scrape)), (4, 1), "the attacker had most");
        assert!((1..20).contains(&open(&attackers)), "{}", open(&attackers));
        assert!(admission.open.lock().held <= ALL);
        drop((held, attackers));
        let left = 8 * CONNECTION_MEMORY;
        assert_eq!(admission.open.lock().held, left, "what ended leaves nothing");
        drop((answer, scrape, kubelet));
        let open = admission.open.lock();
        assert_eq!((open.held, open.connections.len()), (0, 0));
    }
}

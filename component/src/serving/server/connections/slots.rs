//! Limits the number of connections and their memory, and chooses which connection to evict for a new one.
//!
//! A client that opens many connections must not block others, least of all the kubelet, which restarts a
//! daemon that does not answer its probes. So a new connection always gets a slot. If no slot is free, the
//! source with the most connections loses the one without activity for the longest time. Connections that
//! wait for the server are evicted last ([`Standing`]): a new connection until it had time to send a request,
//! and above all a connection whose request is not answered yet. So a client that asks at once is served
//! before it would be evicted, and a client that reuses a kept-alive connection is not evicted meanwhile. A
//! source cannot fill the slots with waiting connections: only a limited number of them count as waiting, so
//! there is always a less important connection to evict.
//!
//! Memory is shared in the same way. Each connection counts with the most that it can hold, plus the memory
//! of its certificates, requests and responses. If the sum exceeds the limit, the source that holds the most
//! memory loses a connection.

use std::{cmp::Reverse, collections::HashMap, hash::Hash, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::{CONNECTION_MEMORY, HANDSHAKE_MEMORY, MAX_ANSWER, REQUEST_MEMORY};
use crate::serving::server::source::Source;

/// How long a new connection counts as waiting before its first bytes arrive. Clients send these at once, so
/// only the network delays them.
const SILENT_GRACE: Duration = Duration::from_secs(1);

/// The same for a handshake with the first request, and for each request. A review may take as long.
const GRACE: Duration = Duration::from_secs(10);

/// Up to this number of requests within `GRACE`, a waiting connection is not evicted before another one of
/// the same standing. With more requests it is evicted first: it has had its responses, and a client with a
/// single request may wait long beside clients that send requests without end.
const FEW_REQUESTS: u32 = 8;

/// Up to this fraction of the slots of one source, sources count as equal.
const FEW: usize = 16;

/// The same for all memory: more than a response takes.
const LITTLE: u64 = 8;

/// How much would be lost with a connection, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Standing {
    /// Nothing: it does not wait for the server, or has waited for too long.
    Idle,
    /// A new connection that has sent nothing yet. It costs its client one packet.
    Silent,
    /// A response that is ready but that the client has not taken yet.
    Answered,
    /// A handshake, or the first request after it.
    Handshake,
    /// A request whose response is not ready yet.
    Owed,
}

impl Standing {
    /// The maximum number of one source's connections that may have this standing. If there are more, they
    /// are evicted before all other waiting ones, which leaves slots for new connections. The cheaper a
    /// standing is to reach, the smaller its share.
    fn share(self, from_one_source: usize) -> usize {
        let part = match self {
            Self::Idle | Self::Silent => return usize::MAX,
            Self::Answered => 8,
            Self::Handshake => 4,
            Self::Owed => 2,
        };
        (from_one_source / part).max(1)
    }
}

/// Counts connections. Clones share the counts.
#[derive(Clone, Debug)]
pub(in super::super) struct Slots {
    open: Arc<Mutex<Open>>,
    connections: usize,
    from_one_source: usize,
    /// In bytes.
    memory: u64,
}

#[derive(Debug, Default)]
struct Open {
    /// Increases with each event.
    time: u64,
    /// Bytes that all connections hold.
    held: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    source: Source,
    address: IpAddr,
    /// The time of the last event on it.
    last: u64,
    heard: bool,
    /// Until when it counts as waiting for the server.
    waits_until: Instant,
    /// Whether all of its requests have their responses. Before the first request it waits for that one.
    is_done: bool,
    /// Whether data for the client is still to be sent.
    has_unsent: bool,
    /// Requests in progress: the response is not ready, or the HTTP library does not have all of it.
    requests: usize,
    /// The number of these whose response is not ready.
    owed: usize,
    /// The number of recent requests, and the time since which they are counted.
    recent: (u32, Instant),
    /// Bytes that it holds.
    held: u64,
    evicted: CancellationToken,
}

/// The slot of one connection. It is free again when dropped.
#[derive(Debug)]
pub(in super::super) struct Slot {
    pub source: Source,
    slots: Slots,
    id: u64,
    evicted: CancellationToken,
}

/// A request in progress. Dropped when the HTTP library has the whole response, or the client does not want it
/// any more.
#[derive(Debug)]
pub(in super::super) struct UnderWay {
    slot: Arc<Slot>,
    _held: Held,
    /// The memory of the response, once it is ready.
    answer: Option<Held>,
}

/// Memory of a connection, counted until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Held {
    slot: Arc<Slot>,
    bytes: u64,
}

/// Ordered by the first field, then by the next ones.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    waits: bool,
    is_within_share: bool,
    standing: Standing,
    recent: Reverse<u32>,
    last: u64,
}

impl Connection {
    fn standing(&self, now: Instant) -> Standing {
        if self.waits_until <= now || (self.is_done && !self.has_unsent) {
            Standing::Idle
        } else if self.owed > 0 {
            Standing::Owed
        } else if self.requests > 0 || self.is_done {
            Standing::Answered
        } else if self.heard {
            Standing::Handshake
        } else {
            Standing::Silent
        }
    }

    /// The number of recent requests, if the connection waits for the server.
    fn recent(&self, now: Instant) -> u32 {
        let (count, since) = self.recent;
        let is_over = now.duration_since(since) >= GRACE;
        if is_over || self.standing(now) == Standing::Idle { 0 } else { count }
    }

    fn request(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.recent.1) >= GRACE {
            self.recent = (0, now);
        }
        self.recent.0 = self.recent.0.saturating_add(1);
        self.requests += 1;
        self.owed += 1;
        self.is_done = false;
        self.waits_until = now + GRACE;
    }
}

impl Slots {
    /// Limits: connections from all other machines, connections from one machine (this one included), and the
    /// bytes that all connections together may hold.
    pub(in super::super) fn new(connections: usize, from_one_source: usize, memory: u64) -> Self {
        Self { open: Arc::default(), connections, from_one_source, memory }
    }

    /// A slot for a connection from this source and address.
    pub(in super::super) fn take(&self, source: Source, address: IpAddr) -> Slot {
        let mut open = self.lock();
        let from = |source: Source| open.connections.values().filter(|one| one.source == source).count();
        let others = open.connections.len() - from(Source::Here);
        if from(source) >= self.from_one_source {
            self.evict_one_of(&mut open, |one| one.source == source);
        } else if source != Source::Here && others >= self.connections {
            self.evict_one_of(&mut open, |one| one.source != Source::Here);
        }
        let (id, evicted) = (open.tick(), CancellationToken::new());
        let connection = Connection {
            source,
            address,
            last: id,
            heard: false,
            waits_until: Instant::now() + SILENT_GRACE,
            is_done: false,
            has_unsent: false,
            requests: 0,
            owed: 0,
            recent: (0, Instant::now()),
            held: 0,
            evicted: evicted.clone(),
        };
        open.connections.insert(id, connection);
        self.hold(&mut open, id, CONNECTION_MEMORY);
        drop(open);
        Slot { source, slots: self.clone(), id, evicted }
    }

    /// Adds bytes to this connection if it still has its slot. If there is not enough memory, connections are
    /// evicted, possibly this one.
    fn hold(&self, open: &mut Open, id: u64, bytes: u64) {
        let Some(one) = open.connections.get_mut(&id) else { return };
        one.held += bytes;
        open.held += bytes;
        while open.held > self.memory && self.evict_for_memory(open) {}
    }

    /// Evicts one of the connections for which `may_go` holds.
    fn evict_one_of(&self, open: &mut Open, may_go: impl Fn(&Connection) -> bool) {
        let few = self.from_one_source / FEW;
        let sources = open.count(|one| may_go(one).then_some(one.source));
        // An IPv6 network and this machine have many addresses. Among these, too, the address with the most
        // connections loses one.
        let addresses = open.count(|one| may_go(one).then_some((one.source, one.address)));
        let rank = open.rank(self.from_one_source);
        let order = |one: &Connection| {
            let of_source = sources.get(&one.source).copied().unwrap_or_default();
            let of_address = addresses.get(&(one.source, one.address)).copied().unwrap_or_default();
            (Reverse(of_source.max(few)), Reverse(of_address.max(few)), rank(one))
        };
        let those = open.connections.iter().filter(|(_, one)| may_go(one));
        let victim = those.min_by_key(|(_, one)| order(one)).map(|(&id, _)| id);
        open.evict(victim);
    }

    /// Evicts a connection of the source that holds the most memory. Sources with little memory count as
    /// equal. Connections that hold only the basic amount go last, since evicting them frees the least.
    fn evict_for_memory(&self, open: &mut Open) -> bool {
        let little = self.memory / LITTLE;
        let mut sources = HashMap::<Source, u64>::new();
        for one in open.connections.values() {
            *sources.entry(one.source).or_default() += one.held;
        }
        let rank = open.rank(self.from_one_source);
        let order = |one: &Connection| {
            let of_source = sources.get(&one.source).copied().unwrap_or_default();
            let is_light = one.held <= CONNECTION_MEMORY + HANDSHAKE_MEMORY;
            (Reverse(of_source.max(little)), is_light, rank(one))
        };
        let victim = open.connections.iter().min_by_key(|(_, one)| order(one)).map(|(&id, _)| id);
        open.evict(victim)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// The number of connections of each kind. Connections with the kind `None` are not counted.
    fn count<K: Eq + Hash>(&self, kind: impl Fn(&Connection) -> Option<K>) -> HashMap<K, usize> {
        let mut counts = HashMap::new();
        for kind in self.connections.values().filter_map(kind) {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// The order of eviction among the connections from one address. The least is evicted first.
    fn rank(&self, from_one_source: usize) -> impl Fn(&Connection) -> Rank + use<> {
        let now = Instant::now();
        let counts = self.count(|one| Some((one.source, one.standing(now))));
        move |one| {
            let standing = one.standing(now);
            let count = counts.get(&(one.source, standing)).copied().unwrap_or_default();
            Rank {
                waits: standing != Standing::Idle,
                is_within_share: count <= standing.share(from_one_source),
                standing,
                recent: Reverse(one.recent(now).max(FEW_REQUESTS)),
                last: one.last,
            }
        }
    }

    fn evict(&mut self, victim: Option<u64>) -> bool {
        let Some(one) = victim.and_then(|id| self.remove(id)) else { return false };
        one.evicted.cancel();
        true
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let one = self.connections.remove(&id)?;
        self.held -= one.held;
        Some(one)
    }
}

impl Slot {
    /// Waits until this connection is evicted.
    pub(in super::super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Records that the client sent data.
    pub(in super::super) fn heard(&self) {
        self.note(|one| {
            if !std::mem::replace(&mut one.heard, true) {
                one.waits_until = Instant::now() + GRACE;
            }
        });
    }

    /// Records whether data for the client is still to be sent.
    pub(in super::super) fn unsent(&self, has_unsent: bool) {
        // Called after each write, so not an event.
        let mut open = self.slots.lock();
        if let Some(one) = open.connections.get_mut(&self.id) {
            one.has_unsent = has_unsent;
        }
    }

    /// Records the start of a request with a head of this many bytes. The request ends when the returned
    /// value is dropped.
    pub(in super::super) fn request(self: &Arc<Self>, head: usize) -> UnderWay {
        self.note(Connection::request);
        // The kept fields of a head are stored separately, and one of them both raw and decoded.
        let held = self.hold(REQUEST_MEMORY + 2 * u64::try_from(head).unwrap_or(u64::MAX / 4));
        UnderWay { slot: self.clone(), _held: held, answer: None }
    }

    /// Adds bytes to this connection. If there is not enough memory, connections are evicted, possibly this
    /// one.
    pub(in super::super) fn hold(self: &Arc<Self>, bytes: u64) -> Held {
        self.slots.hold(&mut self.slots.lock(), self.id, bytes);
        Held { slot: self.clone(), bytes }
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

impl UnderWay {
    /// Records that the response of this size is ready, and that the client has to read it.
    #[must_use]
    pub(in super::super) fn answered(mut self, size: usize) -> Self {
        self.slot.note(|one| one.owed -= 1);
        self.answer = Some(self.slot.hold(u64::try_from(size).unwrap_or(u64::MAX).min(MAX_ANSWER)));
        self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let is_owed = self.answer.is_none();
        self.slot.note(|one| {
            one.requests -= 1;
            one.owed -= usize::from(is_owed);
            one.is_done = one.requests == 0;
            // Its end is still to be sent. The flush that follows tells.
            one.has_unsent |= !is_owed;
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.slot.slots.lock();
        if let Some(one) = open.connections.get_mut(&self.slot.id) {
            one.held -= self.bytes;
            open.held -= self.bytes;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests;

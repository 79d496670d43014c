//! How many connections there may be, how much memory they may take, and which one makes room for another.
//!
//! Whoever opens connections must keep nobody from asking, least of all the kubelet, which restarts who does not answer
//! it. So a new connection always gets a place: where there is none left, that of the connection on which nothing
//! happened for longest, of whoever has most of them. Those that wait for us go last ([`Standing`]): a new one, until it
//! had the time to ask, and most of all one whose request is not answered yet. So who asks at once is gone before its turn
//! comes, and who asks again on a connection that it kept is not thrown out meanwhile. Nobody fills the places with
//! connections that wait: of each source only so many count as such, and there is always one on which less is lost.
//!
//! Memory is shared alike. Each connection holds what it can hold at most, and what its certificates, requests and
//! answers take beyond that. Where all of them together would hold more than there is, somebody makes room: of whoever
//! holds most.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::{CONNECTION_MEMORY, HANDSHAKE_MEMORY, MAX_ANSWER, REQUEST_MEMORY};
use crate::serving::server::source::Source;

/// How long a connection may take until its first bytes before it counts as one of many. They follow at once, but for the
/// way.
const SILENT_GRACE: Duration = Duration::from_secs(1);

/// The same for a handshake with a request after it, and for each request: a review may take as long.
const GRACE: Duration = Duration::from_secs(10);

/// How many requests in that time are few. Of connections that wait alike, those with more go first: they had their
/// answers, and who asks once may wait long where they ask without end.
const FEW_REQUESTS: u32 = 8;

/// Who has up to this part of one source's places has no more than others.
const FEW: usize = 16;

/// The same of all memory: more than an answer takes.
const LITTLE: u64 = 8;

/// What would be lost with a connection, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Standing {
    /// Nothing: it does not wait for us, or did for too long.
    Idle,
    /// A connection that has just come. It costs its client one packet.
    Silent,
    /// An answer that is made, and that the client does not take.
    Answered,
    /// A handshake, or the first request after it.
    Handshake,
    /// An answer that is not made yet.
    Owed,
}

impl Standing {
    /// How many of one source's places may be of this kind. Where more are, they go before all that wait: what is left is
    /// for those who come. It has less of what is cheap to be.
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

/// Keeps count of connections. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    open: Arc<Mutex<Open>>,
    connections: usize,
    from_one_source: usize,
    /// Bytes.
    memory: u64,
}

#[derive(Debug, Default)]
struct Open {
    /// Rises with each thing that happens.
    time: u64,
    /// Bytes that all of them hold.
    held: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    source: Source,
    address: IpAddr,
    /// When something happened on it.
    last: u64,
    heard: bool,
    /// How long it counts as one that waits for us.
    waits_until: Instant,
    /// Requests that are under way: their answers are not made, or not taken yet.
    requests: usize,
    /// Of those, how many answers are not made yet.
    owed: usize,
    /// Requests that began lately, and since when they are counted.
    recent: (u32, Instant),
    /// Bytes that it holds.
    held: u64,
    evicted: CancellationToken,
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub source: Source,
    slots: Slots,
    id: u64,
    evicted: CancellationToken,
}

/// A request on a connection, until it is answered. Dropped when the client has taken the answer, or wants none.
#[derive(Debug)]
pub(super) struct UnderWay {
    slot: Arc<Slot>,
    _held: Held,
    /// The memory of the answer, once that is made.
    answer: Option<Held>,
}

/// Memory that a connection takes, until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: Arc<Slot>,
    bytes: u64,
}

/// Compared from its first field to its last.
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
        if self.waits_until <= now {
            Standing::Idle
        } else if self.owed > 0 {
            Standing::Owed
        } else if self.requests > 0 {
            Standing::Answered
        } else if self.heard {
            Standing::Handshake
        } else {
            Standing::Silent
        }
    }

    /// Requests that began lately, of one that waits.
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
        self.waits_until = now + GRACE;
    }
}

impl Slots {
    /// So many at the same time from other machines, and so many from one of them or from here. All together hold so many
    /// bytes.
    pub(super) fn new(connections: usize, from_one_source: usize, memory: u64) -> Self {
        Self { open: Arc::default(), connections, from_one_source, memory }
    }

    /// A place for a connection from there.
    pub(super) fn take(&self, source: Source, address: IpAddr) -> Slot {
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

    /// So many bytes more for this connection, if it still has its place. Others make room, or it does itself.
    fn hold(&self, open: &mut Open, id: u64, bytes: u64) {
        let Some(one) = open.connections.get_mut(&id) else { return };
        one.held += bytes;
        open.held += bytes;
        while open.held > self.memory && self.evict_for_memory(open) {}
    }

    /// Ends one of those that may go.
    fn evict_one_of(&self, open: &mut Open, may_go: impl Fn(&Connection) -> bool) {
        let few = self.from_one_source / FEW;
        let sources = open.count(|one| may_go(one).then_some(one.source));
        // An IPv6 network, and this machine, have many addresses: of those, too, whoever has most goes first.
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

    /// Ends one of whoever holds most, unless that is little. Those that hold no more than each connection does go last:
    /// that would help least.
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
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// How many there are of each kind; those of `None` are not counted.
    fn count<K: Eq + Hash>(&self, kind: impl Fn(&Connection) -> Option<K>) -> HashMap<K, usize> {
        let mut counts = HashMap::new();
        for kind in self.connections.values().filter_map(kind) {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// Who goes first where all are from one address: the least of these.
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
    /// Waits until another connection takes the place.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Says that the client sent something.
    pub(super) fn heard(&self) {
        self.note(|one| {
            if !std::mem::replace(&mut one.heard, true) {
                one.waits_until = Instant::now() + GRACE;
            }
        });
    }

    /// Says that a request begins, which ends when what this returns is dropped. Its head has so many bytes.
    pub(super) fn request(self: &Arc<Self>, head: usize) -> UnderWay {
        self.note(Connection::request);
        // What is kept of a head is kept in parts, and one of them as it came and decoded.
        let held = self.hold(REQUEST_MEMORY + 2 * u64::try_from(head).unwrap_or(u64::MAX / 4));
        UnderWay { slot: self.clone(), _held: held, answer: None }
    }

    /// So many bytes more. Another connection makes room for them where there is not enough, or this one.
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Held {
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
    /// Says that the answer is made, and has so many bytes. From now on it is for the client to take it.
    #[must_use]
    pub(super) fn answered(mut self, size: usize) -> Self {
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
            if one.requests == 0 {
                one.waits_until = Instant::now();
            }
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

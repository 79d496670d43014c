//! The state of a connection that is followed: which work is due on it, and when.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use cloudprovider::ErrorKind;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use uuid::Uuid;

use super::agents::Agents;
use crate::{
    calls::{Calls, Failure},
    domain::{AgentChannel, Domain},
    hypervisor::Command,
    inventory::Inventory,
    provider_id::DomainId,
    session::{Probed, Reread, Session},
    sys::Event,
    worker::Worker,
};

/// How long events are collected before the domains are read: starting a domain alone brings several.
pub(super) const COLLECT: Duration = Duration::from_millis(30);
/// The pause before a domain that could not be read is read again; doubled each time up to [`PATIENT`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause between two polls for addresses.
pub(super) const PATIENT: Duration = Duration::from_secs(60);
/// How often it is checked whether a lease ends.
pub(super) const LEASE_CHECK: Duration = Duration::from_secs(10);

/// What to probe for each node, and where the answer goes.
type Probe = (Vec<Vec<DomainId>>, oneshot::Sender<Result<Probed, Failure>>);

/// A connection that is followed.
pub(super) struct Connected {
    pub(super) worker: Worker<Option<Session>>,
    pub(super) calls: Calls,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    pub(super) agents: Agents,
    pub(super) dirty: HashSet<Uuid>,
    /// Those of them whose guest agent connected or disconnected.
    pub(super) agent_changes: HashSet<Uuid>,
    pub(super) dirty_since: Option<Instant>,
    pub(super) confirmations: Vec<(std::time::Instant, oneshot::Sender<Result<(), Failure>>)>,
    pub(super) probes: Vec<Probe>,
    /// Domains that could not be read, when to try again, and after what pause.
    pub(super) retries: HashMap<Uuid, (Instant, Duration)>,
    pub(super) next_refresh: Instant,
    /// Before this there is no listing because of many events: listings must not be all that libvirt does.
    pub(super) next_listing: Instant,
    /// More domains have changed than are read one by one; the next listing finds them all.
    pub(super) needs_listing: bool,
    pub(super) next_poll: Instant,
    /// Before this a changed domain causes no poll.
    pub(super) earliest_next_poll: Instant,
    pub(super) next_lease_check: Instant,
    /// Domains without any address.
    pub(super) without_address: Polls,
    /// Domains that have started or were first seen running, or whose guest agent has connected: they may get
    /// more addresses than the first.
    pub(super) settling: Polls,
    /// Domains of [`Command::ReadLeases`]: the next poll reads their leases, also if they have an address.
    pub(super) leases_wanted: HashSet<Uuid>,
}

impl Connected {
    /// A connection that has just been listed; `agents` are the domains whose guest agent is to be asked.
    pub(super) fn new(
        worker: Worker<Option<Session>>,
        calls: Calls,
        events: mpsc::UnboundedReceiver<Event>,
        agents: VecDeque<Uuid>,
        refresh: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            worker,
            calls,
            events,
            agents: Agents::new(agents),
            dirty: HashSet::new(),
            agent_changes: HashSet::new(),
            dirty_since: None,
            confirmations: Vec::new(),
            probes: Vec::new(),
            retries: HashMap::new(),
            next_refresh: now + refresh,
            next_listing: now,
            needs_listing: false,
            next_poll: now,
            earliest_next_poll: now,
            next_lease_check: now + LEASE_CHECK,
            without_address: Polls::default(),
            settling: Polls::default(),
            leases_wanted: HashSet::new(),
        }
    }

    pub(super) fn note(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Domain(uuid) => self.note_changed(uuid),
            Event::Agent(uuid) => {
                self.note_changed(uuid);
                self.agent_changes.insert(uuid);
            }
            Event::Closed(why) => return Err(Failure::lost(ErrorKind::Unavailable, why)),
        }
        Ok(())
    }

    /// Has a domain read again soon.
    fn note_changed(&mut self, uuid: Uuid) {
        self.dirty.insert(uuid);
        self.dirty_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn take(&mut self, command: Command) {
        match command {
            Command::Confirm(asked, answer) => self.confirmations.push((asked, answer)),
            Command::Probe(nodes, answer) => self.probes.push((nodes, answer)),
            Command::Reread(uuid) => self.note_changed(uuid),
            Command::ReadLeases(uuid) => {
                self.leases_wanted.insert(uuid);
                self.poll_soon();
            }
            Command::Borrow(work) => {
                drop(self.worker.run(move |slot: &mut Option<Session>| {
                    let Some(session) = slot else { return };
                    let connect = session.connection_for_another();
                    // not on the worker: the work may take as long as it likes
                    let thread = std::thread::Builder::new().name("libvirt-borrowed".to_owned());
                    let lend = move || match connect() {
                        Ok(connect) => work(&connect),
                        // dropped, and so the caller's wait ends
                        Err(failure) => tracing::warn!(reason = failure.message, "cannot connect"),
                    };
                    if let Err(error) = thread.spawn(lend) {
                        tracing::warn!(%error, "cannot start a thread");
                    }
                }));
            }
        }
    }

    pub(super) fn next_wake(&self) -> Instant {
        let mut wake = self.next_refresh.min(self.next_poll).min(self.next_lease_check);
        if let Some(at) = self.retries.values().map(|(at, _)| *at).min() {
            wake = wake.min(at);
        }
        if let Some(since) = self.dirty_since {
            wake = wake.min(since + COLLECT);
        }
        if self.agents.is_asking() {
            wake = wake.min(Instant::now() + Duration::from_secs(1));
        }
        wake
    }

    /// Notes which domains have just started, and which guest agents have just connected.
    pub(super) fn note_read(&mut self, read: &Reread, before: &Inventory) {
        let now = Instant::now();
        for (uuid, _) in &read.failed {
            self.try_later(*uuid, now);
        }
        for (uuid, domain) in &read.domains {
            match domain {
                Some(Domain { state: Err(_), .. }) => self.try_later(*uuid, now),
                _ => drop(self.retries.remove(uuid)),
            }
            let has_agent_change = self.agent_changes.remove(uuid);
            let Some(domain) = domain.as_ref().filter(|domain| domain.is_running()) else {
                self.settling.end(*uuid);
                continue;
            };
            let is_agent_here = has_agent_change && domain.agent == AgentChannel::Connected;
            if is_agent_here {
                self.agents.ask_again(*uuid);
            }
            if is_agent_here || !before.by_uuid(*uuid).is_some_and(Domain::is_running) {
                self.settling.begin_anew(*uuid, now);
            }
        }
    }

    /// Notes which of the listed domains could not be read.
    pub(super) fn note_unreadable<'a>(&mut self, domains: impl Iterator<Item = &'a Domain>) {
        let now = Instant::now();
        let failed: HashSet<Uuid> =
            domains.filter(|domain| domain.state.is_err()).map(|domain| domain.uuid).collect();
        self.retries.retain(|uuid, _| failed.contains(uuid));
        for uuid in failed {
            self.try_later(uuid, now);
        }
    }

    /// Reads a domain once more after a while that doubles, since what was wrong with it brings no event when
    /// it ends.
    fn try_later(&mut self, uuid: Uuid, now: Instant) {
        let pause = self.retries.get(&uuid).map_or(FIRST_RETRY, |(_, pause)| (*pause * 2).min(PATIENT));
        self.retries.insert(uuid, (now + pause, pause));
    }

    pub(super) fn retry_failed(&mut self, now: Instant) {
        for (uuid, (at, pause)) in &mut self.retries {
            if *at <= now {
                // the next time is set when it has been read
                *at = now + *pause;
                self.dirty.insert(*uuid);
                self.dirty_since.get_or_insert(now);
            }
        }
    }
}

/// Domains that are polled, each at its own pace: the others do not make it more frequent.
#[derive(Debug, Default)]
pub(super) struct Polls(HashMap<Uuid, Poll>);

#[derive(Clone, Copy, Debug)]
struct Poll {
    since: Instant,
    due: Instant,
}

impl Polls {
    /// Polls a domain from now on, at once for the first time. Does nothing if it is polled already.
    pub(super) fn begin(&mut self, uuid: Uuid, now: Instant) {
        self.0.entry(uuid).or_insert(Poll { since: now, due: now });
    }

    /// The same, also for a domain that is polled already.
    pub(super) fn begin_anew(&mut self, uuid: Uuid, now: Instant) {
        self.0.insert(uuid, Poll { since: now, due: now });
    }

    /// Polls a domain no more.
    pub(super) fn end(&mut self, uuid: Uuid) {
        self.0.remove(&uuid);
    }

    /// Polls only those domains on that `is_wanted` accepts, which is given the time that each has been
    /// polled for.
    pub(super) fn keep(&mut self, now: Instant, is_wanted: impl Fn(Uuid, Duration) -> bool) {
        self.0.retain(|uuid, poll| is_wanted(*uuid, now.duration_since(poll.since)));
    }

    /// Takes those that are due. Each is due again after a pause that `pause` makes of the time since its
    /// beginning.
    pub(super) fn take_due(&mut self, now: Instant, pause: impl Fn(Duration) -> Duration) -> Vec<Uuid> {
        let mut due = Vec::new();
        for (uuid, poll) in self.0.iter_mut().filter(|(_, poll)| poll.due <= now) {
            poll.due = now + pause(now.duration_since(poll.since));
            due.push(*uuid);
        }
        due
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|poll| poll.due).min()
    }

    /// The domains that are polled.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<Uuid> {
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::PowerState;

    use super::*;
    use crate::{addresses::AddressRules, domain::DomainState, inventory::Listing, worker::WorkerCount};

    fn connected() -> Connected {
        let worker = Worker::spawn("test".to_owned(), &WorkerCount::default(), || None).expect("a thread");
        let (_, events) = mpsc::unbounded_channel();
        Connected::new(worker, Calls::default(), events, VecDeque::new(), Duration::from_secs(300))
    }

    #[test]
    fn a_domain_that_cannot_be_read_is_read_again_after_a_doubling_pause() {
        let mut connected = connected();
        let uuid = Uuid::from_u128(1);
        let broken = Domain::unreadable(uuid, "a".to_owned(), "denied".to_owned());
        let mut now = Instant::now();
        connected.note_unreadable([broken].iter());
        for pause in [1, 2, 4] {
            connected.retry_failed(now);
            assert!(connected.dirty.is_empty(), "not yet");
            now += Duration::from_secs(pause) + Duration::from_millis(100);
            connected.retry_failed(now);
            assert!(connected.dirty.remove(&uuid), "after {pause} s");
            connected.try_later(uuid, now);
        }
        let read = Reread { domains: vec![(uuid, None)], ..Reread::default() };
        connected.note_read(&read, &Inventory::default());
        assert!(connected.retries.is_empty(), "it is known now");
    }

    #[test]
    fn what_is_first_seen_running_may_get_a_second_family() {
        let domain = |n: u128, power| Domain {
            state: Ok(DomainState { power }),
            ..Domain::unreadable(Uuid::from_u128(n), format!("d{n}"), String::new())
        };
        let domains =
            vec![domain(1, PowerState::Running), domain(2, PowerState::Running), domain(3, PowerState::Off)];
        let mut inventory = Inventory::default();
        inventory.replace(Listing { domains, ..Listing::default() });
        let mut connected = connected();
        let ran = HashSet::from([Uuid::from_u128(2)]);
        connected.note_listed(&inventory, &AddressRules::default(), &ran);
        assert_eq!(connected.settling.all(), [Uuid::from_u128(1)]);
        let none = AddressRules { families: Vec::new(), ..AddressRules::default() };
        connected.settling = Polls::default();
        connected.note_listed(&inventory, &none, &HashSet::new());
        assert!(connected.settling.all().is_empty(), "nothing is wanted");
    }

    #[test]
    fn each_domain_has_its_own_pace() {
        let (mut polls, start) = (Polls::default(), Instant::now());
        let [old, new] = [1, 2].map(Uuid::from_u128);
        let at = |seconds| start + Duration::from_secs(seconds);
        let pause = |age: Duration| age.max(Duration::from_secs(1));
        let due = |polls: &mut Polls, seconds| {
            let mut due = polls.take_due(at(seconds), pause);
            due.sort_unstable();
            due
        };
        polls.begin(old, at(0));
        assert_eq!(due(&mut polls, 0), [old]);
        assert!(due(&mut polls, 0).is_empty(), "once");
        assert_eq!(due(&mut polls, 10), [old], "and again at 20 s");
        polls.begin(new, at(12));
        polls.begin(old, at(12));
        for second in 12..20 {
            assert!(!due(&mut polls, second).contains(&old), "not because of others");
        }
        assert_eq!(polls.next(), Some(at(20)));
        assert_eq!(due(&mut polls, 20), [old, new]);
        polls.begin_anew(old, at(21));
        polls.keep(at(21), |_, age| age < Duration::from_secs(9));
        assert_eq!(due(&mut polls, 21), [old]);
        polls.end(old);
        assert_eq!(polls.next(), None);
    }
}

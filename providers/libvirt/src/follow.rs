//! What the actor does while it is connected: follow events, read again what changed, and look for addresses.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use cloudprovider::ErrorKind;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use uuid::Uuid;

#[path = "look.rs"]
mod look;

use crate::{
    agents::Agents,
    calls::{Calls, Failure},
    connection::Actor,
    domain::{AgentChannel, Domain},
    hypervisor::Command,
    inventory::Inventory,
    key::Key,
    lane::Lane,
    session::{Probed, Read, Session},
    sys::Event,
};

/// How long events are collected before the domains are read: starting a domain alone brings several.
const COLLECT: Duration = Duration::from_millis(30);
/// With more changed domains than this, one listing is cheaper than reading each.
const MANY: usize = 200;
/// Listings because of many events are at least this far apart, and ten times as far as one takes.
const LEAST_LISTING_PAUSE: Duration = Duration::from_secs(1);
/// When a domain that could not be read is read again; doubled each time up to [`PATIENT`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause between two looks for addresses.
const PATIENT: Duration = Duration::from_secs(60);
/// How often it is checked whether a lease ends.
const LEASE_CHECK: Duration = Duration::from_secs(10);

/// How long there is no further listing after one that took so long.
fn pause_after_listing(took: Duration) -> Duration {
    (took * 10).max(LEAST_LISTING_PAUSE)
}

/// What to ask for each node, and who waits for it.
type Probe = (Vec<Vec<Key>>, oneshot::Sender<Result<Probed, Failure>>);

/// A connection that is followed.
pub(crate) struct Connected {
    lane: Lane<Option<Session>>,
    calls: Calls,
    events: mpsc::UnboundedReceiver<Event>,
    pub(crate) agents: Agents,
    dirty: HashSet<Uuid>,
    /// Of these, whose guest agent came or went.
    agent_news: HashSet<Uuid>,
    dirty_since: Option<Instant>,
    waiting: Vec<(std::time::Instant, oneshot::Sender<Result<(), Failure>>)>,
    probes: Vec<Probe>,
    /// Domains that could not be read, when to try again, and after what pause.
    retries: HashMap<Uuid, (Instant, Duration)>,
    next_refresh: Instant,
    /// Before this there is no listing because of many events: listings must not be all that libvirt does.
    next_listing: Instant,
    /// More domains have changed than are read one by one; the next listing finds them all.
    is_stormy: bool,
    next_look: Instant,
    next_lease_check: Instant,
    /// Since when each domain has been without any address.
    without_address: HashMap<Uuid, Instant>,
    /// When each domain started or was first seen running, or its guest agent came: further addresses may follow the first one.
    settling: HashMap<Uuid, Instant>,
}

impl Actor {
    /// Follows events until the connection is lost, and says why.
    pub(crate) async fn follow(&mut self, mut connected: Connected) -> Failure {
        let failure = loop {
            let wake = connected.next_wake();
            tokio::select! {
                Some(event) = connected.events.recv() => {
                    if let Err(failure) = connected.note(event) {
                        break failure;
                    }
                    while let Ok(event) = connected.events.try_recv() {
                        if let Err(failure) = connected.note(event) {
                            return self.give_up(connected, failure);
                        }
                    }
                }
                Some(command) = self.commands.recv() => connected.take(command),
                Some(answer) = connected.agents.answers.recv() => self.take_agent_answer(&mut connected, answer),
                () = sleep_until(wake) => {}
            }
            if let Err(failure) = self.work(&mut connected).await {
                break failure;
            }
        };
        self.give_up(connected, failure)
    }

    /// Tells everybody who waits that the connection is gone.
    fn give_up(&self, connected: Connected, failure: Failure) -> Failure {
        for (_, answer) in connected.waiting {
            let _ = answer.send(Err(failure.clone()));
        }
        for (_, answer) in connected.probes {
            let _ = answer.send(Err(failure.clone()));
        }
        if failure.kind == ErrorKind::Timeout {
            connected.lane.abandon(&self.abandoned);
        }
        failure
    }

    /// Does what is due.
    async fn work(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let now = Instant::now();
        connected.retry_failed(now);
        connected.is_stormy |= connected.dirty.len() > MANY;
        if connected.is_stormy {
            connected.dirty.clear();
            connected.dirty_since = None;
            connected.next_refresh = connected.next_refresh.min(connected.next_listing);
        }
        if connected.dirty_since.is_some_and(|since| since + COLLECT <= now) {
            connected.dirty_since = None;
            let uuids: Vec<Uuid> = connected.dirty.drain().collect();
            self.reread(connected, uuids, &HashMap::new()).await?;
        }
        if !connected.waiting.is_empty() {
            self.confirm(connected).await?;
        }
        while let Some((nodes, answer)) = connected.probes.pop() {
            let result = self.on_lane(connected, move |session| session.probe(&nodes)).await;
            for uuid in result.iter().flat_map(|probed| &probed.found) {
                connected.dirty.insert(*uuid);
                connected.dirty_since.get_or_insert(now);
            }
            let lost = result.as_ref().err().cloned();
            let _ = answer.send(result);
            if let Some(failure) = lost {
                return Err(failure);
            }
        }
        if connected.next_refresh <= now {
            self.refresh(connected).await?;
        }
        if connected.next_look <= now || connected.next_lease_check <= now {
            self.look_for_addresses(connected).await?;
        }
        self.ask_agents(connected).await
    }

    pub(crate) async fn on_lane<T: Send + 'static>(
        &self,
        connected: &Connected,
        job: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let answer = connected.lane.run(move |slot: &mut Option<Session>| match slot {
            Some(session) => job(session),
            None => Err(Failure::lost(ErrorKind::Internal, "not connected")),
        });
        self.in_time(answer, &connected.calls.progress).await
    }

    /// Reads domains again. A domain that is not known yet and cannot be read needs its name from the list, to be
    /// known by it.
    async fn reread(
        &mut self,
        connected: &mut Connected,
        uuids: Vec<Uuid>,
        names: &HashMap<Uuid, String>,
    ) -> Result<(), Failure> {
        let read = self.on_lane(connected, move |session| session.reread(&uuids)).await?;
        connected.note_read(&read, &self.hypervisor.state().inventory);
        self.hypervisor.update(|state| {
            let inventory = &mut state.inventory;
            let mut changed: Vec<_> = read
                .domains
                .into_iter()
                .filter_map(|(uuid, domain)| inventory.update(uuid, domain))
                .collect();
            for (uuid, why) in read.failed {
                let is_known = inventory.by_uuid(uuid).is_some();
                changed.extend(match names.get(&uuid).filter(|_| !is_known) {
                    Some(name) => inventory.update(uuid, Some(Domain::unreadable(uuid, name.clone(), why))),
                    None => inventory.set_unreadable(uuid, why),
                });
            }
            changed
        });
        // a domain that has just started wants an address
        connected.next_look = Instant::now();
        Ok(())
    }

    /// Compares the inventory with libvirt's list, for all who wait for it.
    async fn confirm(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let confirmed = self.hypervisor.state().confirmed;
        let is_served = |asked: &std::time::Instant| confirmed.is_some_and(|at| at >= *asked);
        if !connected.waiting.iter().all(|(asked, _)| is_served(asked)) {
            let began = std::time::Instant::now();
            let names = self.on_lane(connected, Session::names).await?;
            let differences = self.hypervisor.state().inventory.differences(&names);
            if !differences.is_empty() {
                let names = names.into_iter().collect();
                self.reread(connected, differences, &names).await?;
            }
            self.hypervisor.update(|state| {
                state.confirmed = Some(began);
                Vec::new()
            });
        }
        for (_, answer) in connected.waiting.drain(..) {
            let _ = answer.send(Ok(()));
        }
        Ok(())
    }

    async fn refresh(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let began = std::time::Instant::now();
        let known: Vec<Uuid> =
            self.hypervisor.state().inventory.domains().map(|domain| domain.uuid).collect();
        let snapshot = self.on_lane(connected, move |session| session.list(&known)).await?;
        let ran = self.hypervisor.running();
        self.hypervisor.update(|state| {
            state.confirmed = Some(began);
            state.inventory.replace(snapshot)
        });
        connected.is_stormy = false;
        connected.next_listing = Instant::now() + pause_after_listing(began.elapsed());
        let rules = &self.hypervisor.settings.addresses;
        connected.note_listed(&self.hypervisor.state().inventory, rules, &ran);
        {
            let state = self.hypervisor.state();
            connected.agents.queue = state.inventory.with_agent().collect();
            connected.note_unreadable(state.inventory.domains());
        }
        connected.next_refresh = Instant::now() + self.hypervisor.settings.refresh_interval;
        connected.next_look = Instant::now();
        Ok(())
    }
}

impl Connected {
    /// A connection that has just been listed; `agents` are the domains whose guest agent is to be asked.
    pub(crate) fn new(
        lane: Lane<Option<Session>>,
        calls: Calls,
        events: mpsc::UnboundedReceiver<Event>,
        agents: VecDeque<Uuid>,
        refresh: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            lane,
            calls,
            events,
            agents: Agents::new(agents),
            dirty: HashSet::new(),
            agent_news: HashSet::new(),
            dirty_since: None,
            waiting: Vec::new(),
            probes: Vec::new(),
            retries: HashMap::new(),
            next_refresh: now + refresh,
            next_listing: now,
            is_stormy: false,
            next_look: now,
            next_lease_check: now + LEASE_CHECK,
            without_address: HashMap::new(),
            settling: HashMap::new(),
        }
    }

    fn note(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Domain(uuid) => drop(self.dirty.insert(uuid)),
            Event::Agent(uuid) => {
                self.dirty.insert(uuid);
                self.agent_news.insert(uuid);
            }
            Event::Closed(why) => return Err(Failure::lost(ErrorKind::Unavailable, why)),
        }
        self.dirty_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Confirm(asked, answer) => self.waiting.push((asked, answer)),
            Command::Probe(nodes, answer) => self.probes.push((nodes, answer)),
            Command::Borrow(work) => {
                drop(self.lane.run(move |slot: &mut Option<Session>| {
                    let Some(session) = slot else { return };
                    let connect = session.connection_for_another();
                    // not on the lane: the work may take as long as it likes
                    let thread = std::thread::Builder::new().name("libvirt-borrowed".to_owned());
                    let lend = move || match connect() {
                        Ok(connect) => work(&connect),
                        // dropped: whoever waits for it sees that
                        Err(failure) => tracing::warn!(reason = failure.message, "cannot connect"),
                    };
                    if let Err(error) = thread.spawn(lend) {
                        tracing::warn!(%error, "cannot start a thread");
                    }
                }));
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let mut wake = self.next_refresh.min(self.next_look).min(self.next_lease_check);
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

    /// Notes which domains have just started, and whose guest agent can be asked now.
    fn note_read(&mut self, read: &Read, before: &Inventory) {
        let now = Instant::now();
        for (uuid, _) in &read.failed {
            self.try_later(*uuid, now);
        }
        for (uuid, domain) in &read.domains {
            match domain {
                Some(Domain { state: Err(_), .. }) => self.try_later(*uuid, now),
                _ => drop(self.retries.remove(uuid)),
            }
            let has_agent_news = self.agent_news.remove(uuid);
            let Some(domain) = domain.as_ref().filter(|domain| domain.is_running()) else {
                self.settling.remove(uuid);
                continue;
            };
            let is_agent_here = has_agent_news && domain.agent == AgentChannel::Connected;
            if is_agent_here {
                self.agents.ask_again(*uuid);
            }
            if is_agent_here || !before.by_uuid(*uuid).is_some_and(Domain::is_running) {
                self.settling.insert(*uuid, now);
            }
        }
    }

    /// Notes which of the listed domains could not be read.
    pub(crate) fn note_unreadable<'a>(&mut self, domains: impl Iterator<Item = &'a Domain>) {
        let now = Instant::now();
        let failed: HashSet<Uuid> =
            domains.filter(|domain| domain.state.is_err()).map(|domain| domain.uuid).collect();
        self.retries.retain(|uuid, _| failed.contains(uuid));
        for uuid in failed {
            self.try_later(uuid, now);
        }
    }

    /// Reads a domain once more after a while that doubles, since what was wrong with it brings no event when it ends.
    fn try_later(&mut self, uuid: Uuid, now: Instant) {
        let pause = self.retries.get(&uuid).map_or(FIRST_RETRY, |(_, pause)| (*pause * 2).min(PATIENT));
        self.retries.insert(uuid, (now + pause, pause));
    }

    fn retry_failed(&mut self, now: Instant) {
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

#[cfg(test)]
mod tests {
    use cloudprovider::PowerState;

    use super::*;
    use crate::{addresses::AddressRules, domain::DomainState, inventory::Snapshot, lane::LaneCount};

    fn connected() -> Connected {
        let lane = Lane::spawn("test".to_owned(), &LaneCount::default(), || None).expect("a thread");
        let (_, events) = mpsc::unbounded_channel();
        Connected::new(lane, Calls::default(), events, VecDeque::new(), Duration::from_secs(300))
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
        let read = Read { domains: vec![(uuid, None)], ..Read::default() };
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
        inventory.replace(Snapshot { domains, ..Snapshot::default() });
        let mut connected = connected();
        let ran = HashSet::from([Uuid::from_u128(2)]);
        connected.note_listed(&inventory, &AddressRules::default(), &ran);
        assert_eq!(connected.settling.keys().collect::<Vec<_>>(), [&Uuid::from_u128(1)]);
        let none = AddressRules { families: Vec::new(), ..AddressRules::default() };
        connected.settling.clear();
        connected.note_listed(&inventory, &none, &HashSet::new());
        assert!(connected.settling.is_empty(), "nothing is wanted");
    }

    #[test]
    fn listings_leave_libvirt_time_for_others() {
        assert_eq!(pause_after_listing(Duration::from_millis(10)), Duration::from_secs(1));
        assert_eq!(pause_after_listing(Duration::from_secs(3)), Duration::from_secs(30));
    }
}

//! Keeps the addresses that are held: sets them, renews them, announces them, and deletes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    LIFETIME, RENEW_INTERVAL,
    error::{Error, Result},
    interface::{Host, InterfaceChoice, Place},
    kernel::{Kernel, LinkChanges, Target, link_changes},
    limit::{Limit, renew_interval},
    packet_socket::PacketSocket,
    packets::announcements,
    request::{Entries, Entry, Held, HoldRequest, ReleaseRequest, Request},
    schedule::Schedule,
};

/// How long after a change of an interface to look at the host: changes come in groups.
const LINK_DELAY: Duration = Duration::from_millis(50);

/// How many requests are carried out together.
const MAX_REQUESTS: usize = 1024;

/// The task behind an announcer.
#[derive(Debug)]
pub(crate) struct Keeper {
    kernel: Kernel,
    /// Opened for the first announcement.
    socket: Option<PacketSocket>,
    entries: Entries,
    limit: Limit,
    next_renewal: Instant,
    /// Until when the kernel keeps all addresses without another renewal.
    kept_until: Instant,
}

impl Keeper {
    pub(crate) fn new(entries: Entries, limit: Limit) -> Self {
        let now = Instant::now();
        let kernel = Kernel::new(limit.clone());
        let (next_renewal, kept_until) = (now + RENEW_INTERVAL, now + LIFETIME);
        Self { kernel, socket: None, entries, limit, next_renewal, kept_until }
    }

    /// Works until all announcers are dropped, and then releases everything.
    pub(crate) async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        // without it, changes are seen at the next renewal
        let follow = || link_changes().inspect_err(|error| debug!("{error}")).ok();
        let mut links = follow();
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                // Requests may come without end, so what is due comes first.
                biased;
                () = sleep_until(self.due()) => {
                    self.on_time().await;
                    links = links.or_else(follow);
                }
                changed = next_change(&mut links) => match changed {
                    Some(index) => self.note_change(index),
                    None => links = None,
                },
                received = requests.recv_many(&mut batch, MAX_REQUESTS) => {
                    if received == 0 {
                        break;
                    }
                    self.carry_out(batch).await;
                }
            }
        }
        let all = std::mem::take(&mut *self.entries.lock());
        for (address, error) in self.delete(all.into_keys().collect()).await {
            warn!(%address, "an address stays on this host for up to {} s: {error}", LIFETIME.as_secs());
        }
    }

    /// When something is to be done without a request.
    fn due(&self) -> Instant {
        let entries = self.entries.lock();
        let announcement =
            entries.values().filter(|entry| is_announced(entry)).map(|entry| entry.schedule.due());
        announcement.chain([self.next_renewal]).min().unwrap_or(self.next_renewal)
    }

    async fn on_time(&mut self) {
        let began = Instant::now();
        if began >= self.next_renewal {
            self.renew().await;
            let now = Instant::now();
            if now - began > RENEW_INTERVAL {
                let (count, took) = (self.entries.lock().len(), now - began);
                warn!(
                    "renewing {count} addresses took {} s, which is too long; hold fewer on one host",
                    took.as_secs()
                );
            }
            // requests have their turn, even if renewing takes all the time
            self.next_renewal = (began + renew_interval(self.limit.lifetime())).max(now + LINK_DELAY);
        }
        self.announce();
    }

    /// Looks at the host soon if a change of this interface may matter.
    fn note_change(&mut self, index: u32) {
        let matters = |entry: &Entry| entry.interface.index == index || entry.fault.is_some();
        if self.entries.lock().values().any(matters) {
            self.next_renewal = self.next_renewal.min(Instant::now() + LINK_DELAY);
        }
    }

    /// Carries out requests in their order, holds and releases that follow each other together.
    async fn carry_out(&mut self, batch: Vec<Request>) {
        let (mut holds, mut releases) = (Vec::new(), Vec::new());
        for request in batch {
            match request {
                Request::Hold(hold) => {
                    self.release(std::mem::take(&mut releases)).await;
                    holds.push(hold);
                }
                Request::Release(release) => {
                    self.hold(std::mem::take(&mut holds)).await;
                    releases.push(release);
                }
            }
        }
        self.hold(holds).await;
        self.release(releases).await;
    }

    async fn hold(&mut self, mut requests: Vec<HoldRequest>) {
        requests = requests.into_iter().filter_map(|request| self.is_held_already(request)).collect();
        if requests.is_empty() {
            return;
        }
        let (began, lifetime) = (Instant::now(), self.limit.lifetime());
        self.kept_until = self.kept_until.min(began + lifetime);
        self.next_renewal = self.next_renewal.min(began + renew_interval(lifetime));
        let wanted = requests.iter().map(|request| (request.address, request.choice.clone())).collect();
        let places = match self.settle(wanted).await {
            Ok(places) => places,
            Err(error) => {
                for request in requests {
                    let _ = request.answer.send(Err(error.clone()));
                }
                return;
            }
        };
        let now = Instant::now();
        let mut answers = Vec::new();
        for HoldRequest { holder, address, choice, answer } in requests {
            let place = places.get(&address).cloned().unwrap_or(Err(Error::Ended));
            let held = place.map(|place| {
                let mut entries = self.entries.lock();
                let entry = entries.entry(address).or_insert_with(|| Entry {
                    holders: BTreeSet::new(),
                    choice: choice.clone(),
                    interface: place.interface.clone(),
                    fault: None,
                    schedule: Schedule::begin(now),
                });
                entry.choice = choice;
                note_place(entry, &place);
                entry.holders.insert(holder);
                debug!(%address, interface = place.interface.name, "an address is held");
                Held { interface: place.interface.name }
            });
            answers.push((answer, held));
        }
        self.announce();
        for (answer, held) in answers {
            // who does not wait for it any more can ask again
            let _ = answer.send(held);
        }
    }

    /// Answers a request for an address that is set as requested. Gives others back.
    fn is_held_already(&self, request: HoldRequest) -> Option<HoldRequest> {
        let mut entries = self.entries.lock();
        let set = entries
            .get_mut(&request.address)
            .filter(|entry| entry.fault.is_none() && entry.choice == request.choice)
            .filter(|_| Instant::now() < self.kept_until);
        let Some(entry) = set else { return Some(request) };
        entry.holders.insert(request.holder);
        let _ = request.answer.send(Ok(Held { interface: entry.interface.name.clone() }));
        None
    }

    async fn release(&mut self, requests: Vec<ReleaseRequest>) {
        let unheld = self.entries.release(&requests);
        let failed = self.delete(unheld.iter().flatten().copied().collect()).await;
        for (request, addresses) in requests.into_iter().zip(unheld) {
            let _ = request.answer.send(outcome(&addresses, &failed));
        }
    }

    /// Deletes those of these addresses that are ours. Returns those that may still be there, and why.
    async fn delete(&mut self, addresses: BTreeSet<IpAddr>) -> BTreeMap<IpAddr, Error> {
        if addresses.is_empty() {
            return BTreeMap::new();
        }
        let host = match self.kernel.host().await {
            Ok(host) => host,
            Err(error) => return addresses.into_iter().map(|address| (address, error.clone())).collect(),
        };
        let ours = host.addresses.iter().filter(|one| addresses.contains(&one.address) && one.is_ours());
        let targets: Vec<Target> = ours.map(|one| (one.address, one.interface)).collect();
        debug!(?targets, "addresses are released");
        let answers = self.kernel.delete(&targets).await.into_iter().zip(targets);
        answers.filter_map(|(answer, (address, _))| Some((address, answer.err()?))).collect()
    }

    /// Sets addresses where they belong, and deletes them elsewhere. The outer error concerns them all.
    async fn settle(
        &mut self,
        wanted: BTreeMap<IpAddr, InterfaceChoice>,
    ) -> Result<BTreeMap<IpAddr, Result<Place>>> {
        let mut host = self.kernel.host().await?;
        if wanted
            .iter()
            .any(|(address, choice)| *choice == InterfaceChoice::Automatic && host.needs_routes(*address))
        {
            host.default_routes = self.kernel.default_routes().await?;
        }
        let mut places: BTreeMap<IpAddr, Result<Place>> =
            wanted.iter().map(|(address, choice)| (*address, self.place(&host, *address, choice))).collect();
        let (mut stale, mut targets) = (Vec::new(), Vec::new());
        for (address, place) in &places {
            if let Ok(place) = place {
                stale.extend(place.elsewhere.iter().map(|interface| (*address, *interface)));
                targets.push((*address, place.interface.index));
            }
        }
        for (error, target) in self.kernel.delete(&stale).await.into_iter().zip(&stale) {
            if let Err(error) = error {
                places.insert(target.0, Err(error));
            }
        }
        targets.retain(|(address, _)| places.get(address).is_some_and(Result::is_ok));
        let answers = self.kernel.set(&targets).await;
        let mut new = Vec::new();
        for (answer, (address, _)) in answers.into_iter().zip(targets) {
            let Some(Ok(place)) = places.get(&address) else { continue };
            if answer.is_ok() && !place.is_set {
                new.push(address);
            }
            if let Err(error) = answer {
                let name = place.interface.name.clone();
                let error = match error {
                    Error::Ipv6Off { .. } => Error::Ipv6Off { interface: name },
                    other => other,
                };
                places.insert(address, Err(error));
            }
        }
        // What neighbours hear of too early, they ask for in vain.
        self.kernel.take_effect(&new).await;
        Ok(places)
    }

    /// Where an address belongs, if it can be set there and announced.
    fn place(&mut self, host: &Host, address: IpAddr, choice: &InterfaceChoice) -> Result<Place> {
        let before = self.entries.lock().get(&address).map(|entry| entry.interface.name.clone());
        let place = host.place(address, choice, before.as_deref())?;
        if place.interface.has_neighbours() && self.socket.is_none() {
            self.socket = Some(PacketSocket::open()?);
        }
        Ok(place)
    }

    /// Renews all addresses, sets those that the kernel lost, and moves those that belong elsewhere.
    async fn renew(&mut self) {
        let (now, lifetime) = (Instant::now(), self.limit.lifetime());
        self.kept_until = now + lifetime;
        let wanted: BTreeMap<_, _> =
            self.entries.lock().iter().map(|(address, entry)| (*address, entry.choice.clone())).collect();
        if wanted.is_empty() {
            return;
        }
        let late = now - self.next_renewal;
        if late > LIFETIME {
            warn!("addresses are renewed {} s too late, so the kernel may have removed them", late.as_secs());
        }
        let places = match self.settle(wanted).await {
            Ok(places) => places,
            Err(error) => {
                warn!("cannot renew addresses: {error}");
                for entry in self.entries.lock().values_mut() {
                    entry.fault = Some(error.clone());
                }
                return;
            }
        };
        let mut entries = self.entries.lock();
        for (address, place) in places {
            let Some(entry) = entries.get_mut(&address) else { continue };
            match place {
                Ok(place) => note_place(entry, &place),
                Err(error) => {
                    if entry.fault.as_ref() != Some(&error) {
                        warn!(%address, "an address is not held: {error}");
                    }
                    entry.fault = Some(error);
                }
            }
        }
    }

    /// Sends the announcements that are due.
    fn announce(&mut self) {
        let Some(socket) = &self.socket else { return };
        let now = Instant::now();
        for (address, entry) in self.entries.lock().iter_mut() {
            let (Some(mac), true) = (entry.interface.mac, is_announced(entry) && entry.schedule.due() <= now)
            else {
                continue;
            };
            for packet in announcements(*address, mac) {
                if let Err(error) = socket.send(entry.interface.index, &packet) {
                    // such as an interface that was switched off just now; the next announcement follows
                    debug!(%address, interface = entry.interface.name, "cannot announce: {error}");
                }
            }
            entry.schedule.done(now);
        }
    }
}

/// What came of a release after which nobody holds these addresses.
fn outcome(addresses: &[IpAddr], failed: &BTreeMap<IpAddr, Error>) -> Result<()> {
    addresses.iter().find_map(|address| failed.get(address)).map_or(Ok(()), |error| Err(error.clone()))
}

/// The next interface that changes. Waits for ever if changes cannot be followed.
async fn next_change(links: &mut Option<(LinkChanges, mpsc::UnboundedReceiver<u32>)>) -> Option<u32> {
    match links {
        Some((_, changes)) => changes.recv().await,
        None => std::future::pending().await,
    }
}

/// Notes that the address is set in `place`, and begins to announce it if neighbours must learn something new.
fn note_place(entry: &mut Entry, place: &Place) {
    if !place.is_set || entry.fault.is_some() || entry.interface != place.interface {
        entry.announce_again();
    }
    if let Some(fault) = entry.fault.take() {
        info!(interface = place.interface.name, "an address is held again, after: {fault}");
    }
    entry.interface = place.interface.clone();
}

fn is_announced(entry: &Entry) -> bool {
    entry.fault.is_none() && entry.interface.is_up && entry.interface.has_neighbours()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_of_its_own_failure_only() {
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|text| text.parse().expect("an address"));
        let error = Error::Kernel { action: "delete it".to_owned(), reason: "busy".to_owned() };
        let failed = BTreeMap::from([(b, error.clone())]);
        assert_eq!(outcome(&[a], &failed), Ok(()));
        assert_eq!(outcome(&[b], &failed), Err(error.clone()));
        assert_eq!(outcome(&[a, b, c], &failed), Err(error));
        assert_eq!(outcome(&[], &failed), Ok(()));
    }
}

//! The actor while it is connected: it follows events, and reads domains again that changed.

use std::{collections::HashMap, time::Duration};

use cloudprovider::ErrorKind;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{
    actor::Actor,
    connected::{COLLECT, Connected},
};
use crate::{calls::Failure, domain::Domain, session::Session};

/// With more changed domains than this, one listing is cheaper than reading each.
const MANY: usize = 200;
/// Listings because of many events are at least this far apart, and ten times as far as one takes.
const LEAST_LISTING_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a listing that took so long.
fn pause_after_listing(took: Duration) -> Duration {
    (took * 10).max(LEAST_LISTING_PAUSE)
}

impl Actor {
    /// Follows events until the connection is lost, and says why.
    pub(super) async fn follow(&mut self, mut connected: Connected) -> Failure {
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

    /// Fails all requests that wait, since the connection is gone.
    fn give_up(&self, connected: Connected, failure: Failure) -> Failure {
        for (_, answer) in connected.confirmations {
            let _ = answer.send(Err(failure.clone()));
        }
        for (_, answer) in connected.probes {
            let _ = answer.send(Err(failure.clone()));
        }
        if failure.kind == ErrorKind::Timeout {
            connected.worker.abandon(&self.abandoned);
        }
        failure
    }

    /// Does what is due.
    async fn work(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let now = Instant::now();
        connected.retry_failed(now);
        connected.needs_listing |= connected.dirty.len() > MANY;
        if connected.needs_listing {
            connected.dirty.clear();
            connected.dirty_since = None;
            connected.next_refresh = connected.next_refresh.min(connected.next_listing);
        }
        if connected.dirty_since.is_some_and(|since| since + COLLECT <= now) {
            connected.dirty_since = None;
            let uuids: Vec<Uuid> = connected.dirty.drain().collect();
            self.reread(connected, uuids, &HashMap::new()).await?;
        }
        if !connected.confirmations.is_empty() {
            self.confirm(connected).await?;
        }
        while let Some((nodes, answer)) = connected.probes.pop() {
            let result = self.on_worker(connected, move |session| session.probe(&nodes)).await;
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
        if connected.next_poll <= now || connected.next_lease_check <= now {
            self.poll_addresses(connected).await?;
        }
        self.ask_agents(connected).await
    }

    /// Reads domains again. A domain that is not in the inventory and cannot be read gets its name from
    /// `names`.
    async fn reread(
        &mut self,
        connected: &mut Connected,
        uuids: Vec<Uuid>,
        names: &HashMap<Uuid, String>,
    ) -> Result<(), Failure> {
        let read = self.on_worker(connected, move |session| session.reread(&uuids)).await?;
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
        // a domain that has just started has no address yet
        connected.poll_soon();
        Ok(())
    }

    /// Compares the inventory with libvirt's list, and answers all confirmations that wait.
    async fn confirm(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let confirmed = self.hypervisor.state().confirmed;
        let is_served = |asked: &std::time::Instant| confirmed.is_some_and(|at| at >= *asked);
        if !connected.confirmations.iter().all(|(asked, _)| is_served(asked)) {
            let began = std::time::Instant::now();
            let names = self.on_worker(connected, Session::names).await?;
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
        for (_, answer) in connected.confirmations.drain(..) {
            let _ = answer.send(Ok(()));
        }
        Ok(())
    }

    async fn refresh(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let began = std::time::Instant::now();
        let known: Vec<Uuid> =
            self.hypervisor.state().inventory.domains().map(|domain| domain.uuid).collect();
        let listing = self.on_worker(connected, move |session| session.list(&known)).await?;
        let ran = self.hypervisor.running();
        self.hypervisor.update(|state| {
            state.confirmed = Some(began);
            state.inventory.replace(listing)
        });
        connected.needs_listing = false;
        connected.next_listing = Instant::now() + pause_after_listing(began.elapsed());
        let rules = &self.hypervisor.settings.addresses;
        connected.note_listed(&self.hypervisor.state().inventory, rules, &ran);
        {
            let state = self.hypervisor.state();
            connected.agents.queue = state.inventory.with_agent().collect();
            connected.note_unreadable(state.inventory.domains());
        }
        connected.next_refresh = Instant::now() + self.hypervisor.settings.refresh_interval;
        connected.poll_soon();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_leave_libvirt_time_for_others() {
        assert_eq!(pause_after_listing(Duration::from_millis(10)), Duration::from_secs(1));
        assert_eq!(pause_after_listing(Duration::from_secs(3)), Duration::from_secs(30));
    }
}

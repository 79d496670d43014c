//! The actor's work with guest agents: it hands out the questions, and takes the answers.

use std::sync::Arc;

use cloudprovider::{ErrorKind, InstanceRef};
use tokio::time::Instant;

use super::{
    super::{actor::Actor, connected::Connected},
    AgentAnswer, AgentSession, AgentWorker,
};
use crate::{
    calls::{Calls, Failure},
    worker::Worker,
};

impl Actor {
    /// Gives the next domains to the threads that ask guest agents.
    pub(in super::super) async fn ask_agents(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        // an agent that hangs holds its thread, but not the addresses of its domain from elsewhere
        let mut unheard = connected.agents.give_up_hanging(self.hypervisor.settings.call_timeout);
        while let Some(uuid) = connected.agents.queue.front().copied() {
            if connected.agents.is_left_alone(uuid) {
                connected.agents.queue.pop_front();
                // addresses from elsewhere need not wait for it
                unheard.extend(Some(uuid).filter(|uuid| connected.agents.hanging.contains_key(uuid)));
                continue;
            }
            let agents = &connected.agents;
            let i = match agents.workers.iter().position(|worker| worker.asked.is_none()) {
                Some(i) => i,
                None if agents.may_add_worker() => self.add_agent_worker(connected).await?,
                None => break,
            };
            let agents = &mut connected.agents;
            agents.queue.pop_front();
            let sender = agents.sender.clone();
            let worker = &mut agents.workers[i];
            let number = worker.number;
            worker.asked = Some((uuid, Instant::now()));
            drop(worker.worker.run(move |session: &mut AgentSession| {
                let answer = session.ask(uuid);
                let _ = sender.send(AgentAnswer { worker: number, uuid, answer });
            }));
        }
        if connected.agents.is_newly_full() {
            tracing::warn!(
                hypervisor = self.name(),
                hanging = connected.agents.hanging.len(),
                "too many guest agents hang: no other one is asked until some of them answer, or their guests end"
            );
        }
        if connected.agents.workers.is_empty() {
            // no worker is left to ask the others; the next refresh tries again
            unheard.extend(connected.agents.queue.drain(..));
        }
        if !unheard.is_empty() {
            self.hypervisor.update(|state| {
                unheard.into_iter().filter_map(|uuid| state.inventory.set_agent(uuid, None)).collect()
            });
        }
        Ok(())
    }

    /// Each thread has a connection of its own (see [`Session`](crate::session::Session)), which it opens
    /// when it first asks; libvirtd takes few requests of one client at a time, too, and those that hang are
    /// among them.
    async fn add_agent_worker(&mut self, connected: &mut Connected) -> Result<usize, Failure> {
        let name = format!("libvirt-{}-agent", self.name());
        let config = self.hypervisor.config.clone();
        let keepalive = self.hypervisor.settings.keepalive;
        let calls = Calls { counts: Arc::clone(&self.hypervisor.counts), ..Calls::default() };
        let (number, workers) = (connected.agents.next_number, self.hypervisor.workers().clone());
        let worker = self
            .on_worker(connected, move |session| {
                let connect = session.share();
                let state = move || AgentSession { connect, config, keepalive, calls };
                Worker::spawn(name, &workers, state).map_err(|error| {
                    Failure::lost(ErrorKind::Internal, format!("cannot start a thread: {error}"))
                })
            })
            .await?;
        connected.agents.next_number += 1;
        connected.agents.workers.push(AgentWorker { number, worker, asked: None });
        Ok(connected.agents.workers.len() - 1)
    }

    pub(in super::super) fn take_agent_answer(&self, connected: &mut Connected, answer: AgentAnswer) {
        let agents = &mut connected.agents;
        match agents.workers.iter_mut().find(|worker| worker.number == answer.worker) {
            Some(worker) => worker.asked = None,
            // late, but it has come
            None => agents.came_back(answer.uuid),
        }
        let heard = match answer.answer {
            Ok(interfaces) => Some(interfaces),
            // a guest can make its agent say anything, so an error says nothing of the connection
            Err(failure) => {
                tracing::debug!(
                    hypervisor = self.name(),
                    domain = %answer.uuid,
                    reason = failure.message,
                    "no answer from the guest agent"
                );
                None
            }
        };
        self.hypervisor.update(|state| -> Vec<InstanceRef> {
            state.inventory.set_agent(answer.uuid, heard).into_iter().collect()
        });
    }
}

//! Asks guest agents. They are in the hands of the guests: some answer late, some never.

mod asking;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};
use uuid::Uuid;
use virt::connect::Connect;

use crate::{
    addresses::AgentInterface,
    calls::{Calls, Failure},
    config::{HypervisorConfig, Keepalive},
    session::{ask_agent, open_connection},
    worker::{AbandonedThreads, Worker},
};

/// Threads that ask at the same time.
const WORKERS: usize = 2;
/// Agents that hang until the others are asked one at a time. Each holds a thread here and a worker of
/// libvirtd, which gives up neither: an agent that once answered is waited for without a limit, also when its
/// guest is frozen.
const MANY_HANGING: usize = 8;
/// Threads altogether, those included that wait for an agent which hangs. libvirtd has 20 workers by default,
/// and needs some for everybody else.
const MOST_THREADS: usize = 16;

/// State of a thread that asks.
struct AgentSession {
    connect: Option<Connect>,
    config: HypervisorConfig,
    keepalive: Keepalive,
    calls: Calls,
}

impl AgentSession {
    fn ask(&mut self, uuid: Uuid) -> Result<Vec<AgentInterface>, Failure> {
        // one that was lost while nothing was asked
        self.connect.take_if(|connect| connect.is_alive() == Ok(false));
        let connect = match &self.connect {
            Some(connect) => connect,
            None => self.connect.insert(open_connection(&self.config, self.keepalive, &self.calls)?.0),
        };
        let answer = ask_agent(connect, &self.calls, uuid);
        if connect.is_alive() == Ok(false) {
            self.connect = None;
        }
        answer
    }
}

struct AgentWorker {
    number: u64,
    worker: Worker<AgentSession>,
    /// The domain whose agent is being asked, and since when.
    asked: Option<(Uuid, Instant)>,
}

/// What one agent said.
pub(super) struct AgentAnswer {
    worker: u64,
    uuid: Uuid,
    answer: Result<Vec<AgentInterface>, Failure>,
}

/// The agents of one connection.
pub(super) struct Agents {
    /// The domains whose agents are asked next.
    pub(super) queue: VecDeque<Uuid>,
    pub(super) answers: mpsc::UnboundedReceiver<AgentAnswer>,
    sender: mpsc::UnboundedSender<AgentAnswer>,
    workers: Vec<AgentWorker>,
    next_number: u64,
    /// Threads that wait for an agent which hangs.
    abandoned: AbandonedThreads,
    /// Domains whose agent did not answer in time, and whose call has not come back yet: another call would
    /// hold a second thread. The value says whether the agent has connected again since, and is asked once
    /// the call is back.
    hanging: HashMap<Uuid, bool>,
    /// Whether the log has said that too many hang.
    is_full: bool,
}

impl Agents {
    pub(super) fn new(queue: VecDeque<Uuid>) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            queue,
            answers,
            sender,
            workers: Vec::new(),
            next_number: 0,
            abandoned: AbandonedThreads::default(),
            hanging: HashMap::new(),
            is_full: false,
        }
    }

    /// Asks an agent that has connected again.
    pub(super) fn ask_again(&mut self, uuid: Uuid) {
        match self.hanging.get_mut(&uuid) {
            // libvirt gives up its call when the agent goes: soon
            Some(has_come_anew) => *has_come_anew = true,
            None => self.queue.push_back(uuid),
        }
    }

    /// An abandoned call came back.
    fn came_back(&mut self, uuid: Uuid) {
        if self.hanging.remove(&uuid) == Some(true) {
            self.queue.push_back(uuid);
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.workers.iter().any(|worker| worker.asked.is_some())
    }

    /// Abandons the workers that have waited longer than `limit` for an answer, and returns the domains.
    fn give_up_hanging(&mut self, limit: Duration) -> Vec<Uuid> {
        let now = Instant::now();
        let mut given_up = Vec::new();
        let is_hanging = |worker: &mut AgentWorker| {
            worker.asked.is_some_and(|(_, since)| now.duration_since(since) > limit)
        };
        for worker in self.workers.extract_if(.., is_hanging) {
            given_up.extend(worker.asked.map(|(uuid, _)| uuid));
            worker.worker.abandon(&self.abandoned);
        }
        self.hanging.extend(given_up.iter().map(|uuid| (*uuid, false)));
        given_up
    }

    fn is_left_alone(&self, uuid: Uuid) -> bool {
        self.hanging.contains_key(&uuid)
            || self.workers.iter().any(|worker| worker.asked.is_some_and(|(asked, _)| asked == uuid))
    }

    fn may_add_worker(&self) -> bool {
        let hanging = self.abandoned.get();
        let workers = if hanging < MANY_HANGING { WORKERS } else { 1 };
        self.workers.len() < workers && self.workers.len() + hanging < MOST_THREADS
    }

    /// Whether the last worker has just been lost, so that no agent can be asked.
    fn is_newly_full(&mut self) -> bool {
        let is_full = self.workers.is_empty() && !self.may_add_worker();
        let was_full = std::mem::replace(&mut self.is_full, is_full);
        is_full && !was_full
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;

    use super::*;
    use crate::worker::WorkerCount;

    fn hang(agents: &mut Agents, uuid: Uuid, wait: blocking::Receiver<()>) {
        let config = crate::Config::parse("hypervisors: [{name: a, uri: 'test:///default'}]", None);
        let config = config.expect("valid");
        let (keepalive, config) = (config.keepalive, config.hypervisors[0].clone());
        let state = move || AgentSession { connect: None, config, keepalive, calls: Calls::default() };
        let worker = Worker::spawn("hanging".to_owned(), &WorkerCount::default(), state).expect("a thread");
        drop(worker.run(move |_| wait.recv()));
        let asked = Some((uuid, Instant::now()));
        agents.workers.push(AgentWorker { number: agents.next_number, worker, asked });
        agents.next_number += 1;
    }

    /// Lets this many agents hang, one after the other.
    async fn hang_many(agents: &mut Agents, count: usize) -> Vec<blocking::Sender<()>> {
        let mut releases = Vec::new();
        for n in 0..count as u128 {
            assert!(agents.may_add_worker(), "{n}");
            let (release, wait) = blocking::channel();
            releases.push(release);
            hang(agents, Uuid::from_u128(n), wait);
            assert!(agents.give_up_hanging(Duration::from_secs(10)).is_empty(), "not yet");
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(agents.give_up_hanging(Duration::ZERO), [Uuid::from_u128(n)]);
            assert!(agents.is_left_alone(Uuid::from_u128(n)) && !agents.is_left_alone(Uuid::max()));
        }
        releases
    }

    #[tokio::test]
    async fn agents_that_hang_are_replaced_up_to_a_limit() {
        let mut agents = Agents::new(VecDeque::new());
        let releases = hang_many(&mut agents, MOST_THREADS).await;
        assert!(!agents.may_add_worker());
        assert!(agents.is_newly_full() && !agents.is_newly_full(), "it is said once");
        drop(releases);
        for _ in 0..500 {
            if agents.abandoned.get() == 0 {
                assert!(agents.may_add_worker() && !agents.is_newly_full());
                assert!(!agents.is_full, "the next time is said again");
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("threads that have come back still count");
    }

    #[tokio::test]
    async fn where_many_hang_the_others_take_turns() {
        let mut agents = Agents::new(VecDeque::new());
        let few = hang_many(&mut agents, MANY_HANGING - 1).await;
        let (_kept, wait) = blocking::channel();
        hang(&mut agents, Uuid::max(), wait);
        assert!(agents.may_add_worker(), "two at a time");
        tokio::time::sleep(Duration::from_millis(2)).await;
        agents.give_up_hanging(Duration::ZERO);
        assert!(agents.may_add_worker(), "nine guests, and the ninth is asked");
        let (_held, wait) = blocking::channel();
        hang(&mut agents, Uuid::nil(), wait);
        assert!(!agents.may_add_worker(), "one at a time");
        drop(few);
    }

    #[tokio::test(start_paused = true)]
    async fn one_guest_holds_one_thread() {
        let mut agents = Agents::new(VecDeque::new());
        let (guest, (_release, wait)) = (Uuid::from_u128(1), blocking::channel());
        hang(&mut agents, guest, wait);
        tokio::time::advance(Duration::from_secs(11)).await;
        agents.give_up_hanging(Duration::from_secs(10));
        // However long that was ago, and however often its agent comes and goes.
        tokio::time::advance(Duration::from_secs(3600)).await;
        agents.give_up_hanging(Duration::from_secs(10));
        agents.ask_again(guest);
        assert!(agents.is_left_alone(guest) && agents.queue.is_empty());
        agents.came_back(guest);
        assert!(!agents.is_left_alone(guest));
        assert_eq!(agents.queue, [guest], "it had come anew");
        agents.came_back(guest);
        assert_eq!(agents.queue.len(), 1);
    }
}

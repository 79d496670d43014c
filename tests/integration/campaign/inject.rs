//! How each fault is injected, and ended.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use test_env::Signal;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    api_server::ApiServer,
    cloud::Cloud,
    daemons::Daemon,
    faults::{Fault, Group, Planned, Whom},
    judge::Terms,
    world::{CloudMode, Machine, Mark, Micros, Slot, World, now},
};

/// The timeout of the campaign's own requests to the API server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// A taint that is not ours.
pub(super) const OTHERS_TAINT: &str = "example.com/maintenance";

/// Everything that faults affect.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) cloud: Arc<Cloud>,
    pub(super) daemons: Vec<Arc<Daemon>>,
    pub(super) api_server: Arc<ApiServer>,
    /// The administrator's client, which bypasses the proxy.
    pub(super) client: Client,
    pub(super) terms: Arc<Mutex<Terms>>,
    /// Whether faults are to stop for now.
    pub(super) calm: watch::Receiver<bool>,
    /// UIDs of the Nodes that the campaign deleted itself.
    pub(super) deleted: Arc<Mutex<HashSet<String>>>,
    taken: Arc<Mutex<HashSet<Group>>>,
    log: Arc<Mutex<Log>>,
}

/// The injected faults.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) counts: BTreeMap<String, u64>,
    /// The last of them.
    pub(super) lines: Vec<(Micros, String)>,
    /// The number of faults that found no suitable target.
    pub(super) skipped: u64,
}

impl Stage {
    pub(super) fn new(
        world: World,
        cloud: Arc<Cloud>,
        daemons: Vec<Arc<Daemon>>,
        api_server: Arc<ApiServer>,
        client: Client,
        calm: watch::Receiver<bool>,
    ) -> Self {
        Self {
            world,
            cloud,
            daemons,
            api_server,
            client,
            terms: Arc::default(),
            calm,
            deleted: Arc::default(),
            taken: Arc::default(),
            log: Arc::default(),
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    pub(super) fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock()
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<Group>> {
        self.taken.lock()
    }

    pub(super) fn deleted(&self) -> MutexGuard<'_, HashSet<String>> {
        self.deleted.lock()
    }

    /// Begins a fault, and adds a task to `tasks` that ends it.
    pub(super) fn inject(&self, planned: Planned, tasks: &mut JoinSet<()>) {
        let Planned { target, fault, .. } = planned;
        let group = fault.group();
        let slot = if group == Group::Node {
            let Some(slot) = self.choose(&fault, target) else {
                self.log().skipped += 1;
                return;
            };
            Some(slot)
        } else {
            if group != Group::None && !self.taken().insert(group) {
                self.log().skipped += 1;
                return;
            }
            None
        };
        let on = slot.as_ref().map(|slot| format!(" on {}", slot.name())).unwrap_or_default();
        let line = format!("{fault:?}{on}");
        {
            let mut log = self.log();
            *log.counts.entry(fault.word()).or_default() += 1;
            log.lines.push((now(), line.clone()));
            let surplus = log.lines.len().saturating_sub(2000);
            log.lines.drain(..surplus);
        }
        let stage = self.clone();
        tasks.spawn(async move {
            let outcome = match &slot {
                Some(slot) => {
                    stage.world.with(slot.number, |slot| slot.note(line));
                    stage.on_node(&fault, slot).await
                }
                None => stage.elsewhere(&fault, target).await,
            };
            if let Err(error) = outcome {
                stage.log().lines.push((now(), format!("{fault:?} was not done to its end: {error:#}")));
            }
            if group != Group::None && group != Group::Node {
                stage.taken().remove(&group);
            }
        });
    }

    /// The next Node from `target` on that is suitable for the fault. It is reserved if the fault needs it
    /// alone.
    fn choose(&self, fault: &Fault, target: usize) -> Option<Slot> {
        let mut state = self.world.lock();
        let all = state.slots.len();
        // Too many machines that are really gone would only keep the breaker open.
        let gone = state.slots.iter().filter(|slot| matches!(slot.machine, Machine::Gone(_))).count();
        if matches!(fault, Fault::MachineVanishes | Fault::NodeReplaced) && gone >= (all / 16).max(4) {
            return None;
        }
        let alone = !matches!(
            fault,
            Fault::Excluded(_) | Fault::Allowed(_) | Fault::TaintOfOthers(_) | Fault::InstanceResized
        );
        let fits = |slot: &Slot| {
            slot.uid.is_some()
                && match fault {
                    Fault::Excluded(_) => slot.excluded == Mark::Absent,
                    Fault::Allowed(_) => slot.allowed == Mark::Absent,
                    Fault::TaintOfOthers(_) => slot.tainted == Mark::Absent,
                    Fault::InstanceResized => slot.machine == Machine::Running,
                    // A Node must not be deleted if the daemon never knew its machine.
                    Fault::MachineVanishes if !slot.initialized => false,
                    _ => slot.busy.is_none() && slot.lives() && slot.told_ready && !slot.lied_about,
                }
        };
        let found = (0..all).map(|step| (target + step) % all).find(|number| fits(&state.slots[*number]))?;
        let slot = &mut state.slots[found];
        if alone {
            slot.busy = Some("fault");
        }
        Some(slot.clone())
    }

    /// Waits this long, or until the faults are to stop.
    pub(super) async fn hold(&self, time: Duration) {
        let mut calm = self.calm.clone();
        let _ = timeout(time, calm.wait_for(|calm| *calm)).await;
    }

    /// Waits this long, and then until faults are not stopped, so that the state does not change in between.
    pub(super) async fn hold_still(&self, time: Duration) {
        sleep(time).await;
        let _ = self.calm.clone().wait_for(|calm| !*calm).await;
    }

    /// Pushes three of four changes; the daemon has to find the others itself.
    pub(super) fn push_maybe(&self, slot: &Slot) {
        if fastrand::u8(..4) > 0 {
            self.cloud.push(Some(slot.uuid()));
        }
    }

    pub(super) async fn until(&self, number: usize, holds: impl Fn(&Slot) -> bool) {
        while !self.world.with(number, |slot| holds(slot)) {
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn free_when_ready(&self, number: usize) {
        self.until(number, |slot| slot.told_ready && slot.uid.is_some()).await;
        self.world.with(number, |slot| slot.busy = None);
    }

    /// Retries until the API server accepts the request or refuses it permanently.
    pub(super) async fn try_for_long<F>(&self, attempt: impl Fn() -> F)
    where
        F: Future<Output = kube::Result<()>>,
    {
        loop {
            match timeout(TIMEOUT, attempt()).await {
                Ok(Ok(())) => return,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409 | 422) => return,
                _ => sleep(Duration::from_millis(300)).await,
            }
        }
    }

    fn met(&self, whom: Whom) -> Vec<Arc<Daemon>> {
        match whom {
            Whom::All => self.daemons.clone(),
            Whom::Number(number) => vec![self.daemons[number].clone()],
            Whom::Leader => {
                let holder = self.terms().holder();
                let leader = self.daemons.iter().find(|daemon| daemon.life() == holder && holder.is_some());
                vec![leader.unwrap_or(&self.daemons[0]).clone()]
            }
        }
    }

    async fn elsewhere(&self, fault: &Fault, target: usize) -> anyhow::Result<()> {
        let mode = |mode: CloudMode| self.world.lock().cloud = mode;
        match *fault {
            Fault::CloudFails(kind, time) => {
                mode(CloudMode { error: Some(kind), ..CloudMode::default() });
                self.hold(time).await;
                mode(CloudMode::default());
            }
            Fault::SomeInstancesFail { percent, time } => {
                let chosen = self.share(percent, target, |_| true);
                for number in &chosen {
                    self.world.with(*number, |slot| slot.failing = true);
                }
                self.hold(time).await;
                for number in &chosen {
                    self.world.with(*number, |slot| slot.failing = false);
                }
            }
            Fault::CloudHangs => {
                // Requests during this time hang for longer than the daemon waits.
                mode(CloudMode { delay: Duration::from_secs(70), ..CloudMode::default() });
                self.hold(Duration::from_secs(2)).await;
                mode(CloudMode::default());
            }
            Fault::CloudSlow { delay, time } => {
                mode(CloudMode { delay, ..CloudMode::default() });
                self.hold(time).await;
                mode(CloudMode::default());
            }
            Fault::ProviderPanics(time) => {
                mode(CloudMode { panic: true, ..CloudMode::default() });
                self.hold(time).await;
                mode(CloudMode::default());
            }
            Fault::TooFewAnswers(time) => {
                mode(CloudMode { short: true, ..CloudMode::default() });
                self.hold(time).await;
                mode(CloudMode::default());
            }
            Fault::WrongAbsences { percent, time } => self.lie(percent, time, target).await,
            Fault::ChangesLost => self.cloud.lose_streams(),
            Fault::ChangesStorm(changes) => {
                for change in 0..changes {
                    let number = (target + change as usize) % self.world.lock().slots.len();
                    let uuid = self.world.with(number, |slot| slot.uuid());
                    self.cloud.push((change % 3 > 0).then_some(uuid));
                }
            }
            Fault::ApiServerFrozen(time) => {
                self.api_server.freeze(time)?;
                self.hold(time).await;
                self.api_server.thaw()?;
                sleep(Duration::from_millis(500)).await;
            }
            Fault::ApiServerKilled => self.api_server.restart(true).await?,
            Fault::ApiServerRestarted => self.api_server.restart(false).await?,
            Fault::EtcdFrozen(time) => {
                self.api_server.freeze_storage(time)?;
                self.hold(time).await;
                self.api_server.thaw_storage()?;
                sleep(Duration::from_millis(500)).await;
            }
            Fault::ElectionLeaseDeleted | Fault::ElectionLeaseStolen => {
                let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
                let name = "cloud-controller-manager";
                let theft = json!({"spec": {
                    "holderIdentity": "thief", "leaseDurationSeconds": 4,
                    "renewTime": format!("{:.6}", jiff::Timestamp::now()),
                }});
                self.terms().interference.push(now());
                let done = if *fault == Fault::ElectionLeaseDeleted {
                    timeout(TIMEOUT, leases.delete(name, &DeleteParams::default()))
                        .await
                        .map(|done| done.is_ok())
                } else {
                    let patch = Patch::Merge(&theft);
                    timeout(TIMEOUT, leases.patch(name, &PatchParams::default(), &patch))
                        .await
                        .map(|done| done.is_ok())
                };
                self.terms().interference.push(now());
                anyhow::ensure!(done.unwrap_or_default(), "no answer, or the Lease is not there");
            }
            Fault::Spoilt { whom, which, what, probability, time } => {
                for daemon in self.met(whom) {
                    daemon.spoil(time, which, what, probability);
                }
            }
            Fault::ConnectionsCut(whom) => self.met(whom).iter().for_each(|daemon| daemon.way.cut()),
            Fault::WatchesCut(whom) => self.met(whom).iter().for_each(|daemon| daemon.way.cut_watches()),
            Fault::WatchesGarbled(whom) => {
                self.met(whom).iter().for_each(|daemon| daemon.way.garble_watches());
            }
            Fault::DaemonKilled(whom) => {
                for daemon in self.met(whom) {
                    daemon.signal(Signal::Kill)?;
                }
            }
            Fault::DaemonTerminated(whom) => {
                for daemon in self.met(whom) {
                    daemon.signal(Signal::Term)?;
                }
            }
            Fault::DaemonFrozen(whom, time) => {
                let met = self.met(whom);
                for daemon in &met {
                    daemon.signal(Signal::Stop)?;
                }
                self.hold(time).await;
                for daemon in &met {
                    daemon.signal(Signal::Cont)?;
                }
            }
            Fault::ClockJumps(whom, seconds) => {
                for daemon in self.met(whom) {
                    anyhow::ensure!(daemon.set_clock(seconds)?, "clocks cannot be set here");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// This percentage of the places, from `target` on, that are suitable.
    fn share(&self, percent: usize, target: usize, fits: impl Fn(&Slot) -> bool) -> Vec<usize> {
        let state = self.world.lock();
        let all = state.slots.len();
        let wanted = (all * percent / 100).max(1);
        let places = (0..all).map(|step| (target + step) % all);
        places.filter(|number| fits(&state.slots[*number])).take(wanted).collect()
    }

    /// The cloud reports living machines as gone.
    async fn lie(&self, percent: usize, time: Duration, target: usize) {
        let fits = |slot: &Slot| {
            slot.busy.is_none() && slot.uid.is_some() && slot.lives() && slot.told_ready && slot.renewed > 0
        };
        let chosen = self.share(percent, target, fits);
        for number in &chosen {
            let slot = self.world.with(*number, |slot| {
                slot.lied_about = true;
                slot.busy = Some("lied about");
                slot.note("the cloud says that it is gone, which is wrong");
                slot.clone()
            });
            self.push_maybe(&slot);
        }
        self.hold(time).await;
        for number in &chosen {
            let slot = self.world.with(*number, |slot| {
                slot.lied_about = false;
                slot.note("the cloud says the truth again");
                slot.clone()
            });
            self.push_maybe(&slot);
        }
        // Let decisions that are based on the lie take effect before the next fault at these places.
        sleep(Duration::from_secs(3)).await;
        for number in &chosen {
            self.world.with(*number, |slot| slot.busy = None);
        }
    }
}

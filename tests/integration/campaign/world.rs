//! The true state: the machines, their kubelets, what the cloud is made to claim about them, and what others
//! did to the Nodes. It is the judge's only source.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

/// Microseconds since the epoch, by the wall clock, as in the audit log.
pub(super) type Micros = i64;

pub(super) const SECOND: Micros = 1_000_000;

pub(super) fn now() -> Micros {
    Timestamp::now().as_microsecond()
}

/// A time in seconds, for messages.
#[expect(clippy::cast_precision_loss, reason = "hundredths of a second are told")]
pub(super) fn seconds(time: Micros) -> f64 {
    time as f64 / SECOND as f64
}

pub(super) fn micros(time: Duration) -> Micros {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The true state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Running,
    Off,
    /// Gone for good since then.
    Gone(Micros),
}

/// The state of something that others write on a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Absent,
    /// A write is in progress.
    Changing,
    Present,
}

/// The place of a Node. Its name stays; its machine and its Node object may be replaced.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    /// The number of the current machine at this place.
    pub(super) generation: u32,
    pub(super) machine: Machine,
    /// The number in the instance type's name. The daemon must follow changes.
    pub(super) flavour: u32,
    /// Whether the kubelet runs.
    pub(super) kubelet: bool,
    /// The status that the kubelet reports.
    pub(super) ready: bool,
    /// Whether it has reported that to the API server.
    pub(super) told_ready: bool,
    /// The duration that the kubelet writes into its lease.
    pub(super) lease_seconds: i32,
    /// Whether the cloud claims that the machine is gone although it is not.
    pub(super) lied_about: bool,
    /// Whether look-ups of this machine fail.
    pub(super) failing: bool,
    /// The Node's UID, from its registration until it is known to be gone.
    pub(super) uid: Option<String>,
    /// Whether it has its provider ID.
    pub(super) initialized: bool,
    /// Since when the breaker holds back the Node's deletion, by the Node's condition.
    pub(super) kept_by_breaker: Option<Micros>,
    /// When the Node was registered.
    pub(super) registered: Micros,
    /// When the last renewal of the lease succeeded.
    pub(super) renewed: Micros,
    /// When the next renewal is due. A delay of it is the campaign's own, not the API server's.
    pub(super) due: Option<Micros>,
    /// Whether kube-controller-manager has marked the kubelet as silent.
    pub(super) marked_unknown: bool,
    /// Whether the lease exists, unless the campaign deleted it.
    pub(super) lease_exists: bool,
    pub(super) excluded: Mark,
    pub(super) allowed: Mark,
    /// Whether it has the taint of others.
    pub(super) tainted: Mark,
    /// The fault that has reserved this place.
    pub(super) busy: Option<&'static str>,
    /// Events at this place, for messages.
    pub(super) history: Vec<(Micros, String)>,
}

impl Slot {
    fn new(number: usize) -> Self {
        Self {
            number,
            generation: 0,
            machine: Machine::Running,
            flavour: 0,
            kubelet: true,
            ready: true,
            told_ready: false,
            lease_seconds: 40,
            lied_about: false,
            failing: false,
            uid: None,
            initialized: false,
            kept_by_breaker: None,
            registered: 0,
            renewed: 0,
            due: None,
            marked_unknown: false,
            lease_exists: false,
            excluded: Mark::Absent,
            allowed: Mark::Absent,
            tainted: Mark::Absent,
            busy: None,
            history: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> String {
        name(self.number)
    }

    pub(super) fn uuid(&self) -> String {
        uuid(self.number, self.generation)
    }

    pub(super) fn provider_id(&self) -> String {
        format!("{SCHEME}{}", self.uuid())
    }

    pub(super) fn instance_type(&self) -> String {
        format!("type-{}", self.flavour)
    }

    pub(super) fn address(&self) -> String {
        address(self.number, self.generation)
    }

    /// Whether the cloud claims that the instance does not exist.
    pub(super) fn is_absent_by_claim(&self) -> bool {
        matches!(self.machine, Machine::Gone(_)) || self.lied_about
    }

    pub(super) fn lives(&self) -> bool {
        self.machine == Machine::Running && self.kubelet
    }

    /// Adds an event to the history.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        /// The length of the history.
        const MAX: usize = 60;
        if self.history.len() >= MAX {
            self.history.remove(0);
        }
        self.history.push((now(), what.into()));
    }

    /// Puts a new machine at this place, which boots.
    pub(super) fn replace_machine(&mut self) {
        let history = std::mem::take(&mut self.history);
        *self = Self { generation: self.generation + 1, history, busy: self.busy, ..Self::new(self.number) };
        self.note(format!("a new machine {}", self.uuid()));
    }
}

pub(super) const SCHEME: &str = "campaign:///";

pub(super) fn name(number: usize) -> String {
    format!("node-{number}")
}

pub(super) fn uuid(number: usize, generation: u32) -> String {
    format!("5a3c0de0-0000-4000-{generation:04x}-{number:012x}")
}

fn address(number: usize, generation: u32) -> String {
    format!("10.{}.{}.{}", generation % 250, number / 250, number % 250 + 1)
}

/// How the cloud treats all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct CloudMode {
    /// The kind of error that all requests get.
    pub(super) error: Option<&'static str>,
    /// The delay of each response.
    pub(super) delay: Duration,
    /// The provider panics.
    pub(super) panic: bool,
    /// Responses have too few answers.
    pub(super) short: bool,
}

/// The kind of an answer to a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Present,
    Absent,
    Unknown,
}

/// The answers about one Node that one process of the daemon got.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    /// The last answer.
    pub(super) last: Option<(Micros, Told)>,
    /// When the current run of consecutive "absent" answers began.
    pub(super) absent_since: Option<Micros>,
    /// The number of answers in that run.
    pub(super) absences: u32,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) cloud: CloudMode,
    /// Machine -> place, for existing machines.
    machines: HashMap<String, usize>,
    /// Process of the daemon -> UID of the Node -> its answers.
    pub(super) told: HashMap<u32, BTreeMap<String, Knowledge>>,
    /// UIDs of the Nodes that exist, by the latest events of the watch.
    pub(super) existing: BTreeSet<String>,
    /// Processes whose wall clock jumped.
    pub(super) jumped: BTreeSet<u32>,
    /// Since when the cloud claims that more Nodes than the breaker allows have no instance.
    pub(super) over_limit_since: Option<Micros>,
    /// Process of the daemon -> since when that is so by its answers.
    pub(super) told_over_limit_since: HashMap<u32, Micros>,
}

/// Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct World(Arc<Mutex<State>>);

impl World {
    pub(super) fn new(nodes: usize) -> Self {
        let slots: Vec<Slot> = (0..nodes).map(Slot::new).collect();
        let machines = slots.iter().map(|slot| (slot.uuid(), slot.number)).collect();
        Self(Arc::new(Mutex::new(State {
            slots,
            cloud: CloudMode::default(),
            machines,
            told: HashMap::new(),
            existing: BTreeSet::new(),
            jumped: BTreeSet::new(),
            over_limit_since: None,
            told_over_limit_since: HashMap::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(super) fn with<T>(&self, number: usize, act: impl FnOnce(&mut Slot) -> T) -> T {
        act(&mut self.lock().slots[number])
    }
}

impl State {
    /// The place of an existing machine.
    pub(super) fn by_uuid(&self, uuid: &str) -> Option<&Slot> {
        self.machines.get(uuid).map(|number| &self.slots[*number])
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.uid.as_deref() == Some(uid))
    }

    /// Removes the machine permanently.
    pub(super) fn lose_machine(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.machine = Machine::Gone(now());
        slot.kubelet = false;
        slot.note("the machine is gone");
        let uuid = slot.uuid();
        self.machines.remove(&uuid);
    }

    pub(super) fn replace_machine(&mut self, number: usize) {
        let old = self.slots[number].uuid();
        self.machines.remove(&old);
        self.slots[number].replace_machine();
        let uuid = self.slots[number].uuid();
        self.machines.insert(uuid, number);
    }

    /// Replaces a machine that is gone, after the deletion of its Node, unless there is a new one already.
    pub(super) fn replace_now(&mut self, number: usize, uid: Option<&str>) {
        let slot = &mut self.slots[number];
        if slot.uid.as_deref() == uid {
            slot.uid = None;
        }
        if slot.uid.is_none() && matches!(slot.machine, Machine::Gone(_)) {
            self.replace_machine(number);
        }
    }

    /// Records an answer to a process about a Node.
    pub(super) fn note_told(&mut self, life: u32, uid: &str, told: Told) {
        let now = now();
        let known = self.told.entry(life).or_default().entry(uid.to_owned()).or_default();
        known.last = Some((now, told));
        if told == Told::Absent {
            known.absences += 1;
            known.absent_since.get_or_insert(now);
        } else {
            known.absences = 0;
            known.absent_since = None;
        }
    }

    /// The number of Nodes without an instance and of all Nodes, by the answers to this process.
    pub(super) fn known_absent(&self, life: u32) -> (usize, usize) {
        let Some(told) = self.told.get(&life) else { return (0, 0) };
        let existing = || told.iter().filter(|(uid, _)| self.existing.contains(*uid));
        let absent = existing().filter(|(_, known)| known.absences > 0).count();
        (absent, existing().count())
    }

    /// The same, by the cloud's claim.
    pub(super) fn claimed_absent(&self) -> (usize, usize) {
        let with_node = || self.slots.iter().filter(|slot| slot.uid.is_some());
        (with_node().filter(|slot| slot.is_absent_by_claim()).count(), with_node().count())
    }

    /// Whether these numbers are beyond the breaker's limits.
    pub(super) fn is_over_limit((absent, all): (usize, usize)) -> bool {
        absent > super::BREAKER_COUNT && absent * 100 > super::BREAKER_PERCENT * all
    }

    /// Records since when the limits are exceeded. Must be called often.
    pub(super) fn watch_limit(&mut self) {
        if Self::is_over_limit(self.claimed_absent()) && self.cloud.error.is_none() {
            self.over_limit_since.get_or_insert_with(now);
        } else {
            self.over_limit_since = None;
        }
        let lives: Vec<u32> = self.told.keys().copied().collect();
        for life in lives {
            if Self::is_over_limit(self.known_absent(life)) {
                self.told_over_limit_since.entry(life).or_insert_with(now);
            } else {
                self.told_over_limit_since.remove(&life);
            }
        }
    }

    /// Forgets the answers to a process that has ended.
    pub(super) fn forget_process(&mut self, life: u32) {
        self.told.remove(&life);
        self.told_over_limit_since.remove(&life);
    }
}

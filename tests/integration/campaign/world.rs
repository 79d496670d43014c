//! What is true: the machines, their kubelets, what the cloud is made to say of them, and what others did to the Nodes.
//! The judge asks nobody else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

/// Microseconds of the wall clock, as in the audit log.
pub(super) type Micros = i64;

pub(super) const SECOND: Micros = 1_000_000;

pub(super) fn now() -> Micros {
    Timestamp::now().as_microsecond()
}

/// For people.
#[expect(clippy::cast_precision_loss, reason = "hundredths of a second are told")]
pub(super) fn seconds(time: Micros) -> f64 {
    time as f64 / SECOND as f64
}

pub(super) fn micros(time: Duration) -> Micros {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A machine in truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Running,
    Off,
    /// Gone since then, and never to come back.
    Gone(Micros),
}

/// Something that others wrote on a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Absent,
    /// A write is under way.
    Changing,
    Present,
}

/// The place of a Node: its name stays, its machine and its Node object may be replaced.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    /// Counts the machines of this place.
    pub(super) generation: u32,
    pub(super) machine: Machine,
    /// What the instance type is called; changes are to be followed.
    pub(super) flavour: u32,
    /// Whether the kubelet runs.
    pub(super) kubelet: bool,
    /// What the kubelet says of itself.
    pub(super) ready: bool,
    /// Whether it has told the API server so.
    pub(super) told_ready: bool,
    /// What the kubelet writes into its lease.
    pub(super) lease_seconds: i32,
    /// Whether the cloud says that the machine is gone though it is not.
    pub(super) lied_about: bool,
    /// Whether the cloud cannot tell about this machine.
    pub(super) failing: bool,
    /// The Node's UID, from when it was registered until it is known to be gone.
    pub(super) uid: Option<String>,
    /// Whether it has its provider ID.
    pub(super) initialized: bool,
    /// Since when the breaker keeps the Node, by its condition.
    pub(super) kept_by_breaker: Option<Micros>,
    /// When the Node was registered.
    pub(super) registered: Micros,
    /// When the last renewal of the lease was answered.
    pub(super) renewed: Micros,
    /// When the next renewal is to be sent. What is late here is the campaign's own delay, not the API server's.
    pub(super) due: Option<Micros>,
    /// Whether kube-controller-manager has found the kubelet silent.
    pub(super) marked_unknown: bool,
    /// Whether the lease is there, as far as the campaign did not take it away.
    pub(super) lease_exists: bool,
    pub(super) excluded: Mark,
    pub(super) allowed: Mark,
    /// Whether the taint of others is on it.
    pub(super) tainted: Mark,
    /// The fault that has this place to itself.
    pub(super) busy: Option<&'static str>,
    /// What happened here, for people.
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

    /// Whether the cloud says that there is no such instance.
    pub(super) fn is_absent_by_claim(&self) -> bool {
        matches!(self.machine, Machine::Gone(_)) || self.lied_about
    }

    pub(super) fn lives(&self) -> bool {
        self.machine == Machine::Running && self.kubelet
    }

    /// Notes what happened, for people.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        /// What is older is not asked for.
        const MAX: usize = 60;
        if self.history.len() >= MAX {
            self.history.remove(0);
        }
        self.history.push((now(), what.into()));
    }

    /// Another machine in the same place, which boots.
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

/// What the cloud does with every question.
#[derive(Clone, Debug, Default)]
pub(super) struct CloudMode {
    /// Kind of the error that every question gets.
    pub(super) error: Option<&'static str>,
    /// Questions are answered after this time.
    pub(super) delay: Duration,
    /// The provider panics.
    pub(super) panic: bool,
    /// Fewer answers than questions.
    pub(super) short: bool,
}

/// One answer, as one daemon got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Present,
    Absent,
    Unknown,
}

/// What one process of the daemon was told about one Node.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    /// The last answer.
    pub(super) last: Option<(Micros, Told)>,
    /// The first answer of the row of "absent" that the last one belongs to.
    pub(super) absent_since: Option<Micros>,
    /// How many in that row.
    pub(super) absences: u32,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) cloud: CloudMode,
    /// Machine -> place, for machines that are there.
    machines: HashMap<String, usize>,
    /// Process of the daemon -> UID of the Node -> what it was told.
    pub(super) told: HashMap<u32, BTreeMap<String, Knowledge>>,
    /// UIDs that the API server has by the last word of the watch.
    pub(super) existing: BTreeSet<String>,
    /// Processes whose wall clock jumped.
    pub(super) jumped: BTreeSet<u32>,
    /// Since when more Nodes than the breaker allows have no instance by the cloud's claim.
    pub(super) over_limit_since: Option<Micros>,
    /// Process of the daemon -> since when that is so by what it was told.
    pub(super) told_over_limit_since: HashMap<u32, Micros>,
}

/// Cloning shares it.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(&self, number: usize, act: impl FnOnce(&mut Slot) -> T) -> T {
        act(&mut self.lock().slots[number])
    }
}

impl State {
    /// The place of a machine that is there.
    pub(super) fn by_uuid(&self, uuid: &str) -> Option<&Slot> {
        self.machines.get(uuid).map(|number| &self.slots[*number])
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.uid.as_deref() == Some(uid))
    }

    /// Takes the machine away for good.
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

    /// Puts another machine where one is gone, whose Node is deleted; unless there is one already.
    pub(super) fn replace_now(&mut self, number: usize, uid: Option<&str>) {
        let slot = &mut self.slots[number];
        if slot.uid.as_deref() == uid {
            slot.uid = None;
        }
        if slot.uid.is_none() && matches!(slot.machine, Machine::Gone(_)) {
            self.replace_machine(number);
        }
    }

    /// Notes what a process was told about a Node.
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

    /// How many Nodes have no instance, and how many there are: as this process was told.
    pub(super) fn known_absent(&self, life: u32) -> (usize, usize) {
        let Some(told) = self.told.get(&life) else { return (0, 0) };
        let existing = || told.iter().filter(|(uid, _)| self.existing.contains(*uid));
        let absent = existing().filter(|(_, known)| known.absences > 0).count();
        (absent, existing().count())
    }

    /// The same by the cloud's claim.
    pub(super) fn claimed_absent(&self) -> (usize, usize) {
        let with_node = || self.slots.iter().filter(|slot| slot.uid.is_some());
        (with_node().filter(|slot| slot.is_absent_by_claim()).count(), with_node().count())
    }

    /// Whether so many are more than the breaker allows.
    pub(super) fn is_over_limit((absent, all): (usize, usize)) -> bool {
        absent > super::BREAKER_COUNT && absent * 100 > super::BREAKER_PERCENT * all
    }

    /// To be called often: notes since when the limit is passed.
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

    /// A process that ended knows nothing any more.
    pub(super) fn forget_process(&mut self, life: u32) {
        self.told.remove(&life);
        self.told_over_limit_since.remove(&life);
    }
}

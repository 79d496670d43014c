//! The machines in memory, how fresh they are, and the subscribers to their changes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Result};
use tokio::time::Instant;

use super::{
    history::{History, Origin},
    machine::{Machine, is_same_name, short},
};
use crate::lookups::{Absences, Index, Listed, Listings, outcome_since};

/// How many keys of machines that are gone are remembered. A forgotten one costs a listing.
const GONE_KEPT: usize = 10_000;

/// For how long it is remembered that there is no machine for a name: while the machines are watched, and
/// while they are not. Each listing confirms it again.
const ABSENCES_LAST_WATCHED: Duration = Duration::from_secs(5 * 60);
const ABSENCES_LAST_UNWATCHED: Duration = Duration::from_secs(30);

/// The machines of a cluster.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    machines: HashMap<String, Arc<Machine>>,
    /// Keys by the provider ID that Rancher has.
    by_id: Index,
    /// Keys by the first label of the Node's name and of other names, in lower case.
    by_name: Index,
}

impl Inventory {
    pub(super) fn new(machines: impl IntoIterator<Item = Machine>) -> Self {
        let mut inventory = Self::default();
        for machine in machines {
            inventory.put(machine);
        }
        inventory
    }

    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<Machine>> {
        self.machines.get(key)
    }

    /// All machines.
    pub(super) fn all(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values().map(AsRef::as_ref)
    }

    pub(super) fn put(&mut self, machine: Machine) {
        self.remove(&machine.key);
        let key = machine.key.clone();
        if let Some(id) = &machine.provider_id {
            self.by_id.add(id.clone(), key.clone());
        }
        for name in labels(&machine) {
            self.by_name.add(name, key.clone());
        }
        self.machines.insert(key, Arc::new(machine));
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<Machine>> {
        let machine = self.machines.remove(key)?;
        if let Some(id) = &machine.provider_id {
            self.by_id.remove(id, key);
        }
        for name in labels(&machine) {
            self.by_name.remove(&name, key);
        }
        Some(machine)
    }

    /// The machine for which Rancher has this provider ID.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several.
    pub(super) fn with_id(&self, id: &str) -> Result<Option<&Arc<Machine>>> {
        self.only(self.by_id.with(id), |_| true, "have this provider ID")
    }

    /// The machine that Rancher has bound to the Node of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several.
    pub(super) fn with_node(&self, node: &str) -> Result<Option<&Arc<Machine>>> {
        let is_its =
            |machine: &Machine| machine.node.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(node));
        self.only(self.candidates(node), is_its, "are bound to this Node")
    }

    /// The machine that is bound to no Node yet and has this name.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several, or if one is bound to a Node whose name differs only in
    /// its form: that may be another Node.
    pub(super) fn unbound_with_name(&self, node: &str) -> Result<Option<&Arc<Machine>>> {
        let fits = |machine: &Machine| match &machine.node {
            Some(name) => is_same_name(name, node),
            None => machine.names.iter().any(|name| is_same_name(name, node)),
        };
        let found = self.only(self.candidates(node), fits, "have the Node's name")?;
        match found.map(|machine| (machine, machine.node.as_deref())) {
            Some((machine, Some(name))) if !name.eq_ignore_ascii_case(node) => {
                let words = format!(
                    "{} is bound to the Node {name}, which may be this one or another one",
                    machine.shown
                );
                Err(Error::new(ErrorKind::Ambiguous, words))
            }
            _ => Ok(found),
        }
    }

    /// Whether there is surely no machine for a Node of this name.
    fn lacks(&self, node: &str) -> bool {
        matches!((self.with_node(node), self.unbound_with_name(node)), (Ok(None), Ok(None)))
    }

    fn candidates(&self, node: &str) -> impl Iterator<Item = &String> {
        self.by_name.with(&short(node).to_ascii_lowercase())
    }

    fn only<'a>(
        &self,
        keys: impl Iterator<Item = &'a String>,
        fits: impl Fn(&Machine) -> bool,
        what: &str,
    ) -> Result<Option<&Arc<Machine>>> {
        let mut found = keys.filter_map(|key| self.machines.get(key)).filter(|machine| fits(machine));
        match (found.next(), found.next()) {
            (found, None) => Ok(found),
            (one, Some(other)) => {
                let one = one.map_or("", |one| one.shown.as_str());
                let words = format!("{one} and {} both {what}", other.shown);
                Err(Error::new(ErrorKind::Ambiguous, words))
            }
        }
    }
}

/// The first labels of all names of a machine, each once.
fn labels(machine: &Machine) -> HashSet<String> {
    let names = machine.names.iter().chain(&machine.node);
    names.map(|name| short(name).to_ascii_lowercase()).filter(|name| !name.is_empty()).collect()
}

/// Which objects of the server say what machines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SourceOfTruth {
    /// The Machines of Cluster API. A Machine that the listing lacks is gone.
    Machines,
    /// The nodes of the server, which only mirror the cluster's Nodes. They prove no absence.
    #[default]
    Mirror,
}

/// The state of the memory.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The ID of the cluster.
    pub(super) cluster: String,
    pub(super) source_of_truth: SourceOfTruth,
    /// Whether the server reaches the cluster.
    pub(super) is_active: bool,
    pub(super) inventory: Inventory,
    /// Infrastructure by the key of the machine that owns it.
    pub(super) infrastructure: HashMap<String, String>,
    /// Whether what the management cluster lacks is gone.
    pub(super) history: History,
    /// Keys of machines that are gone. A UID never comes back.
    pub(super) gone: HashSet<String>,
    /// Names of Nodes without a provider ID for which there is no machine, in lower case.
    pub(super) absences: Absences<String>,
    /// What the token may not do, each with what that costs and which right it takes.
    pub(super) limits: Vec<String>,
    /// When the last complete listing began.
    pub(super) listed: Option<Instant>,
    /// Why the listing is stale, and since when that is known. `None` after a complete one.
    pub(super) staleness: Option<(Error, Instant)>,
}

impl State {
    fn note_gone(&mut self, key: String) {
        if self.gone.len() >= GONE_KEPT {
            self.gone.clear();
        }
        self.gone.insert(key);
    }
}

/// A complete listing.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) cluster: String,
    pub(super) source_of_truth: SourceOfTruth,
    /// Whether a watch reports the changes after it.
    pub(super) is_watched: bool,
    /// Of Machines.
    pub(super) origin: Option<Origin>,
    pub(super) is_active: bool,
    pub(super) machines: Vec<Machine>,
    /// As in [`State::infrastructure`].
    pub(super) infrastructure: HashMap<String, String>,
    /// As in [`State::limits`].
    pub(super) limits: Vec<String>,
}

/// A change of one machine.
#[derive(Debug)]
pub(super) enum Change {
    /// This is the machine now.
    Put(Box<Machine>),
    /// The machine with this key is gone.
    Remove(String),
    /// The machine with this key has this infrastructure, or has lost it.
    Infrastructure(String, Option<String>),
}

/// A machine that no listing has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The machine with the key of a Node's provider ID.
    Machine(String),
    /// The machine of a Node without a provider ID. The Node's name in lower case.
    Name(String),
}

/// The state, and the subscribers to its changes.
pub(super) type Machines = Listings<State>;

impl Machines {
    /// Takes over a complete listing that began at this time.
    pub(super) fn replace(&self, listing: Listing, began: Instant) {
        self.change(|state| {
            let inventory = Inventory::new(listing.machines);
            let mut references = Vec::new();
            let mut continues =
                state.cluster == listing.cluster && state.source_of_truth == listing.source_of_truth;
            if let Some(origin) = listing.origin {
                continues &= state.history.go_on(origin);
            }
            let vanished: Vec<_> = state
                .inventory
                .machines
                .values()
                .filter(|old| inventory.get(&old.key).is_none())
                .cloned()
                .collect();
            for old in vanished {
                references.extend(old.references(&state.cluster));
                if continues {
                    state.note_gone(old.key.clone());
                }
            }
            for machine in inventory.machines.values() {
                state.gone.remove(&machine.key);
                if state.inventory.get(&machine.key) != Some(machine) {
                    references.extend(machine.references(&listing.cluster));
                }
            }
            if !continues {
                state.gone.clear();
            }
            state.absences.keep(|name| inventory.lacks(name));
            let absences_last =
                if listing.is_watched { ABSENCES_LAST_WATCHED } else { ABSENCES_LAST_UNWATCHED };
            state.absences.count_until(began + absences_last);
            state.cluster = listing.cluster;
            state.source_of_truth = listing.source_of_truth;
            state.is_active = listing.is_active;
            state.inventory = inventory;
            state.infrastructure = listing.infrastructure;
            state.limits = listing.limits;
            state.listed = Some(began);
            state.staleness = None;
            references
        });
    }

    /// Notes that nothing is watched after the listing that began at this time.
    pub(super) fn note_unwatched(&self, began: Instant) {
        let mut state = self.state_mut();
        state.absences.count_until(began + ABSENCES_LAST_UNWATCHED);
    }

    /// Adds to [`State::limits`] what was noticed after the listing.
    pub(super) fn note_limit(&self, limit: String) {
        self.state_mut().limits.push(limit);
    }

    /// Takes over a change of one machine.
    pub(super) fn apply(&self, change: Change) {
        self.change(|state| {
            let cluster = state.cluster.clone();
            match change {
                Change::Put(machine) => {
                    state.gone.remove(&machine.key);
                    let before = state.inventory.get(&machine.key).cloned();
                    if before.as_deref() == Some(&*machine) {
                        return Vec::new();
                    }
                    let mut references = machine.references(&cluster);
                    // The name may have changed too.
                    references.extend(before.iter().flat_map(|before| before.references(&cluster)));
                    state.inventory.put(*machine);
                    let State { inventory, absences, .. } = state;
                    absences.keep(|name| inventory.lacks(name));
                    references
                }
                Change::Remove(key) => {
                    let Some(before) = state.inventory.remove(&key) else { return Vec::new() };
                    if state.source_of_truth == SourceOfTruth::Machines {
                        state.note_gone(key);
                    }
                    before.references(&cluster)
                }
                Change::Infrastructure(key, Some(name)) => {
                    state.infrastructure.insert(key, name);
                    Vec::new()
                }
                Change::Infrastructure(key, None) => {
                    state.infrastructure.remove(&key);
                    // Only now its Node may be absent.
                    Machine { key, ..Machine::default() }.references(&cluster)
                }
            }
        });
    }

    /// Notes that the listing is stale, and why.
    pub(super) fn fail(&self, error: Error) {
        self.change(|state| {
            state.staleness = Some((error, Instant::now()));
            Vec::new()
        });
    }
}

impl Listed for State {
    type Sought = Missing;

    const OBJECT: &str = "machine";

    fn listed_since(&self, asked: Instant) -> Option<Result<()>> {
        outcome_since(asked, self.listed, self.staleness.as_ref())
    }

    fn note_absence(&mut self, confirmed: Missing) {
        match confirmed {
            Missing::Machine(key) => self.note_gone(key),
            Missing::Name(name) if self.inventory.lacks(&name) => self.absences.add(name),
            Missing::Name(_) => {}
        }
    }
}

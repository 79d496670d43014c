//! How a `MachineDeployment` moves its machines from old `MachineSet`s to the current one.
//!
//! [`plan`] decides one pass: the replicas that each `MachineSet` shall have, and the annotations by which `MachineSet`s
//! hand machines over for an update in place. [`choose`] says which `MachineSet` is the current one. The caller writes the
//! plan and calls again when an object has changed; there is no state between two passes.
//!
//! | Strategy | Current `MachineSet` | Old `MachineSet`s |
//! |---|---|---|
//! | `RollingUpdate` | grows while all together are below `replicas + maxSurge` | shrink while `replicas - maxUnavailable` stay available |
//! | `OnDelete` | grows while all together are below `replicas` | create nothing; shrink when a user deleted a machine |
//!
//! Source of the rules: `core/reconcilers/machinedeployment` of Cluster API 1.14.2.

mod choose;
mod in_place;
mod marked;
mod on_delete;
mod reason;
mod rolling_update;
mod scale;
mod template;

use std::{collections::BTreeSet, fmt};

pub use choose::{Candidate, Choice, Old, Revision, choose};
pub use marked::{Marks, prefer_marked};
pub use reason::Reason;
pub use scale::{Share, scale};
pub use template::{Bootstrap, Reference, Template};

/// What the planner reads of a `MachineDeployment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// `spec.replicas`
    pub replicas: i64,
    /// `spec.rollout.strategy`
    pub strategy: Strategy,
    /// Whether machines may be updated in place. Cluster API's feature gate `InPlaceUpdates`.
    pub in_place_updates: bool,
}

/// `spec.rollout.strategy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Machines are replaced within these bounds.
    RollingUpdate {
        /// Machines beyond `spec.replicas`; a percentage rounds up.
        max_surge: Bound,
        /// Machines of `spec.replicas` that may be unavailable; a percentage rounds down.
        max_unavailable: Bound,
    },
    /// A machine is replaced when a user deletes it.
    OnDelete,
}

/// A number of machines, or a percentage of `spec.replicas`: the API's int-or-string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// So many machines.
    Count(i64),
    /// So many of a hundred.
    Percent(i64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Bound {
    pub(crate) fn up(self, replicas: i64) -> i64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => percent.saturating_mul(replicas).saturating_add(99).div_euclid(100),
        }
    }

    pub(crate) fn down(self, replicas: i64) -> i64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => percent.saturating_mul(replicas).div_euclid(100),
        }
    }
}

impl Deployment {
    /// Machines beyond `spec.replicas` that a rollout may create.
    #[must_use]
    pub fn max_surge(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { max_surge, .. } => max_surge.up(self.replicas),
            Strategy::OnDelete => 0,
        }
    }

    /// Machines of `spec.replicas` that may be unavailable during a rollout, at most all of them. It is 1 where both bounds
    /// come to 0, since a rollout could never begin.
    #[must_use]
    pub fn max_unavailable(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { max_unavailable, .. } if self.replicas > 0 => {
                let unavailable = max_unavailable.down(self.replicas);
                let unavailable = if unavailable == 0 && self.max_surge() == 0 { 1 } else { unavailable };
                unavailable.min(self.replicas)
            }
            _ => 0,
        }
    }

    /// Machines that stay available during a rollout.
    fn min_available(&self) -> i64 {
        (self.replicas - self.max_unavailable()).max(0)
    }
}

/// What the planner reads of a `MachineSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSet {
    /// `metadata.name`
    pub name: String,
    /// `metadata.creationTimestamp` in seconds since 1970. Old `MachineSet`s shrink in this order.
    pub created: i64,
    /// `spec.replicas`
    pub replicas: i64,
    /// `status`
    pub status: Counts,
    /// For an old `MachineSet`: its machines may be updated in place to the current template. [`Candidate`] says what rules
    /// it out; what remains is the answer of the updater.
    pub updatable_in_place: bool,
    /// The machines in the annotation `in-place-updates.internal.cluster.x-k8s.io/acknowledged-move`.
    pub acknowledged: BTreeSet<String>,
    /// `machinedeployment.clusters.x-k8s.io/revision` and its history. None where it has none yet.
    pub revision: Option<Revision>,
}

/// The `MachineSet` with the deployment's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Current {
    /// [`choose`] found it.
    Exists(MachineSet),
    /// It is about to be created, with the replicas of the plan.
    New {
        /// `metadata.name`
        name: String,
    },
}

/// `status` of a `MachineSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `status.replicas`: machines that exist.
    pub replicas: i64,
    /// `status.availableReplicas`
    pub available: i64,
    /// `status.upToDateReplicas`
    pub up_to_date: i64,
}

/// What the planner reads of a `Machine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `metadata.name`
    pub name: String,
    /// The name of the `MachineSet` that controls it.
    pub machine_set: String,
    /// It came from an old `MachineSet` and is not yet counted in `spec.replicas` of its own: the annotation
    /// `in-place-updates.internal.cluster.x-k8s.io/pending-acknowledge-move`.
    pub pending_acknowledge: bool,
    /// It is being updated in place.
    pub updating: bool,
}

/// What one pass shall write. The current `MachineSet` is first, the old ones follow in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One for each `MachineSet`.
    pub machine_sets: Vec<Planned>,
}

/// What a `MachineSet` shall be after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// `metadata.name`
    pub name: String,
    /// `spec.replicas`
    pub replicas: i64,
    /// `machinedeployment.clusters.x-k8s.io/revision` and its history; the current one has the highest number.
    pub revision: Option<Revision>,
    /// `cluster.x-k8s.io/disable-machine-create` is `true`: the user's deletions alone change an old `MachineSet`.
    pub creates_no_machines: bool,
    /// `in-place-updates.internal.cluster.x-k8s.io/move-machines-to-machineset`: machines beyond `replicas` go there and are
    /// not deleted.
    pub moves_machines_to: Option<String>,
    /// `in-place-updates.internal.cluster.x-k8s.io/receive-machines-from-machinesets`: the `MachineSet`s whose machines this
    /// one accepts. None where empty.
    pub receives_machines_from: BTreeSet<String>,
    /// `in-place-updates.internal.cluster.x-k8s.io/acknowledged-move`: the machines that are counted in `replicas` since they
    /// moved. None where empty.
    pub acknowledged: BTreeSet<String>,
    /// Why, in the order of the decisions; for the log and for conditions.
    pub reasons: Vec<Reason>,
}

/// Decides one pass over the `MachineSet`s of a `MachineDeployment`. `machines` are those of all of them.
#[must_use]
pub fn plan(deployment: &Deployment, current: Current, old: Vec<MachineSet>, machines: &[Machine]) -> Plan {
    let highest = old.iter().filter_map(|set| set.revision.as_ref()).map(|revision| revision.number).max();
    let mut rollout = Rollout {
        deployment,
        machines,
        current: Work::current(current, highest.unwrap_or(0)),
        old: old.into_iter().map(Work::new).collect(),
    };
    rollout.old.sort_by(|a, b| (a.set.created, &a.set.name).cmp(&(b.set.created, &b.set.name)));
    match deployment.strategy {
        Strategy::RollingUpdate { .. } => rollout.rolling_update(),
        Strategy::OnDelete => rollout.on_delete(),
    }
    let on_delete = deployment.strategy == Strategy::OnDelete;
    let mut machine_sets = vec![rollout.current.planned(false)];
    machine_sets.extend(rollout.old.into_iter().map(|work| work.planned(on_delete)));
    Plan { machine_sets }
}

/// A pass that is being decided.
struct Rollout<'a> {
    deployment: &'a Deployment,
    machines: &'a [Machine],
    current: Work,
    /// Oldest first.
    old: Vec<Work>,
}

/// A `MachineSet` and what has been decided about it so far.
struct Work {
    set: MachineSet,
    /// `spec.replicas` that this pass wants. The decisions look at `set.replicas` where they count what is under way, and at
    /// this where they add to what was decided before.
    wanted: Option<i64>,
    moves_machines_to: Option<String>,
    receives_machines_from: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    reasons: Vec<Reason>,
}

impl Work {
    fn new(set: MachineSet) -> Self {
        Self {
            set,
            wanted: None,
            moves_machines_to: None,
            receives_machines_from: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            reasons: Vec::new(),
        }
    }

    /// The current one, with the highest revision. `old` is the highest one of the others, 0 where there is none.
    fn current(current: Current, old: i64) -> Self {
        match current {
            Current::Exists(mut set) => {
                let revision = Revision::above(old, set.revision.as_ref());
                let changes = set.revision.as_ref() != Some(&revision);
                set.revision = Some(revision);
                let mut work = Self::new(set);
                if changes {
                    work.because(Reason::CurrentAgain);
                }
                work
            }
            Current::New { name } => Self::new(MachineSet {
                name,
                created: i64::MAX,
                replicas: 0,
                status: Counts::default(),
                updatable_in_place: false,
                acknowledged: BTreeSet::new(),
                revision: Some(Revision::above(old, None)),
            }),
        }
    }

    /// `spec.replicas` as decided so far.
    fn replicas(&self) -> i64 {
        self.wanted.unwrap_or(self.set.replicas)
    }

    /// Machines that exist and that `replicas` asks to be gone.
    fn shrinks_by(&self, replicas: i64) -> i64 {
        (self.set.status.replicas - replicas).max(0)
    }

    fn because(&mut self, reason: Reason) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    fn planned(self, creates_no_machines: bool) -> Planned {
        Planned {
            replicas: self.replicas(),
            name: self.set.name,
            revision: self.set.revision,
            creates_no_machines,
            moves_machines_to: self.moves_machines_to,
            receives_machines_from: self.receives_machines_from,
            acknowledged: self.acknowledged,
            reasons: self.reasons,
        }
    }
}

impl Rollout<'_> {
    fn all(&self) -> impl Iterator<Item = &Work> {
        self.old.iter().chain([&self.current])
    }

    /// `spec.replicas` of the old `MachineSet`s, together.
    fn old_replicas(&self) -> i64 {
        self.old.iter().map(|work| work.set.replicas).sum()
    }

    /// Grows the current `MachineSet` as far as the strategy allows, or shrinks it to `spec.replicas` of the deployment.
    ///
    /// Shrinking does not look at availability: a user who scales down gets it at once, as with Cluster API.
    fn size_current(&mut self) {
        let replicas = self.deployment.replicas;
        let has = self.current.set.replicas;
        if has > replicas {
            self.current.because(Reason::AlignedToDeployment);
            self.current.wanted = Some(replicas);
            return;
        }
        // Machines that exist beyond `spec.replicas` are going and still count, and so do those that are yet to be created.
        let machines: i64 = self.all().map(|work| work.set.replicas.max(work.set.status.replicas)).sum();
        let room = replicas + self.deployment.max_surge() - machines;
        let grows_by = room.min(replicas - has);
        if grows_by > 0 {
            let surge = match self.deployment.strategy {
                Strategy::RollingUpdate { .. } => Some(self.deployment.max_surge()),
                Strategy::OnDelete => None,
            };
            self.current.because(Reason::Room { machines, replicas, surge });
            self.current.wanted = Some(has + grows_by);
        }
    }
}

#[cfg(test)]
mod tests;

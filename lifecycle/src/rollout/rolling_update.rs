//! The strategy `RollingUpdate`.

use super::{Reason, Rollout, Work};

/// Which replicas of the old `MachineSet`s go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// As many as are not available.
    Unavailable,
    /// All that may.
    Any,
}

/// What is left to take away while old `MachineSet`s shrink.
struct Budget {
    /// Replicas that may still go.
    replicas: i64,
    /// Machines that are available if the worst ones go.
    available: i64,
    /// Machines that have to be.
    minimum: i64,
}

impl Rollout<'_> {
    pub(super) fn rolling_update(&mut self) {
        self.acknowledge_moves();
        self.size_current();
        self.shrink_old();
        self.prefer_in_place();
        self.break_deadlock();
    }

    /// Shrinks old `MachineSet`s as far as `maxUnavailable` allows: first what is not available, then the rest, oldest first.
    fn shrink_old(&mut self) {
        if self.old_replicas() == 0 {
            return;
        }
        let minimum = self.deployment.min_available();
        let replicas: i64 = self.all().map(|work| work.set.replicas).sum();
        // What was asked to go, now or in an earlier pass, may be an available machine.
        let going: i64 = self.all().map(|work| work.shrinks_by(work.set.replicas.min(work.replicas()))).sum();
        // New machines that do not become available slow the rollout down, or all machines would end there.
        let failing = (self.current.set.replicas - self.current.set.status.available).max(0);
        let mut budget = Budget {
            replicas: (replicas - going - minimum - failing).max(0),
            available: self.all().map(|work| work.set.status.available).sum(),
            minimum,
        };
        for kind in [Going::Unavailable, Going::Any] {
            for work in &mut self.old {
                work.shrink(kind, &mut budget);
            }
        }
    }

    /// Takes one machine from an old `MachineSet` where neither side can move: machines there are not available,
    /// `maxUnavailable` is used up, and all new machines are available. Health checks do not remediate machines of old
    /// `MachineSet`s, so nothing else would.
    fn break_deadlock(&mut self) {
        let old_machines: i64 = self.old.iter().map(|work| work.set.status.replicas).sum();
        let old_available: i64 = self.old.iter().map(|work| work.set.status.available).sum();
        let current = &self.current.set;
        let moving =
            self.all().any(|work| work.set.replicas != work.set.status.replicas || work.wanted.is_some());
        if old_machines == old_available || moving || current.status.available != current.status.replicas {
            return;
        }
        let stuck = self
            .old
            .iter_mut()
            .find(|work| work.set.status.available != work.set.status.replicas && work.set.replicas > 0);
        if let Some(work) = stuck {
            work.wanted = Some(work.set.replicas - 1);
            // Cluster API notes it at the current MachineSet, which is the one that people look at.
            self.current.because(Reason::Deadlock);
        }
    }
}

impl Work {
    fn shrink(&mut self, kind: Going, budget: &mut Budget) {
        let replicas = self.replicas();
        let available = self.set.status.available;
        let most = match kind {
            Going::Unavailable => (replicas - available).max(0),
            Going::Any => replicas,
        };
        let mut going = most.min(budget.replicas);
        if going <= 0 {
            return;
        }
        let mut lost = 0;
        if available > 0 {
            // Which machines go is the MachineSet's decision: an available one may, also where others are not.
            let spare = (budget.available - budget.minimum).max(0);
            let mut deleted = self.shrinks_by(replicas - going);
            if deleted > spare {
                let left = (self.set.status.replicas - spare).min(replicas);
                going = (replicas - left).max(0);
                deleted = self.shrinks_by(left);
            }
            lost = available.min(deleted);
        }
        if going > 0 {
            self.because(if lost == 0 {
                Reason::NothingAvailableGoes
            } else {
                Reason::Available { available: budget.available, minimum: budget.minimum }
            });
            self.wanted = Some(replicas - going);
        }
        budget.available -= lost;
        budget.replicas -= going;
    }
}

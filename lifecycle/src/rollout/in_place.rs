//! Machines that are updated in place: they move from an old `MachineSet` to the current one and stay what they are.
//!
//! The move is counted once by two annotations: a machine that has moved is *pending* until the plan has counted it in
//! `spec.replicas` of the current `MachineSet` and *acknowledged* it there.

use std::collections::BTreeSet;

use super::{Reason, Rollout};

impl Rollout<'_> {
    /// Counts machines that have moved to the current `MachineSet`.
    pub(super) fn acknowledge_moves(&mut self) {
        if !self.deployment.in_place_updates {
            return;
        }
        let current = &mut self.current;
        let pending: BTreeSet<String> = self
            .machines
            .iter()
            .filter(|machine| machine.machine_set == current.set.name && machine.pending_acknowledge)
            .map(|machine| machine.name.clone())
            .collect();
        let new = pending.difference(&current.set.acknowledged).count();
        if new > 0 {
            // The rest of this pass sees them as replicas that the MachineSet has.
            current.set.replicas += i64::try_from(new).unwrap_or(i64::MAX);
            current.because(Reason::Acknowledged { machines: pending.clone() });
        }
        current.acknowledged = pending;
    }

    /// Lets old `MachineSet`s hand their machines over where these can be updated in place, and creates no machine for which
    /// such an update will do.
    ///
    /// An update in place may fail, so it counts as unavailability, and what was decided for replacing machines holds. With
    /// `maxUnavailable` 0 one more machine has to be created before the first update.
    pub(super) fn prefer_in_place(&mut self) {
        let has = self.current.set.replicas;
        if !self.deployment.in_place_updates || has >= self.deployment.replicas {
            return;
        }
        for work in &mut self.old {
            if work.set.status.replicas > 0 && work.set.updatable_in_place {
                work.because(Reason::MovesMachines { to: self.current.set.name.clone() });
                work.moves_machines_to = Some(self.current.set.name.clone());
                self.current.receives_machines_from.insert(work.set.name.clone());
            }
        }
        let grows_by = self.current.replicas() - has;
        let surge = grows_by.min(self.deployment.max_surge());
        if self.current.receives_machines_from.is_empty() || surge <= 0 {
            return;
        }
        let mut rest = grows_by - surge;
        if rest == 0 && !self.progresses() {
            rest = 1;
            self.current.because(Reason::SurgeForInPlace);
        } else {
            self.current.because(Reason::SurgeDropped { machines: surge });
        }
        self.current.wanted = (rest > 0).then_some(has + rest);
    }

    /// Whether machines come, go or are being updated, so that the rollout moves without another machine.
    fn progresses(&self) -> bool {
        let current = &self.current.set;
        current.replicas != current.status.replicas
            || current.replicas != current.status.up_to_date
            || current.replicas != current.status.available
            || self.machines.iter().any(|machine| machine.updating)
            || self.old.iter().any(|work| {
                work.set.replicas < work.set.status.replicas || work.replicas() < work.set.replicas
            })
    }
}

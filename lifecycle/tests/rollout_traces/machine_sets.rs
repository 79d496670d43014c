//! What runs beside the planner: a small `MachineSet` controller and a small `Machine` controller.

use std::fmt::Write as _;

use lifecycle::rollout::Counts;

use super::{Stage, State, by_text, listed};

impl Stage {
    /// A small `MachineSet` controller: it ends updates in place, takes over acknowledged machines, and creates, hands over or
    /// deletes machines.
    pub(crate) fn set_pass(&mut self, number: usize) {
        let current = self.current;
        self.end_updates(number);
        self.size(number);
        let set = self.sets.get_mut(&number).unwrap();
        let ready = i64::try_from(set.machines.values().filter(|state| !state.updating).count()).unwrap();
        set.status = Counts {
            replicas: i64::try_from(set.machines.len()).unwrap(),
            available: ready,
            up_to_date: if current == Some(number) { ready } else { 0 },
        };
    }

    fn end_updates(&mut self, number: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let ended: Vec<usize> = set
            .machines
            .iter()
            .filter(|(_, state)| state.updating && !state.pending)
            .map(|(machine, _)| *machine)
            .collect();
        for machine in &ended {
            set.machines.get_mut(machine).unwrap().updating = false;
        }
        let receives = !set.annotations.receives_from.is_empty();
        for (machine, state) in &mut set.machines {
            if state.pending && (!receives || set.annotations.acknowledged.contains(&format!("m{machine}"))) {
                state.pending = false;
            }
        }
        if !ended.is_empty() {
            let line = format!("[MS controller] - Replicas {} completed in-place update", by_text(&ended));
            writeln!(self.lines, "{line}").unwrap();
        }
    }

    fn size(&mut self, number: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let has = i64::try_from(set.machines.len()).unwrap();
        let wants = set.replicas;
        if has < wants {
            if set.annotations.creates_no_machines == Some(true) {
                return;
            }
            let new: Vec<usize> = (has..wants).zip(self.made + 1..).map(|(_, machine)| machine).collect();
            self.made += new.len();
            set.machines.extend(new.iter().map(|machine| (*machine, State::default())));
            writeln!(
                self.lines,
                "[MS controller] - ms{number} scale up to {wants}/{wants} replicas ({} created)",
                listed(&new)
            )
            .unwrap();
        } else if has > wants {
            let pending: Vec<usize> = if set.annotations.receives_from.is_empty() {
                Vec::new()
            } else {
                set.machines.iter().filter(|(_, state)| state.pending).map(|(machine, _)| *machine).collect()
            };
            if !pending.is_empty() {
                writeln!(
                    self.lines,
                    "[MS controller] - Replicas {} moved from an old MachineSet still pending acknowledge from machine deployment md",
                    by_text(&pending)
                )
                .unwrap();
            }
            let surplus = usize::try_from(has - i64::try_from(pending.len()).unwrap() - wants).unwrap_or(0);
            if surplus > 0 {
                match set.annotations.moves_to.clone() {
                    Some(to) => self.hand_over(number, crate::number(&to[2..]), surplus),
                    None => self.delete(number, surplus),
                }
            }
        }
    }

    fn hand_over(&mut self, from: usize, to: usize, surplus: usize) {
        assert!(
            self.sets[&to].annotations.receives_from.contains(&format!("ms{from}")),
            "ms{to} expects machines of ms{from}"
        );
        let set = self.sets.get_mut(&from).unwrap();
        let moved: Vec<usize> = set
            .machines
            .iter()
            .filter(|(_, state)| !state.deleting && !state.updating)
            .map(|(machine, _)| *machine)
            .take(surplus)
            .collect();
        set.machines.retain(|machine, _| !moved.contains(machine));
        writeln!(
            self.lines,
            "[MS controller] - ms{from} scale down to {}/{} replicas ({} moved to ms{to})",
            set.machines.len(),
            set.replicas,
            listed(&moved)
        )
        .unwrap();
        let state = State { pending: true, updating: true, deleting: false };
        self.sets.get_mut(&to).unwrap().machines.extend(moved.into_iter().map(|machine| (machine, state)));
    }

    /// Machines that are being updated go first, the last one of them before the others; then the oldest.
    fn delete(&mut self, number: usize, surplus: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let updating = set.machines.iter().rev().filter(|(_, state)| state.updating);
        let others = set.machines.iter().filter(|(_, state)| !state.updating);
        let deleted: Vec<usize> = updating.chain(others).map(|(machine, _)| *machine).take(surplus).collect();
        set.machines.retain(|machine, _| !deleted.contains(machine));
        writeln!(
            self.lines,
            "[MS controller] - ms{number} scale down to {0}/{0} replicas ({1} deleted)",
            set.replicas,
            listed(&deleted)
        )
        .unwrap();
    }

    pub(crate) fn machine_pass(&mut self, number: usize) {
        if self.machine(number).is_some_and(|state| state.deleting) {
            for set in self.sets.values_mut() {
                set.machines.remove(&number);
            }
            writeln!(self.lines, "[M controller] - m{number} finalizer removed").unwrap();
        }
    }
}

//! Machines that a user or an autoscaler has chosen go first when a deployment is scaled down, whichever `MachineSet` has them.
//!
//! A `MachineSet` deletes its marked machines first, but the plan of a rollout chooses the `MachineSet`. So an autoscaler that drains a
//! Node of the current `MachineSet` and scales the deployment down would lose a machine of an old one, with its workloads, and would drain
//! another one the next time. Cluster API has no such rule: the golden traces are those of [`plan`](super::plan) alone.

use super::{Deployment, Plan, Planned, Reason};

/// What is read of a `MachineSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `metadata.name`
    pub name: String,
    /// `spec.replicas`
    pub replicas: i64,
    /// Machines that are not being deleted.
    pub machines: i64,
    /// How many of them are available.
    pub available: i64,
    /// How many of them are marked: `cluster.x-k8s.io/delete-machine`, or the autoscaler's taint on the Node.
    pub marked: i64,
    /// How many of them are marked and available.
    pub marked_available: i64,
}

impl Marks {
    /// Machines that go, if the `MachineSet` gets so many replicas.
    fn going(&self, replicas: i64) -> i64 {
        (self.machines - replicas).max(0)
    }

    /// Available machines that stay, if the worst ones go. Marked ones go first.
    fn stays_available(&self, replicas: i64) -> i64 {
        let going = self.going(replicas);
        let of_marked = self.marked_available.min(going);
        let of_others = (self.available - self.marked_available).min((going - self.marked).max(0));
        self.available - of_marked - of_others
    }

    /// Marked machines that stay.
    fn left(&self, replicas: i64) -> i64 {
        (self.marked - self.going(replicas)).max(0)
    }

    /// Machines that go and are not marked.
    fn unmarked_going(&self, replicas: i64) -> i64 {
        (self.going(replicas) - self.marked).max(0)
    }
}

/// Changes a plan so that marked machines are among those that go. `had` is `spec.replicas` of the deployment when its `MachineSet`s were
/// written last: as many marked machines go as it was scaled down by since. A rollout alone takes none, since nobody asked for fewer.
///
/// A `MachineSet` with marked machines shrinks in place of another one. Where no other one shrinks, it shrinks alone, as far as more
/// machines are planned than the deployment has. Neither makes more machines, nor leaves fewer available than the strategy and the plan
/// do.
pub fn prefer_marked(deployment: &Deployment, had: i64, marks: &[Marks], plan: &mut Plan) {
    let wish = had.saturating_sub(deployment.replicas);
    let sets: Vec<(usize, &Marks)> = plan
        .machine_sets
        .iter()
        .enumerate()
        .filter_map(|(index, planned)| Some((index, marks.iter().find(|one| one.name == planned.name)?)))
        .collect();
    let mut served: i64 =
        sets.iter().map(|(index, marks)| marks.marked - marks.left(plan.machine_sets[*index].replicas)).sum();
    // The first one is the current one.
    for &(index, of) in &sets {
        while served < wish && of.left(plan.machine_sets[index].replicas) > 0 {
            if !shift(deployment, &sets, index, &mut plan.machine_sets) {
                break;
            }
            served += 1;
        }
    }
}

/// Lets one `MachineSet` shrink by one more. Returns whether it may.
fn shift(deployment: &Deployment, sets: &[(usize, &Marks)], to: usize, plan: &mut [Planned]) -> bool {
    let available = |plan: &[Planned]| -> i64 {
        sets.iter().map(|(index, marks)| marks.stays_available(plan[*index].replicas)).sum()
    };
    let minimum = deployment.min_available().min(available(plan));
    let donors = sets.iter().filter(|(from, marks)| {
        let replicas = plan[*from].replicas;
        let grows_too_far = *from == 0 && replicas >= deployment.replicas;
        *from != to && replicas < marks.replicas && marks.unmarked_going(replicas) > 0 && !grows_too_far
    });
    let donors: Vec<usize> = donors.map(|(from, _)| *from).collect();
    let mut changed = plan.to_vec();
    changed[to].replicas -= 1;
    for from in donors {
        changed[from].replicas += 1;
        if available(&changed) >= minimum {
            return accept(plan, &changed, to);
        }
        changed[from].replicas -= 1;
    }
    let planned: i64 = changed.iter().map(|planned| planned.replicas).sum();
    let is_spare = planned >= deployment.replicas && available(&changed) >= minimum;
    is_spare && accept(plan, &changed, to)
}

fn accept(plan: &mut [Planned], changed: &[Planned], to: usize) -> bool {
    plan.clone_from_slice(changed);
    if !plan[to].reasons.contains(&Reason::MarkedGo) {
        plan[to].reasons.push(Reason::MarkedGo);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rollout::{Bound, Strategy};

    fn deployment(replicas: i64, surge: i64, unavailable: i64) -> Deployment {
        let (max_surge, max_unavailable) = (Bound::Count(surge), Bound::Count(unavailable));
        let strategy = Strategy::RollingUpdate { max_surge, max_unavailable };
        Deployment { replicas, strategy, in_place_updates: false }
    }

    /// A set whose machines are all available, `marked` of them marked.
    fn set(name: &str, replicas: i64, marked: i64) -> Marks {
        let name = name.to_owned();
        Marks { name, replicas, machines: replicas, available: replicas, marked, marked_available: marked }
    }

    /// The replicas after, of a plan that has these before.
    fn preferred(deployment: &Deployment, had: i64, sets: &[(Marks, i64)]) -> Vec<i64> {
        let planned = |(marks, replicas): &(Marks, i64)| Planned {
            name: marks.name.clone(),
            replicas: *replicas,
            revision: None,
            creates_no_machines: false,
            moves_machines_to: None,
            receives_machines_from: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            reasons: Vec::new(),
        };
        let mut plan = Plan { machine_sets: sets.iter().map(planned).collect() };
        let marks: Vec<_> = sets.iter().map(|(marks, _)| marks.clone()).collect();
        prefer_marked(deployment, had, &marks, &mut plan);
        plan.machine_sets.iter().map(|planned| planned.replicas).collect()
    }

    #[test]
    fn a_decrease_goes_where_the_marked_machines_are() {
        let three = deployment(3, 1, 0);
        assert_eq!(preferred(&three, 4, &[(set("new", 1, 1), 1), (set("old", 3, 0), 2)]), [0, 3]);
        // Between two old ones, and no further than what is asked for.
        let sets = [(set("new", 1, 0), 1), (set("a", 2, 0), 1), (set("b", 2, 2), 2)];
        assert_eq!(preferred(&three, 4, &sets), [1, 2, 1]);
        // The set that shrinks has marked ones itself.
        assert_eq!(preferred(&three, 4, &[(set("new", 1, 1), 1), (set("old", 3, 1), 2)]), [1, 2]);
    }

    #[test]
    fn a_rollout_alone_takes_no_marked_machines() {
        let four = deployment(4, 1, 0);
        assert_eq!(preferred(&four, 4, &[(set("new", 2, 1), 2), (set("old", 3, 0), 2)]), [2, 2]);
        assert_eq!(preferred(&four, 0, &[(set("new", 2, 1), 2), (set("old", 3, 0), 2)]), [2, 2]);
    }

    #[test]
    fn marked_machines_go_alone_where_there_are_too_many() {
        let three = deployment(3, 1, 1);
        assert_eq!(preferred(&three, 4, &[(set("new", 2, 1), 2), (set("old", 2, 0), 2)]), [1, 2]);
        assert_eq!(
            preferred(&three, 4, &[(set("new", 2, 1), 2), (set("old", 1, 0), 1)]),
            [2, 1],
            "not too many"
        );
        // The current one has what it may have, so it does not grow back.
        assert_eq!(preferred(&three, 4, &[(set("new", 4, 0), 3), (set("old", 1, 1), 1)]), [3, 0]);
    }

    #[test]
    fn no_fewer_stay_available() {
        let three = deployment(3, 1, 0);
        // The machines of the old set are not available; the marked one is.
        let old = Marks { available: 0, ..set("old", 3, 0) };
        assert_eq!(preferred(&three, 4, &[(set("new", 1, 1), 1), (old.clone(), 2)]), [1, 2]);
        // A marked one that is not available harms nobody.
        let new = Marks { available: 0, marked_available: 0, ..set("new", 1, 1) };
        assert_eq!(preferred(&three, 4, &[(new, 1), (old, 2)]), [0, 3]);
    }

    /// Whatever there is: no more machines, no fewer available than before or than have to be, and no negative sizes.
    #[test]
    fn bounds_hold_in_all_small_cases() {
        for case in 0..4_u64.pow(8) {
            let digit = |place: u32| i64::try_from(case / 4_u64.pow(place) % 4).unwrap_or_default();
            let of = |name, at: u32| {
                let replicas = digit(at);
                let (available, marked) = (digit(at + 1).min(replicas), digit(at + 2).min(replicas));
                let marked_available = marked.min(available).max(marked + available - replicas);
                Marks { available, marked, marked_available, ..set(name, replicas, 0) }
            };
            let (new, old) = (of("new", 0), of("old", 3));
            let planned = [(new.replicas - digit(6) / 2).max(0), (old.replicas - digit(7)).max(0)];
            let deployment = deployment(3, 1, 1);
            let after = preferred(&deployment, 5, &[(new.clone(), planned[0]), (old.clone(), planned[1])]);
            let available = |sizes: &[i64]| new.stays_available(sizes[0]) + old.stays_available(sizes[1]);
            assert!(after.iter().all(|size| *size >= 0), "{case}: {after:?}");
            assert!(after.iter().sum::<i64>() <= planned.iter().sum(), "{case}: {after:?}");
            assert!(
                available(&after) >= available(&planned).min(deployment.min_available()),
                "{case}: {after:?}"
            );
        }
    }
}

//! Which `MachineSet` is the current one, and its revision.

use std::cmp::Reverse;

/// What [`choose`] looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created: i64,
    /// `spec.replicas`
    pub replicas: i64,
    /// Its template equals the deployment's in what needs new machines: version, bootstrap, infrastructure and failure domain.
    pub has_template: bool,
}

/// Which of the candidates is the current `MachineSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the current one. None: one has to be created.
    pub current: Option<usize>,
    /// The others, those with most replicas first.
    pub old: Vec<Old>,
}

/// An old `MachineSet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Old {
    /// The index of the candidate.
    pub index: usize,
    /// Its machines may be updated in place, if they can be. Those that only have to be replaced, by `spec.rollout.after` or
    /// as surplus of the same template, may not.
    pub may_update_in_place: bool,
}

/// Finds the `MachineSet` that has the template of the deployment. `after` is `spec.rollout.after` and `now` the time of the
/// pass, both in seconds since 1970: once it is over, a `MachineSet` that is older has to be replaced, whatever its template.
///
/// Of several the one with most replicas is taken, then the oldest, then the first by name, so that few machines change.
#[must_use]
pub fn choose(candidates: &[Candidate<'_>], after: Option<i64>, now: i64) -> Choice {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&index| {
        let candidate = &candidates[index];
        (Reverse(candidate.replicas), candidate.created, candidate.name)
    });
    let outdated =
        |candidate: &Candidate<'_>| after.is_some_and(|after| after <= now && candidate.created < after);
    let current =
        order.iter().copied().find(|&index| candidates[index].has_template && !outdated(&candidates[index]));
    // Upstream appends those with the template last.
    let (same, different): (Vec<usize>, Vec<usize>) = order
        .into_iter()
        .filter(|&index| Some(index) != current)
        .partition(|&index| candidates[index].has_template);
    let old = different
        .into_iter()
        .chain(same)
        .map(|index| Old {
            index,
            may_update_in_place: !candidates[index].has_template && !outdated(&candidates[index]),
        })
        .collect();
    Choice { current, old }
}

/// The annotations `machinedeployment.clusters.x-k8s.io/revision` and `…/revision-history` of a `MachineSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The higher, the later it became the current one.
    pub number: i64,
    /// The numbers that it had when it was current before, oldest first.
    pub history: Vec<i64>,
}

impl Revision {
    /// The revision of the current `MachineSet`: above all others, and never less than it had.
    pub(super) fn above(old: i64, had: Option<&Self>) -> Self {
        let number = old.saturating_add(1);
        match had {
            None => Self { number, history: Vec::new() },
            Some(had) if had.number >= number => had.clone(),
            Some(had) => {
                let mut history = had.history.clone();
                history.push(had.number);
                Self { number, history }
            }
        }
    }
}

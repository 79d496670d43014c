//! Which unhealthy machines a `MachineSet` replaces.

use std::cmp::Reverse;

use crate::rollout::Bound;

/// A machine that a health check found unhealthy and that its owner shall remediate: `HealthCheckSucceeded` and
/// `OwnerRemediated` are `False`. Machines that are being deleted are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy<'a> {
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created: i64,
    /// It has the annotation `cluster.x-k8s.io/remediate-machine`: a user asked for it.
    pub requested: bool,
}

/// What becomes of the unhealthy machines of one `MachineSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remediation<'a> {
    /// These are deleted, once the preflight checks pass: reason `MachineDeleting`.
    pub delete: Vec<&'a str>,
    /// These wait: reason `RemediationDeferred`.
    pub defer: Vec<&'a str>,
    /// These go with the rollout: reason `CannotBeRemediated`.
    pub leave: Vec<&'a str>,
}

/// Decides about unhealthy machines. `is_current` says whether the `MachineSet` has the deployment's revision, and is true for
/// one without a deployment; `max_in_flight` is `spec.remediation.maxInFlight` of the deployment, `replicas` its
/// `spec.replicas`; `in_flight` counts the machines that are being deleted for that reason.
///
/// Requested ones come first, then the newest, which have the fewest workloads.
#[must_use]
pub fn remediate<'a>(
    unhealthy: &[Unhealthy<'a>],
    is_current: bool,
    max_in_flight: Option<Bound>,
    replicas: i64,
    in_flight: usize,
) -> Remediation<'a> {
    let mut order: Vec<&Unhealthy<'a>> = unhealthy.iter().collect();
    order.sort_by_key(|machine| (!machine.requested, Reverse(machine.created), machine.name));
    let names = |machines: &[&Unhealthy<'a>]| machines.iter().map(|machine| machine.name).collect();
    if !is_current {
        return Remediation { leave: names(&order), ..Remediation::default() };
    }
    let most = max_in_flight.map_or(usize::MAX, |bound| usize::try_from(bound.up(replicas)).unwrap_or(0));
    let (delete, defer) = order.split_at(most.saturating_sub(in_flight).min(order.len()));
    Remediation { delete: names(delete), defer: names(defer), leave: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, created: i64) -> Unhealthy<'_> {
        Unhealthy { name, created, requested: false }
    }

    #[test]
    fn all_are_deleted_where_nothing_bounds_them() {
        let machines = [machine("a", 1), machine("b", 2)];
        assert_eq!(remediate(&machines, true, None, 3, 9).delete, ["b", "a"]);
    }

    #[test]
    fn requested_machines_come_first_then_the_newest() {
        let machines = [
            machine("old", 1),
            machine("new", 9),
            machine("new2", 9),
            Unhealthy { requested: true, ..machine("asked", 0) },
        ];
        let decided = remediate(&machines, true, Some(Bound::Count(3)), 4, 0);
        assert_eq!((decided.delete, decided.defer), (vec!["asked", "new", "new2"], vec!["old"]));
    }

    #[test]
    fn those_in_flight_count_and_a_percentage_rounds_up() {
        let machines = [machine("a", 1), machine("b", 2), machine("c", 3)];
        let deleted = |bound, in_flight| remediate(&machines, true, Some(bound), 3, in_flight).delete.len();
        assert_eq!(deleted(Bound::Percent(34), 0), 2);
        assert_eq!(deleted(Bound::Percent(34), 1), 1);
        assert_eq!(deleted(Bound::Count(1), 1), 0);
        assert_eq!(deleted(Bound::Count(0), 0), 0);
        assert_eq!(deleted(Bound::Count(1), 5), 0);
    }

    #[test]
    fn machines_of_an_old_machine_set_go_with_the_rollout() {
        let decided = remediate(&[machine("a", 1)], false, None, 3, 0);
        assert_eq!((decided.delete.len(), decided.leave), (0, vec!["a"]));
    }
}

//! Which machines of a `MachineSet` go first when it shrinks.

use std::cmp::Ordering;

/// `spec.deletion.order` of a `MachineSet`. It decides between healthy machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionOrder {
    /// By name, so that two passes choose the same machines.
    #[default]
    Random,
    /// The last one first.
    Newest,
    /// The first one first.
    Oldest,
}

/// What the order looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created: i64,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It has the annotation `cluster.x-k8s.io/delete-machine`.
    pub marked: bool,
    /// It is being updated in place.
    pub updating: bool,
    /// It has a Node, and neither `NodeHealthy` nor `HealthCheckSucceeded` is `False`; `Unknown` says nothing.
    pub healthy: bool,
    /// `Available` is `True`. A rollout counts on it that the others go first, which Cluster API does not do.
    pub available: bool,
}

/// How good it is to delete a machine, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    /// It goes anyway. Otherwise two machines would go for one.
    Deleting,
    /// A user or an autoscaler chose it.
    Marked,
    /// Its update need not be finished.
    Updating,
    /// No workload misses it.
    Unhealthy,
    /// It may become available, and no workload counts on it yet.
    Unavailable,
    Healthy,
}

impl Standing<'_> {
    fn priority(&self) -> Priority {
        if self.deleting {
            Priority::Deleting
        } else if self.marked {
            Priority::Marked
        } else if self.updating {
            Priority::Updating
        } else if !self.healthy {
            Priority::Unhealthy
        } else if !self.available {
            Priority::Unavailable
        } else {
            Priority::Healthy
        }
    }
}

/// Sorts machines by how good it is to delete them, the best first. Equal ones are in the order of their names.
pub fn deletion_order(machines: &mut [Standing<'_>], order: DeletionOrder) {
    machines.sort_by(|a, b| {
        let (priority, other) = (a.priority(), b.priority());
        let age = match order {
            _ if priority != Priority::Healthy || other != Priority::Healthy => Ordering::Equal,
            DeletionOrder::Random => Ordering::Equal,
            DeletionOrder::Newest => b.created.cmp(&a.created),
            DeletionOrder::Oldest => a.created.cmp(&b.created),
        };
        priority.cmp(&other).then(age).then_with(|| a.name.cmp(b.name))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy(name: &str) -> Standing<'_> {
        Standing {
            name,
            created: 0,
            deleting: false,
            marked: false,
            updating: false,
            healthy: true,
            available: true,
        }
    }

    fn order(mut machines: Vec<Standing<'_>>, order: DeletionOrder) -> Vec<&str> {
        deletion_order(&mut machines, order);
        machines.into_iter().map(|machine| machine.name).collect()
    }

    #[test]
    fn the_standing_decides_before_the_age() {
        let machines = || {
            vec![
                Standing { created: 1, ..healthy("healthy") },
                Standing { created: 5, available: false, ..healthy("unavailable") },
                Standing { created: 9, healthy: false, ..healthy("unhealthy") },
                Standing { created: 2, updating: true, ..healthy("updating") },
                Standing { created: 3, marked: true, healthy: false, ..healthy("marked") },
                Standing { created: 4, deleting: true, marked: true, ..healthy("deleting") },
            ]
        };
        for by in [DeletionOrder::Random, DeletionOrder::Newest, DeletionOrder::Oldest] {
            assert_eq!(
                order(machines(), by),
                ["deleting", "marked", "updating", "unhealthy", "unavailable", "healthy"]
            );
        }
    }

    #[test]
    fn healthy_machines_go_by_age_or_name() {
        let machines = || {
            vec![
                Standing { created: 2, ..healthy("a") },
                Standing { created: 3, ..healthy("b") },
                Standing { created: 1, ..healthy("c") },
                Standing { created: 1, ..healthy("b2") },
            ]
        };
        assert_eq!(order(machines(), DeletionOrder::Random), ["a", "b", "b2", "c"]);
        assert_eq!(order(machines(), DeletionOrder::Newest), ["b", "a", "b2", "c"]);
        assert_eq!(order(machines(), DeletionOrder::Oldest), ["b2", "c", "a", "b"]);
    }

    #[test]
    fn machines_with_equal_standing_go_by_name_whatever_their_age() {
        let unhealthy = |name, created| Standing { created, healthy: false, ..healthy(name) };
        assert_eq!(order(vec![unhealthy("b", 1), unhealthy("a", 2)], DeletionOrder::Oldest), ["a", "b"]);
    }
}

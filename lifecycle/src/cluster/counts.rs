//! How many Machines a Cluster has.

use crate::{conditions::Status, replicas::Replica};

/// The counters of `status.controlPlane` and of `status.workers`. `None`: nothing reports the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `desiredReplicas`
    pub desired: Option<i64>,
    /// `replicas`
    pub replicas: Option<i64>,
    /// `readyReplicas`
    pub ready: Option<i64>,
    /// `availableReplicas`
    pub available: Option<i64>,
    /// `upToDateReplicas`
    pub up_to_date: Option<i64>,
}

impl Counts {
    /// One Machine that stands alone. Who made it wants it.
    #[must_use]
    pub fn of_machine(machine: &Replica<'_>) -> Self {
        let is = |kind: &str| {
            let found = machine.conditions.iter().find(|condition| condition.kind == kind);
            found.filter(|condition| condition.status == Status::True).map(|_| 1)
        };
        Self {
            desired: Some(1),
            replicas: Some(1),
            ready: is("Ready"),
            available: is("Available"),
            up_to_date: is("UpToDate"),
        }
    }
}

impl std::iter::Sum for Counts {
    /// A number that some report is the sum of theirs.
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let add = |one: Option<i64>, other: Option<i64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        all.fold(Self::default(), |sum, one| Self {
            desired: add(sum.desired, one.desired),
            replicas: add(sum.replicas, one.replicas),
            ready: add(sum.ready, one.ready),
            available: add(sum.available, one.available),
            up_to_date: add(sum.up_to_date, one.up_to_date),
        })
    }
}

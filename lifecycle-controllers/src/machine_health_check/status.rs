//! The status of a `MachineHealthCheck`.

use cluster_api::{
    Cluster, MachineHealthCheck, MachineHealthCheckStatus,
    names::{annotations, conditions as types, reasons},
};
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Statement, Status},
    health_check::Trigger,
};

use super::{limits::Named, targets::Judged};
use crate::{
    core::is_cluster_paused,
    engine::{
        conditions::{Conditions, paused},
        object::Meta as _,
    },
};

/// So many names the status may have.
const MOST_TARGETS: usize = 10_000;

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: i64,
    pub(super) healthy: i64,
    pub(super) unhealthy: i64,
    /// How many more Machines may become unhealthy. `None`: nothing is remediated.
    pub(super) allowed: Option<i64>,
}

impl Counts {
    pub(super) fn of(judged: &[Judged], trigger: Trigger) -> Self {
        let count = |is_counted: &dyn Fn(&Judged) -> bool| {
            i64::try_from(judged.iter().filter(|one| is_counted(one)).count()).unwrap_or(i64::MAX)
        };
        let (expected, healthy) = (count(&|_| true), count(&|one| one.is_healthy));
        let unhealthy = count(&Judged::is_unhealthy);
        Self { expected, healthy, unhealthy, allowed: trigger.allowed(expected, healthy) }
    }

    /// `RemediationAllowed`
    pub(super) fn statement(&self, limit: &Named) -> Statement {
        let Self { expected, unhealthy, allowed, .. } = self;
        if allowed.is_some() {
            return Statement::new(Status::True, reasons::REMEDIATION_ALLOWED, "");
        }
        let why = match limit {
            Named::Most(most) => format!(
                "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: {expected}, unhealthy: {unhealthy}, maxUnhealthy: {most})"
            ),
            Named::Range(range) => format!(
                "Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range (total: {expected}, unhealthy: {unhealthy}, unhealthyRange: {range})"
            ),
        };
        Statement::new(Status::False, reasons::TOO_MANY_UNHEALTHY, why)
    }
}

/// The status. Without `found`, only whether the check is paused is new.
pub(super) fn status(
    check: &MachineHealthCheck,
    cluster: &Cluster,
    found: Option<(&[Judged], &Counts, &Statement)>,
    now: i64,
) -> MachineHealthCheckStatus {
    let mut status = check.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, check.metadata.generation);
    let is_own = check.annotations().contains_key(annotations::PAUSED);
    let is_paused = paused("MachineHealthCheck", is_cluster_paused(Some(cluster)), is_own);
    conditions.set(types::PAUSED, is_paused, now);
    if let Some((judged, counts, allowed)) = found {
        let number = |count: i64| i32::try_from(count).ok();
        status.expected_machines = number(counts.expected);
        status.current_healthy = number(counts.healthy);
        status.remediations_allowed = number(counts.allowed.unwrap_or(0));
        let names = judged.iter().map(|one| one.machine.name_or_empty().to_owned());
        status.targets = names.take(MOST_TARGETS).collect();
        conditions.set(types::REMEDIATION_ALLOWED, allowed.clone(), now);
        status.observed_generation = check.metadata.generation;
    }
    status.conditions = conditions.write();
    status
}

#[cfg(test)]
mod tests {
    use lifecycle::rollout::Bound;

    use super::*;

    fn counts(expected: i64, healthy: i64, unhealthy: i64, trigger: Trigger) -> Counts {
        Counts { expected, healthy, unhealthy, allowed: trigger.allowed(expected, healthy) }
    }

    #[test]
    fn the_message_names_the_limit_as_the_user_wrote_it() {
        let most = Named::Most("40%".to_owned());
        let trigger = Trigger::AtMost(Bound::Percent(40));
        let few = counts(5, 3, 1, trigger).statement(&most);
        assert_eq!(few, Statement::new(Status::True, "RemediationAllowed", ""));
        let many = counts(5, 2, 1, trigger).statement(&most);
        let words = "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: 5, unhealthy: 1, maxUnhealthy: 40%)";
        assert_eq!(many, Statement::new(Status::False, "TooManyUnhealthy", words));
        let range = Named::Range("[1-2]".to_owned());
        let none = counts(5, 5, 0, Trigger::Within { from: 1, to: 2 }).statement(&range);
        let words = "Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range (total: 5, unhealthy: 0, unhealthyRange: [1-2])";
        assert_eq!(none.message, words);
    }
}

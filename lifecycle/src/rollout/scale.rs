//! How a paused `MachineDeployment` scales: no machine changes its `MachineSet`, and the ones that come or go are spread over
//! all `MachineSet`s in proportion to their size.

use std::cmp::Reverse;

use super::{Deployment, Strategy};

/// What the spreading looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// `metadata.name`
    pub name: String,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created: i64,
    /// `spec.replicas`
    pub replicas: i64,
    /// `status.availableReplicas`
    pub available: i64,
    /// `machinedeployment.clusters.x-k8s.io/desired-replicas`: `spec.replicas` of the deployment when it was written.
    pub desired: Option<i64>,
    /// `machinedeployment.clusters.x-k8s.io/max-replicas`: the same with the surge.
    pub max: Option<i64>,
}

/// `spec.replicas` for those `MachineSet`s of a paused deployment that have to change, by name. `status_replicas` is
/// `status.replicas` of the deployment, for `MachineSet`s without annotation.
#[must_use]
pub fn scale(
    deployment: &Deployment,
    status_replicas: i64,
    current: Option<&Share>,
    old: &[Share],
) -> Vec<(String, i64)> {
    let mut active: Vec<&Share> = old.iter().chain(current).filter(|share| share.replicas > 0).collect();
    let wanted = match active[..] {
        [] => {
            let newest = current.or_else(|| old.iter().max_by_key(|share| (share.created, &share.name)));
            newest.map(|share| (share, deployment.replicas)).into_iter().collect()
        }
        [one] => vec![(one, deployment.replicas)],
        _ if current.is_some_and(|share| is_saturated(share, deployment)) => {
            old.iter().map(|share| (share, 0)).collect()
        }
        _ if deployment.strategy == Strategy::OnDelete => Vec::new(),
        _ => spread(deployment, status_replicas, &mut active),
    };
    wanted
        .into_iter()
        .filter(|(share, replicas)| share.replicas != *replicas)
        .map(|(share, replicas)| (share.name.clone(), replicas))
        .collect()
}

/// It has all machines of the deployment, they are available, and it was written since the deployment was scaled.
fn is_saturated(share: &Share, deployment: &Deployment) -> bool {
    let all = deployment.replicas;
    share.replicas == all && share.available == all && share.desired == Some(all)
}

fn spread<'a>(
    deployment: &Deployment,
    status_replicas: i64,
    active: &mut [&'a Share],
) -> Vec<(&'a Share, i64)> {
    let size = if deployment.replicas > 0 { deployment.replicas + deployment.max_surge() } else { 0 };
    let add = size - active.iter().map(|share| share.replicas).sum::<i64>();
    // The largest first; of equal ones the newest grows, and the oldest shrinks.
    active
        .sort_by_key(|share| (Reverse(share.replicas), if add > 0 { -share.created } else { share.created }));
    let mut left = add;
    let mut sizes: Vec<(&Share, i64)> = active
        .iter()
        .map(|share| {
            let part = if left == 0 { 0 } else { fraction(share, deployment, status_replicas) };
            let part = if add > 0 { part.min(left) } else { part.max(left) };
            left -= part;
            (*share, share.replicas + part)
        })
        .collect();
    // What rounding left over is the largest one's.
    if let Some((_, replicas)) = sizes.first_mut() {
        *replicas = (*replicas + left).max(0);
    }
    sizes
}

/// The replicas that come or go with the size that the deployment had when the `MachineSet` was written.
fn fraction(share: &Share, deployment: &Deployment, status_replicas: i64) -> i64 {
    if deployment.replicas == 0 {
        return -share.replicas;
    }
    // The annotation can say any number. No set has more replicas than the API's int32.
    let had = share.max.unwrap_or(status_replicas).clamp(1, i32::MAX.into());
    let size = deployment.replicas + deployment.max_surge();
    // To the nearest, halves up.
    (2 * share.replicas * size + had).div_euclid(2 * had) - share.replicas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::Bound;

    fn rolling(replicas: i64, max_surge: i64) -> Deployment {
        let strategy =
            Strategy::RollingUpdate { max_surge: Bound::Count(max_surge), max_unavailable: Bound::Count(0) };
        Deployment { replicas, strategy, in_place_updates: false }
    }

    /// Written when the deployment had `had` replicas and no surge.
    fn share(name: &str, created: i64, replicas: i64, had: i64) -> Share {
        Share {
            name: name.into(),
            created,
            replicas,
            available: replicas,
            desired: Some(had),
            max: Some(had),
        }
    }

    /// The replicas after, of the old ones and then of the current one.
    fn scaled(deployment: &Deployment, old: &[Share], current: Option<Share>) -> Vec<i64> {
        let changes = scale(deployment, 0, current.as_ref(), old);
        old.iter()
            .chain(&current)
            .map(|share| {
                changes
                    .iter()
                    .find(|(name, _)| *name == share.name)
                    .map_or(share.replicas, |(_, replicas)| *replicas)
            })
            .collect()
    }

    #[test]
    fn one_machine_set_gets_everything() {
        assert_eq!(scaled(&rolling(5, 0), &[], Some(share("a", 1, 3, 3))), [5]);
        assert_eq!(scaled(&rolling(5, 0), &[share("old", 1, 3, 3)], Some(share("new", 2, 0, 3))), [5, 0]);
        // none has machines: the current one, or else the newest
        assert_eq!(scaled(&rolling(5, 0), &[share("old", 1, 0, 3)], Some(share("new", 2, 0, 3))), [0, 5]);
        assert_eq!(scaled(&rolling(5, 0), &[share("a", 1, 0, 3), share("b", 2, 0, 3)], None), [0, 5]);
    }

    #[test]
    fn a_complete_rollout_leaves_old_machine_sets_empty() {
        assert_eq!(scaled(&rolling(3, 0), &[share("old", 1, 2, 3)], Some(share("new", 2, 3, 3))), [0, 3]);
    }

    #[test]
    fn machines_are_spread_in_proportion() {
        let old = [share("a", 1, 5, 10)];
        assert_eq!(scaled(&rolling(20, 0), &old, Some(share("new", 2, 5, 10))), [10, 10]);
        assert_eq!(scaled(&rolling(4, 0), &old, Some(share("new", 2, 5, 10))), [2, 2]);
        assert_eq!(scaled(&rolling(0, 0), &old, Some(share("new", 2, 5, 10))), [0, 0]);
        assert_eq!(scaled(&rolling(12, 0), &[share("a", 1, 8, 10)], Some(share("new", 2, 2, 10))), [10, 2]);
    }

    #[test]
    fn an_annotation_may_say_any_number() {
        assert_eq!(scaled(&rolling(4, 0), &[share("a", 1, 5, i64::MAX)], None), [4]);
        assert_eq!(scaled(&rolling(4, 0), &[share("a", 1, 5, i64::MIN)], None), [4]);
    }

    #[test]
    fn of_equal_ones_the_newest_grows_and_the_oldest_shrinks() {
        let old = [share("a", 1, 5, 10)];
        assert_eq!(scaled(&rolling(11, 0), &old, Some(share("new", 2, 5, 10))), [5, 6]);
        assert_eq!(scaled(&rolling(9, 0), &old, Some(share("new", 2, 5, 10))), [4, 5]);
    }

    #[test]
    fn the_surge_is_spread_too() {
        // A rollout of ten with a surge of two stopped at twelve machines; the deployment has fifteen and two.
        let written = |name, created, replicas| Share { max: Some(12), ..share(name, created, replicas, 10) };
        let changed = scaled(&rolling(15, 2), &[written("a", 1, 8)], Some(written("new", 2, 4)));
        assert_eq!(changed.iter().sum::<i64>(), 17);
        assert_eq!(changed, [11, 6]);
    }

    #[test]
    fn on_delete_machines_stay_where_they_are() {
        let on_delete = Deployment { strategy: Strategy::OnDelete, ..rolling(20, 0) };
        assert_eq!(scaled(&on_delete, &[share("a", 1, 5, 10)], Some(share("new", 2, 5, 10))), [5, 5]);
    }

    #[test]
    fn without_an_annotation_the_status_of_the_deployment_counts() {
        let bare = |name: &str, created| Share { max: None, desired: None, ..share(name, created, 5, 0) };
        let changes = scale(&rolling(20, 0), 10, Some(&bare("new", 2)), &[bare("a", 1)]);
        assert_eq!(changes, [("new".into(), 10), ("a".into(), 10)]);
    }
}

//! The drain of a Node: its Pods are looked up, judged by [`lifecycle::drain`], and evicted.
//!
//! Source of the rules: `core/reconcilers/machine/drain` of Cluster API 1.14.2. There one Pod is evicted after the other, and the
//! Node is looked at again after 20 s. Here a few are evicted at once, namespaces in turns, and a Node whose Pods are on their way
//! is looked at again after 5 s. An eviction names the Pod's UID, so a Pod that came after it under the same name stays.

mod error;
mod evict;
mod pods;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use lifecycle::drain::{Behavior, Pass};
use tokio::time::timeout;

use super::{Node, WorkloadCluster};
use pods::PodOnNode;

pub use error::DrainError;
pub(super) use pods::{pages, size_of};
pub use rules::DrainRules;

/// How long one pass may take, with all its requests.
const PASS: Duration = Duration::from_secs(60);
/// When a Node is looked at again whose Pods are being deleted.
const SOON: Duration = Duration::from_secs(5);
/// When a Node is looked at again whose Pods may not be evicted yet, or are waited for: upstream's `drainRetryInterval`.
const LATER: Duration = Duration::from_secs(20);
/// The grace period of Pods on a Node that no kubelet answers for, in seconds: nobody there would use a longer one.
const UNREACHABLE_GRACE: i64 = 1;

/// How far the drain of a Node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing has to go any more.
    Done,
    /// Pods have to go.
    Waiting {
        /// The message of the Machine's condition `Deleting`.
        message: String,
        /// When to make the next pass.
        after: Duration,
    },
}

/// Makes one pass over a Node that is [cordoned](WorkloadCluster::cordon). `started` is `status.deletion.nodeDrainStartTime` as the API writes it.
///
/// # Errors
/// The API server does not say what Pods or `DaemonSet`s there are.
pub async fn pass(
    cluster: &WorkloadCluster,
    node: &Node,
    rules: &DrainRules,
    started: &str,
) -> Result<Progress, DrainError> {
    let made = timeout(PASS, async {
        let pods = judged(cluster, node, rules).await?;
        let plan: Vec<_> = pods.iter().map(|(pod, behavior)| (pod.judged.clone(), *behavior)).collect();
        let plan = Pass::plan(&plan);
        let names: BTreeSet<&String> = plan.evict.iter().collect();
        let to_evict: Vec<_> =
            pods.iter().map(|(pod, _)| pod).filter(|pod| names.contains(&pod.judged.name)).collect();
        let grace = node.is_unreachable().then_some(UNREACHABLE_GRACE);
        let evicted = evict::evict(cluster, to_evict, grace).await;
        Ok(progress(plan, evicted, started))
    });
    made.await
        .map_err(|_| DrainError(format!("the Pods of the Node could not be looked up within {PASS:?}")))?
}

fn progress(mut plan: Pass, evicted: evict::Evicted, started: &str) -> Progress {
    // They do not exist any more.
    plan.evict.retain(|pod| !evicted.gone.contains(pod));
    if plan.is_done() {
        return Progress::Done;
    }
    let failed: BTreeMap<String, Vec<String>> = evicted.failed;
    let refused = failed.values().map(Vec::len).sum::<usize>();
    let is_moving = !plan.deleting.is_empty() || plan.evict.len() > refused;
    Progress::Waiting { message: plan.message(started, &failed), after: if is_moving { SOON } else { LATER } }
}

/// The Pods of a Node, each with what happens to it.
pub(super) async fn judged(
    cluster: &WorkloadCluster,
    node: &Node,
    rules: &DrainRules,
) -> Result<Vec<(PodOnNode, Behavior)>, DrainError> {
    let mut pods = pods::list(cluster, &node.name, Timestamp::now()).await?;
    pods::look_up_daemon_sets(cluster, &mut pods).await?;
    let namespaces = if rules.need_namespaces() && !pods.is_empty() {
        pods::namespaces(cluster).await?
    } else {
        BTreeMap::new()
    };
    let unreachable = node.is_unreachable();
    let judge = |pod: PodOnNode| {
        let rule = rules.behavior(&pod, &namespaces)?;
        let behavior = Behavior::of(&pod.judged, rule, unreachable);
        Ok((pod, behavior))
    };
    pods.into_iter().map(judge).collect()
}

#[cfg(test)]
mod tests;

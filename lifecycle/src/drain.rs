//! How a Node is drained before its machine goes: which Pods are evicted, in which order, and what is left to wait for.
//!
//! Source of the rules: `core/reconcilers/machine/drain` of Cluster API 1.14.2.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Pods of one kind that a message names; the others are counted.
const NAMED_PODS: usize = 3;
/// Different errors that a message names.
const NAMED_ERRORS: usize = 5;
/// How long the deletion of a Pod on an unreachable Node has to be asked for before the drain takes it for done, in seconds: no
/// kubelet confirms it.
const UNCONFIRMED_DELETION: i64 = 1;

/// What the drain reads of a Pod on the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.namespace` and `metadata.name`, with a slash between.
    pub name: String,
    /// `metadata.deletionTimestamp`, as seconds since then.
    pub deleting_for: Option<i64>,
    /// `status.phase` is `Succeeded` or `Failed`.
    pub finished: bool,
    /// A DaemonSet controls it.
    pub daemon_set: Option<DaemonSet>,
    /// It has the annotation `kubernetes.io/config.mirror`: a file on the Node is its source.
    pub mirror: bool,
    /// The value of its label `cluster.x-k8s.io/drain`.
    pub label: Option<String>,
}

/// The DaemonSet of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonSet {
    /// It is there and would create the Pod again.
    Exists,
    /// The cluster says that there is none.
    Gone,
}

/// What happens to a Pod: `spec.drain` of a `MachineDrainRule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// It is evicted.
    Drain {
        /// Lower ones are evicted first; the next ones follow when these are gone.
        order: i32,
    },
    /// It stays, and nothing waits for it.
    Skip,
    /// It is not evicted, and the drain waits until it is gone. Its order is 0.
    WaitCompleted,
}

impl Behavior {
    /// What happens to a Pod. `rule` is that of the first `MachineDrainRule`, by name, whose selectors match; `unreachable` says
    /// that no kubelet of the Node answers.
    #[must_use]
    pub fn of(pod: &Pod, rule: Option<Self>, unreachable: bool) -> Self {
        let unconfirmed =
            unreachable && pod.deleting_for.is_some_and(|seconds| seconds > UNCONFIRMED_DELETION);
        let created_again = pod.daemon_set == Some(DaemonSet::Exists) && !pod.finished;
        if unconfirmed || created_again || pod.mirror {
            return Self::Skip;
        }
        match pod.label.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("skip") => Self::Skip,
            Some("wait-completed" | "waitcompleted") => Self::WaitCompleted,
            // A value that means nothing is passed over, as upstream does.
            _ => rule.unwrap_or(Self::Drain { order: 0 }),
        }
    }

    /// None for what nothing waits for.
    fn order(self) -> Option<i32> {
        match self {
            Self::Drain { order } => Some(order),
            Self::WaitCompleted => Some(0),
            Self::Skip => None,
        }
    }
}

/// What one pass of a drain does and what it waits for. Names are sorted, so that a condition changes only when the Pods do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// To be evicted in this pass.
    pub evict: Vec<String>,
    /// Their deletion was asked for.
    pub deleting: Vec<String>,
    /// To be evicted when those before them are gone.
    pub evict_later: Vec<String>,
    /// To be waited for.
    pub completing: Vec<String>,
    /// To be waited for when those before them are gone.
    pub complete_later: Vec<String>,
}

impl Pass {
    /// Divides the Pods of a Node.
    #[must_use]
    pub fn plan(pods: &[(Pod, Behavior)]) -> Self {
        let first = pods.iter().filter_map(|(_, behavior)| behavior.order()).min();
        let mut pass = Self::default();
        for (pod, behavior) in pods {
            let is_first = behavior.order() == first;
            let list = match behavior {
                Behavior::Skip => continue,
                Behavior::Drain { .. } if pod.deleting_for.is_some() => &mut pass.deleting,
                Behavior::Drain { .. } if is_first => &mut pass.evict,
                Behavior::Drain { .. } => &mut pass.evict_later,
                Behavior::WaitCompleted if is_first => &mut pass.completing,
                Behavior::WaitCompleted => &mut pass.complete_later,
            };
            list.push(pod.name.clone());
        }
        for list in [
            &mut pass.evict,
            &mut pass.deleting,
            &mut pass.evict_later,
            &mut pass.completing,
            &mut pass.complete_later,
        ] {
            list.sort();
        }
        pass
    }

    /// Whether nothing has to go any more.
    #[must_use]
    pub fn is_done(&self) -> bool {
        [&self.evict, &self.deleting, &self.evict_later, &self.completing, &self.complete_later]
            .iter()
            .all(|list| list.is_empty())
    }

    /// The message of the Machine's condition `Deleting` after the pass. `started` is `status.deletion.nodeDrainStartTime` as the
    /// API writes it. `failed` are the Pods that could not be evicted, by the API server's words; a disruption budget is named in
    /// them. The others of `evict` are on their way.
    #[must_use]
    pub fn message(&self, started: &str, failed: &BTreeMap<String, Vec<String>>) -> String {
        let mut text = format!("Drain not completed yet (started at {started}):");
        let mut deleting = self.deleting.clone();
        deleting.extend(
            self.evict.iter().filter(|pod| !failed.values().flatten().any(|name| name == *pod)).cloned(),
        );
        deleting.sort();
        line(&mut text, &deleting, "deletionTimestamp set, but still not removed from the Node");
        for (error, pods) in failed.iter().take(NAMED_ERRORS) {
            line(&mut text, pods, &refusal(error));
        }
        let others: usize = failed.values().skip(NAMED_ERRORS).map(Vec::len).sum();
        if others > 0 {
            let _ = write!(text, "\n* {others} {} with other issues", kind(others));
        }
        line(&mut text, &self.completing, "waiting for completion");
        let mut later = |pods: &[String], what: &str| {
            if !pods.is_empty() {
                let pods = listed(pods);
                let _ = write!(text, "\nAfter above Pods have been removed from the Node, {what}: {pods}");
            }
        };
        later(&self.evict_later, "the following Pods will be evicted");
        later(&self.complete_later, "waiting for the following Pods to complete without eviction");
        text
    }
}

fn line(text: &mut String, pods: &[String], what: &str) {
    if !pods.is_empty() {
        let _ = write!(text, "\n* {} {}: {what}", kind(pods.len()), listed(pods));
    }
}

fn kind(pods: usize) -> &'static str {
    if pods == 1 { "Pod" } else { "Pods" }
}

fn listed(pods: &[String]) -> String {
    let mut names: Vec<String> = pods.iter().take(NAMED_PODS).cloned().collect();
    if pods.len() > NAMED_PODS {
        names.push(format!("... ({} more)", pods.len() - NAMED_PODS));
    }
    names.join(", ")
}

/// The API server's words about a disruption budget stand for themselves.
fn refusal(error: &str) -> String {
    const BUDGET: &str = "annot evict pod as it would violate the pod's disruption budget.";
    match error.split_once(BUDGET) {
        Some(("C" | "c", rest)) => format!("c{BUDGET}{rest}"),
        _ => format!("failed to evict Pod, {error}"),
    }
}

#[cfg(test)]
mod tests;

//! Evictions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use component::api_client::describe;
use futures::{StreamExt as _, stream};
use http::{Request, header};
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::pods::PodOnNode;
use crate::workload::{WorkloadCluster, words::words};

/// For how long a pass evicts Pods, as upstream.
const EVICTIONS: Duration = Duration::from_secs(10);
/// Evictions at once.
const AT_ONCE: usize = 4;

/// What became of evictions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evicted {
    /// Pods that do not exist any more.
    pub(super) gone: BTreeSet<String>,
    /// Pods that were not evicted, by the API server's words.
    pub(super) failed: BTreeMap<String, Vec<String>>,
}

/// Evicts Pods. `grace` is their grace period in seconds, instead of their own.
pub(super) async fn evict(cluster: &WorkloadCluster, pods: Vec<&PodOnNode>, grace: Option<i64>) -> Evicted {
    let deadline = Instant::now() + EVICTIONS;
    let attempt = |pod: PodOnNode| async move {
        let outcome = timeout_at(deadline, one(cluster, &pod, grace)).await;
        (
            pod.judged.name,
            outcome.unwrap_or_else(|_| {
                Err(format!("eviction timeout of {EVICTIONS:?} reached, eviction will be retried"))
            }),
        )
    };
    let mut outcomes = stream::iter(in_turns(pods)).map(attempt).buffer_unordered(AT_ONCE);
    let mut evicted = Evicted::default();
    while let Some((pod, outcome)) = outcomes.next().await {
        match outcome {
            Ok(Evictions::Begun) => {}
            Ok(Evictions::Gone) => drop(evicted.gone.insert(pod)),
            Err(why) => evicted.failed.entry(why).or_default().push(pod),
        }
    }
    evicted.failed.values_mut().for_each(|pods| pods.sort());
    evicted
}

/// The Pods with one of each namespace after the other, so that a namespace with many keeps no other waiting.
fn in_turns(pods: Vec<&PodOnNode>) -> Vec<PodOnNode> {
    let mut namespaces: BTreeMap<&str, VecDeque<&PodOnNode>> = BTreeMap::new();
    for pod in pods {
        namespaces.entry(&pod.namespace).or_default().push_back(pod);
    }
    let mut order = Vec::new();
    while !namespaces.is_empty() {
        namespaces.retain(|_, pods| {
            order.extend(pods.pop_front().cloned());
            !pods.is_empty()
        });
    }
    order
}

enum Evictions {
    Begun,
    Gone,
}

async fn one(cluster: &WorkloadCluster, pod: &PodOnNode, grace: Option<i64>) -> Result<Evictions, String> {
    let PodOnNode { name, namespace, uid, .. } = pod;
    let mut options = json!({"preconditions": {"uid": uid}});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    });
    let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    match cluster.client().request::<Value>(request).await {
        Ok(_) => Ok(Evictions::Begun),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Evictions::Gone),
        // Another Pod has the name, or the budget changed meanwhile: the next pass sees which.
        Err(kube::Error::Api(status)) => Err(words(&refusal(&status))),
        Err(error) => Err(words(&describe(&error))),
    }
}

/// The API server's words, with those that say which budget it is. The name of a Pod must not be in them where it is of no
/// use, since equal words are shown once.
fn refusal(status: &Status) -> String {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    match status.code {
        429 => {
            let causes: Vec<&str> = causes.iter().map(|cause| cause.message.as_str()).collect();
            format!("{} {}", status.message, causes.join(",")).trim().to_owned()
        }
        403 if causes.iter().any(|cause| cause.reason == "NamespaceTerminating") => {
            "Cannot evict pod from terminating namespace: unable to create eviction (kube-controller-manager should set \
             deletionTimestamp)"
                .to_owned()
        }
        _ => status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::drain::Pod;

    use super::*;

    #[test]
    fn namespaces_take_turns() {
        let pods: Vec<PodOnNode> = ["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"].map(PodOnNode::named).into();
        let order: Vec<String> =
            in_turns(pods.iter().collect()).into_iter().map(|pod| pod.judged.name).collect();
        assert_eq!(order, ["a/1", "b/1", "c/1", "a/2", "c/2", "a/3"]);
    }

    impl PodOnNode {
        fn named(name: &str) -> Self {
            let (namespace, short) = name.split_once('/').expect("a namespace");
            let wire = json!({"metadata": {"name": short, "namespace": namespace}});
            let pod = super::super::pods::from_json(wire);
            assert_eq!(pod.judged, Pod { name: name.to_owned(), ..Pod::default() });
            pod
        }
    }
}

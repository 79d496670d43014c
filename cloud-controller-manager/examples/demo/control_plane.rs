//! What kube-controller-manager does to Nodes: its taints follow the Ready condition, and it sets that to
//! `Unknown` when the kubelet is silent.

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use sandbox::kubelet::NOT_READY_TAINT;
use serde_json::json;

const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// Handles a kubelet that reports Ready.
pub(crate) async fn kubelet_is_ready(client: &Client, name: &str) -> kube::Result<()> {
    set_taint(client, name, None).await
}

/// Handles a kubelet that has been silent for too long: all its conditions become unknown.
pub(crate) async fn kubelet_is_silent(client: &Client, name: &str) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut conditions =
        nodes.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
    for condition in conditions.iter_mut().filter(|condition| !condition.type_.starts_with("CloudProvider")) {
        "Unknown".clone_into(&mut condition.status);
        condition.reason = Some("NodeStatusUnknown".to_owned());
        condition.message = Some("Kubelet stopped posting node status.".to_owned());
        condition.last_transition_time = Some(Time(Timestamp::now()));
    }
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await?;
    set_taint(client, name, Some(UNREACHABLE_TAINT)).await
}

/// Puts one taint, or none, in place of those for readiness. The cloud-controller-manager writes taints of the same
/// Node at the same time, so a write that lost the race is repeated.
async fn set_taint(client: &Client, name: &str, wanted: Option<&str>) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    loop {
        let node = nodes.get(name).await?;
        let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.retain(|taint| taint.key != NOT_READY_TAINT && taint.key != UNREACHABLE_TAINT);
        taints.extend(wanted.map(|key| Taint {
            key: key.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }));
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        }));
        match nodes.patch(name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            outcome => return outcome.map(drop),
        }
    }
}

//! The kubelets of the fake cloud's machines.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider::machines::BootstrapFormat;
use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use sandbox::kubelet;
use tokio::{task::JoinHandle, time::sleep};

use super::workload::VERSION;
use crate::{fake_cloud::FakeCloud, support::set_ready_unknown};

const INTERVAL: Duration = Duration::from_millis(100);

/// On Nodes whose machines joined by the bootstrap data of Cluster API, until its core has seen them.
pub(super) const NOT_SEEN_BY_CORE: &str = "node.cluster.x-k8s.io/uninitialized";

/// Posts a Node for each machine that boots and whose bootstrap data join it to a cluster. Ends when dropped.
pub(super) struct Kubelets(JoinHandle<()>);

impl Kubelets {
    pub(super) fn start(client: &Client, cloud: &FakeCloud) -> Self {
        let (client, cloud) = (client.clone(), cloud.clone());
        Self(tokio::spawn(async move {
            // the machines that have joined, by their UUIDs
            let mut joined = BTreeMap::new();
            loop {
                if let Err(error) = follow(&client, &cloud, &mut joined).await {
                    eprintln!("a kubelet: {error:#}");
                }
                sleep(INTERVAL).await;
            }
        }))
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The UUIDs and the names of the machines that there are.
pub(super) fn machines(cloud: &FakeCloud) -> BTreeMap<String, String> {
    let lines = cloud.objects().into_iter();
    let machine = |line: String| {
        let (name, uid) = line.strip_prefix("instance/")?.split_once(" of ")?;
        Some((uid.to_owned(), name.to_owned()))
    };
    lines.filter_map(machine).collect()
}

async fn follow(
    client: &Client,
    cloud: &FakeCloud,
    joined: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let running = machines(cloud);
    for (uid, name) in &running {
        if !joined.contains_key(uid) && joins(cloud, uid) {
            let mut node = kubelet::node(name, uid);
            // kubeadm passes the taints of its configuration to the kubelet
            let taint = Taint {
                key: NOT_SEEN_BY_CORE.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            // one with another version than its Machine would be replaced
            let info = node.status.get_or_insert_default().node_info.get_or_insert_default();
            VERSION.clone_into(&mut info.kubelet_version);
            kubelet::register(client, &node).await?;
            kubelet::heartbeat(client, name, true).await?;
            joined.insert(uid.clone(), name.clone());
        }
    }
    let gone: Vec<_> = joined.keys().filter(|uid| !running.contains_key(*uid)).cloned().collect();
    for uid in gone {
        if let Some(name) = joined.remove(&uid) {
            // what kube-controller-manager does; the Node may be gone already
            drop(set_ready_unknown(client, &name).await);
        }
    }
    Ok(())
}

/// Whether the data that the machine was given are kubeadm's.
fn joins(cloud: &FakeCloud, uid: &str) -> bool {
    cloud.bootstrap_of(uid).is_some_and(|data| {
        let text = String::from_utf8_lossy(data.expose());
        data.format() == BootstrapFormat::CloudConfig
            && text.contains("kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml")
            && text.contains(NOT_SEEN_BY_CORE)
            && text.contains("caCertHashes")
    })
}

//! The kubelets of machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::machines::BootstrapFormat;
use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use sandbox::kubelet;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::workload::VERSION;
use crate::{fake_cloud::FakeCloud, support::set_ready_unknown};

/// Between two looks. A look at libvirt starts two programs.
const INTERVAL: Duration = Duration::from_secs(1);

/// On Nodes whose machines joined by the bootstrap data of Cluster API, until its core has seen them.
pub(crate) const NOT_SEEN_BY_CORE: &str = "node.cluster.x-k8s.io/uninitialized";

/// What there is in a cloud at a moment.
#[derive(Default)]
pub(crate) struct Seen {
    /// The names of the machines that have joined, by their system UUIDs.
    pub(crate) joined: BTreeMap<String, String>,
    /// The system UUIDs of all machines that there are.
    pub(crate) there: BTreeSet<String>,
}

/// Posts a Node for each machine that joins. Ends when dropped.
pub(crate) struct Kubelets(JoinHandle<()>);

impl Kubelets {
    /// Those of the fake cloud's machines.
    pub(crate) fn start(client: &Client, cloud: &FakeCloud) -> Self {
        let cloud = cloud.clone();
        Self::follow(client, move || {
            let mut joined = machines(&cloud);
            let there = joined.keys().cloned().collect();
            joined.retain(|uid, _| joins(&cloud, uid));
            Ok(Seen { joined, there })
        })
    }

    /// Those of the machines that `look` sees.
    pub(crate) fn follow(
        client: &Client,
        look: impl Fn() -> anyhow::Result<Seen> + Send + Sync + 'static,
    ) -> Self {
        let (client, look) = (client.clone(), Arc::new(look));
        Self(tokio::spawn(async move {
            // the names of those that have a Node, by UUID
            let mut known = BTreeMap::new();
            loop {
                let look = Arc::clone(&look);
                let seen = spawn_blocking(move || look()).await.map_err(anyhow::Error::from).flatten();
                let outcome = match seen {
                    Ok(seen) => keep_up(&client, seen, &mut known).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = outcome {
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

/// The UUIDs and the names of the fake cloud's machines.
pub(crate) fn machines(cloud: &FakeCloud) -> BTreeMap<String, String> {
    let lines = cloud.objects().into_iter();
    let machine = |line: String| {
        let (name, uid) = line.strip_prefix("instance/")?.split_once(" of ")?;
        Some((uid.to_owned(), name.to_owned()))
    };
    lines.filter_map(machine).collect()
}

async fn keep_up(client: &Client, seen: Seen, known: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    for (uuid, name) in seen.joined {
        let is_new = !known.contains_key(&uuid);
        if is_new {
            join(client, &name, &uuid).await?;
            known.insert(uuid, name);
        }
    }
    let gone: Vec<_> = known.keys().filter(|uuid| !seen.there.contains(*uuid)).cloned().collect();
    for uuid in gone {
        if let Some(name) = known.remove(&uuid) {
            // what kube-controller-manager does; the Node may be gone already
            drop(set_ready_unknown(client, &name).await);
        }
    }
    Ok(())
}

/// What a kubelet does that kubeadm has started.
async fn join(client: &Client, name: &str, system_uuid: &str) -> anyhow::Result<()> {
    let mut node = kubelet::node(name, system_uuid);
    // kubeadm passes the taints of its configuration to the kubelet
    let taint =
        Taint { key: NOT_SEEN_BY_CORE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
    // one with another version than its Machine would be replaced
    let info = node.status.get_or_insert_default().node_info.get_or_insert_default();
    VERSION.clone_into(&mut info.kubelet_version);
    kubelet::register(client, &node).await?;
    kubelet::heartbeat(client, name, true).await?;
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

//! The controller of `KubeadmConfig`s: it makes of each a Secret that the machine reads at its first boot.
//!
//! | Part | Module |
//! |---|---|
//! | the machines that have not joined: their tokens, and the connections to their clusters | `controller` |
//! | what a config waits for, and its status | `pass`, `status` |
//! | Secrets and token that the data have in them, or what they wait for | `material`, `secrets`, `problem` |
//! | certificates in Secrets, and new ones for a new control plane | `certificates`, `key_pairs` |
//! | the Secret with the data | `data_secret` |
//! | which machine of a new control plane is the first | `init_lock` |
//!
//! `kubeadm_bootstrap` makes the data. Source of the rules: `bootstrap/kubeadm/reconcilers/kubeadmconfig` of Cluster API 1.14.2.

mod certificates;
mod controller;
mod data_secret;
mod init_lock;
mod key_pairs;
mod material;
mod pass;
mod problem;
mod secrets;
mod status;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub use controller::KubeadmConfigController;

use cluster_api::names::conditions as types;

use crate::{
    bootstrap::Bootstrap,
    core::is_cluster_paused,
    engine::{
        control::{Controller, FailedPass, Source, Then, source},
        object::{Meta as _, key, split_key},
    },
    sources::{is_news, workload_source},
};

/// What configs read of their Machine: its Node, the name of its config, the Secret with its data, and whether it is being deleted.
type MachineDigest = (String, String, Option<String>, bool);

impl KubeadmConfigController {
    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        let own = source(self.bootstrap.configs.subscribe(), |keys| keys);
        let of_machines = {
            let (bootstrap, mut known) =
                (Arc::clone(&self.bootstrap), HashMap::<String, MachineDigest>::new());
            source(self.bootstrap.machines.subscribe(), move |keys| {
                let config = |of: &String| {
                    let machine = bootstrap.machines.get(of);
                    let digest = machine.as_ref().map(|machine| {
                        let status = machine.status.as_ref();
                        let node = status.map(|status| status.node_ref.name.clone()).unwrap_or_default();
                        let name = machine.spec.bootstrap.config_ref.name.clone();
                        (node, name, machine.spec.bootstrap.data_secret_name.clone(), machine.is_deleting())
                    });
                    let name_of = |digest: &MachineDigest| digest.1.clone();
                    // The config of a Machine that is gone is known from before.
                    let config = digest.as_ref().or(known.get(of)).map(name_of)?;
                    let (namespace, _) = split_key(of);
                    is_news(&mut known, of, digest).then(|| key(namespace, &config))
                };
                keys.iter().filter_map(config).collect()
            })
        };
        let of_clusters = {
            let (bootstrap, mut known) = (Arc::clone(&self.bootstrap), HashMap::new());
            source(self.bootstrap.clusters.subscribe(), move |keys| {
                let is_changed = |of: &&String| {
                    let digest = bootstrap.clusters.get(of).map(|cluster| {
                        let status = cluster.status.clone().unwrap_or_default();
                        let initialized = status
                            .conditions
                            .into_iter()
                            .find(|one| one.type_ == types::CONTROL_PLANE_INITIALIZED)
                            .map(|one| one.status);
                        let provisioned = status.initialization.infrastructure_provisioned;
                        let endpoint = cluster.spec.control_plane_endpoint.clone();
                        (is_cluster_paused(Some(&cluster)), initialized, provisioned, endpoint)
                    });
                    is_news(&mut known, of, digest)
                };
                let changed: Vec<_> = keys.iter().filter(is_changed).cloned().collect();
                configs_of(&bootstrap, |namespace, cluster| {
                    changed.iter().any(|of| split_key(of) == (namespace, cluster))
                })
            })
        };
        let of_workload = {
            let bootstrap = Arc::clone(&self.bootstrap);
            workload_source(&self.bootstrap.workload.clone(), move |changes| {
                use crate::workload::ClusterChange;
                let is_whole = |change: &ClusterChange| *change == ClusterChange::Everything;
                let changed: HashSet<_> = changes
                    .iter()
                    .filter(|(_, change)| is_whole(change))
                    .map(|(cluster, _)| (cluster.namespace.as_str(), cluster.name.as_str()))
                    .collect();
                configs_of(&bootstrap, |namespace, cluster| changed.contains(&(namespace, cluster)))
            })
        };
        vec![own, of_machines, of_clusters, of_workload]
    }
}

/// The configs of Machines of chosen Clusters.
fn configs_of(bootstrap: &Bootstrap, is_chosen: impl Fn(&str, &str) -> bool) -> HashSet<String> {
    let machines = bootstrap.machines.read();
    let chosen = machines.values().filter(|one| is_chosen(one.namespace_or_empty(), &one.spec.cluster_name));
    chosen
        .filter(|machine| !machine.spec.bootstrap.config_ref.name.is_empty())
        .map(|machine| key(machine.namespace_or_empty(), &machine.spec.bootstrap.config_ref.name))
        .collect()
}

impl Controller for KubeadmConfigController {
    const KIND: &'static str = "KubeadmConfig";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        Ok(pass::reconcile(self, key).await?)
    }
}

#[cfg(test)]
mod tests;

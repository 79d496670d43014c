//! The kubelets of guests. A guest runs its bootstrap data, whose `kubeadm` says on the console what the Node would tell.

use std::sync::Arc;

use kube::Client;

use super::hypervisor::Hypervisor;
use crate::cluster_api::kubelets::{Kubelets, Seen};

/// Posts a Node for each guest that joins. Ends when dropped.
pub(super) fn start(client: &Client, hypervisor: &Arc<Hypervisor>) -> Kubelets {
    let hypervisor = Arc::clone(hypervisor);
    Kubelets::follow(client, move || seen(&hypervisor))
}

fn seen(hypervisor: &Hypervisor) -> anyhow::Result<Seen> {
    let (consoles, domains) = (hypervisor.consoles()?, hypervisor.domains()?);
    let joined = consoles.values().filter_map(|printed| joins(printed));
    let joined = joined.filter(|(_, name)| domains.contains_key(name)).collect();
    let there = domains.into_values().map(|domain| domain.uuid).collect();
    Ok(Seen { joined, there })
}

/// The system UUID and the name of the Node that a guest has printed.
fn joins(printed: &str) -> Option<(String, String)> {
    let words = printed.lines().find_map(|line| line.trim().strip_prefix("GUEST joins as "))?;
    let (name, uuid) = words.split_once(" with system UUID ")?;
    // the rest of a line may not be there yet
    (uuid.len() == 36).then(|| (uuid.to_owned(), name.to_owned()))
}

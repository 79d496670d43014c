//! What holds back new Machines.

use std::collections::BTreeSet;

use cluster_api::{Cluster, MachineSet, names::annotations};
use lifecycle::{
    machine_set::{Check, ControlPlane, preflight as decide},
    version::KubernetesVersion,
};

use crate::{
    core::{Core, Referenced, defined},
    engine::{control::Failure, object::Meta as _},
};

/// Everything that holds new Machines back, for people. The control plane may be of any provider, so its events are followed: nothing has
/// to be asked again.
pub(super) async fn preflight(
    core: &Core,
    set: &MachineSet,
    cluster: &Cluster,
) -> Result<Vec<String>, Failure> {
    let Some(reference) = defined(&cluster.spec.control_plane_ref) else { return Ok(Vec::new()) };
    let skipped = set.annotation(annotations::SKIP_PREFLIGHT_CHECKS);
    let skipped: BTreeSet<_> = skipped.map(Check::skipped).unwrap_or_default();
    if skipped.len() == 3 {
        return Ok(Vec::new());
    }
    let found = core.referenced(cluster.namespace_or_empty(), reference).await;
    let kind = &reference.kind;
    let name = format!("{}/{}", cluster.namespace_or_empty(), reference.name);
    let control_plane = match &found {
        Referenced::There(_, control_plane) => control_plane,
        Referenced::Missing => return Ok(vec![format!("{kind} {name} does not exist")]),
        Referenced::Unreadable(why) => {
            return Err(Failure::Failed(format!("{kind} {name} cannot be read: {why}")));
        }
    };
    let Some(version) = control_plane.version.as_deref() else { return Ok(Vec::new()) };
    let invalid =
        |of: &str, error: &dyn std::fmt::Display| Failure::Failed(format!("version of {of}: {error}"));
    let version: KubernetesVersion =
        version.parse().map_err(|error| invalid(&format!("{kind} {name}"), &error))?;
    let reached = control_plane.reached.iter().filter_map(|version| version.parse().ok()).collect();
    let of_set = set.spec.template.spec.version.as_deref();
    let of_set = of_set.map(str::parse::<KubernetesVersion>).transpose();
    let of_set = of_set.map_err(|error| invalid("MachineSet", &error))?;
    let config = &set.spec.template.spec.bootstrap.config_ref;
    let is_kubeadm =
        config.kind == "KubeadmConfigTemplate" && config.api_group == "bootstrap.cluster.x-k8s.io";
    let control_plane = ControlPlane { kind, name: &name, version, reached };
    let holds = decide(&control_plane, of_set.as_ref(), is_kubeadm, &skipped);
    Ok(holds.iter().map(ToString::to_string).collect())
}

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

/// What holds new Machines back.
#[derive(Debug, Default)]
pub(super) struct Preflight {
    /// Everything that does, for people. The control plane may be of any provider, so its events are followed.
    pub(super) holds: Vec<String>,
    /// Set if no event says when one of them is over.
    pub(super) failure: Option<Failure>,
}

impl Preflight {
    fn held(why: String) -> Self {
        Self { holds: vec![why], failure: None }
    }
}

/// The checks of the control plane and of the version of the set.
pub(super) async fn preflight(core: &Core, set: &MachineSet, cluster: &Cluster) -> Preflight {
    let Some(reference) = defined(&cluster.spec.control_plane_ref) else { return Preflight::default() };
    let skipped = skipped(core, set).await;
    if skipped.len() == 3 {
        return Preflight::default();
    }
    let found = core.referenced(cluster.namespace_or_empty(), reference).await;
    let kind = &reference.kind;
    let name = format!("{}/{}", cluster.namespace_or_empty(), reference.name);
    let control_plane = match &found {
        Referenced::There(_, control_plane) => control_plane,
        Referenced::Missing => return Preflight::held(format!("{kind} {name} does not exist")),
        Referenced::Unreadable(why) => {
            let why = format!("{kind} {name} cannot be read: {why}");
            return Preflight { failure: Some(Failure::Failed(why.clone())), ..Preflight::held(why) };
        }
    };
    let Some(version) = control_plane.version.as_deref() else { return Preflight::default() };
    let version: KubernetesVersion = match version.parse() {
        Ok(version) => version,
        Err(error) => return Preflight::held(format!("version of {kind} {name}: {error}")),
    };
    let reached = control_plane.reached.iter().filter_map(|version| version.parse().ok()).collect();
    let of_set = set.spec.template.spec.version.as_deref();
    let of_set = match of_set.map(str::parse::<KubernetesVersion>).transpose() {
        Ok(of_set) => of_set,
        Err(error) => return Preflight::held(format!("spec.template.spec.version of MachineSet: {error}")),
    };
    let config = &set.spec.template.spec.bootstrap.config_ref;
    let is_kubeadm =
        config.kind == "KubeadmConfigTemplate" && config.api_group == "bootstrap.cluster.x-k8s.io";
    let control_plane = ControlPlane { kind, name: &name, version, reached };
    let holds = decide(&control_plane, of_set.as_ref(), is_kubeadm, &skipped);
    Preflight { holds: holds.iter().map(ToString::to_string).collect(), failure: None }
}

/// The checks that the set or, where it names none, its template of bootstrap configs skips: such a provider may know that its machines
/// join control planes of other versions.
async fn skipped(core: &Core, set: &MachineSet) -> BTreeSet<Check> {
    if let Some(own) = set.annotation(annotations::SKIP_PREFLIGHT_CHECKS).filter(|own| !own.is_empty()) {
        return Check::skipped(own);
    }
    let Some(config) = defined(&set.spec.template.spec.bootstrap.config_ref) else { return BTreeSet::new() };
    // One that cannot be read holds Machines back by itself.
    let template = core.referenced(set.namespace_or_empty(), config).await;
    let of_template = template.object().and_then(|one| one.annotation(annotations::SKIP_PREFLIGHT_CHECKS));
    of_template.map(Check::skipped).unwrap_or_default()
}

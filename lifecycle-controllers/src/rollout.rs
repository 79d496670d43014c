//! `MachineDeployment`s as the planner of `lifecycle` sees them.

use cluster_api::{
    ContractVersionedObjectReference, MachineDeployment, MachineDeploymentRolloutStrategyType, MachineSpec,
    defaults::version_with_v,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lifecycle::rollout::{Bootstrap, Bound, Deployment, Reference, Strategy, Template};

use crate::core::defined;

/// A number or a percentage. `None`: the text is neither, which the definition refuses.
pub(crate) fn bound(of: &IntOrString) -> Option<Bound> {
    match of {
        IntOrString::Int(count) => Some(Bound::Count((*count).into())),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Bound::Percent),
            None => text.parse().ok().map(Bound::Count),
        },
    }
}

/// What the planner reads. `None`: `spec.replicas` is not set, so nothing is planned.
pub(crate) fn deployment(of: &MachineDeployment) -> Option<Deployment> {
    let strategy = &of.spec.rollout.strategy;
    let bounds = &strategy.rolling_update;
    let or = |of: &Option<IntOrString>, default| of.as_ref().and_then(bound).unwrap_or(Bound::Count(default));
    Some(Deployment {
        replicas: of.spec.replicas?.into(),
        strategy: match strategy.type_ {
            MachineDeploymentRolloutStrategyType::RollingUpdate => Strategy::RollingUpdate {
                max_surge: or(&bounds.max_surge, 1),
                max_unavailable: or(&bounds.max_unavailable, 0),
            },
            MachineDeploymentRolloutStrategyType::OnDelete => Strategy::OnDelete,
        },
        in_place_updates: false,
    })
}

/// What of a template replaces Machines.
pub(crate) fn template_of(spec: &MachineSpec) -> Template {
    let reference = |of: &ContractVersionedObjectReference| Reference {
        group: of.api_group.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
    };
    Template {
        // Without its `v`, as a user wrote it, it is the same version.
        version: version_with_v(spec.version.as_deref().unwrap_or_default()).into_owned(),
        bootstrap: match defined(&spec.bootstrap.config_ref) {
            Some(config) => Bootstrap::Config(reference(config)),
            None => Bootstrap::DataSecret(spec.bootstrap.data_secret_name.clone()),
        },
        infrastructure: reference(&spec.infrastructure_ref),
        failure_domain: spec.failure_domain.clone().unwrap_or_default(),
    }
}

//! `MachineDrainRule`s.

use std::collections::BTreeMap;

use cluster_api::{MachineDrainRule, MachineDrainRuleDrainBehavior};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use lifecycle::drain::Behavior;

use super::{error::DrainError, pods::PodOnNode};

type Labels = BTreeMap<String, String>;

/// The `MachineDrainRule`s that apply to one Machine, by name.
#[derive(Clone, Debug, Default)]
pub struct DrainRules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    behavior: Behavior,
    /// For Pods and for their Namespaces. Without any the rule applies to all Pods.
    pods: Vec<(Selector, Selector)>,
}

impl DrainRules {
    /// Those of all rules of the Machine's namespace that apply to a Machine with the labels `machine` in a Cluster with the
    /// labels `cluster`.
    ///
    /// # Errors
    /// A selector of any rule that is none, as upstream: the rule may have been meant for this Machine.
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a MachineDrainRule>,
        machine: &Labels,
        cluster: &Labels,
    ) -> Result<Self, DrainError> {
        let mut applying = Vec::new();
        for rule in rules {
            let name = rule.metadata.name.clone().unwrap_or_default();
            let read = |selector: &Option<LabelSelector>, field: String| {
                let selector = Selector::try_from(selector.clone().unwrap_or_default());
                selector.map_err(|error| DrainError(format!("MachineDrainRule {name}: {field}: {error}")))
            };
            let mut applies = rule.spec.machines.is_empty();
            for (at, machines) in rule.spec.machines.iter().enumerate() {
                let of_machine = read(&machines.selector, format!("spec.machines[{at}].selector"))?;
                let of_cluster =
                    read(&machines.cluster_selector, format!("spec.machines[{at}].clusterSelector"))?;
                applies |= of_machine.matches(machine) && of_cluster.matches(cluster);
            }
            let mut pods = Vec::with_capacity(rule.spec.pods.len());
            for (at, selectors) in rule.spec.pods.iter().enumerate() {
                let of_pod = read(&selectors.selector, format!("spec.pods[{at}].selector"))?;
                let of_namespace =
                    read(&selectors.namespace_selector, format!("spec.pods[{at}].namespaceSelector"))?;
                pods.push((of_pod, of_namespace));
            }
            let behavior = match rule.spec.drain.behavior {
                MachineDrainRuleDrainBehavior::Drain => {
                    Behavior::Drain { order: rule.spec.drain.order.unwrap_or_default() }
                }
                MachineDrainRuleDrainBehavior::Skip => Behavior::Skip,
                MachineDrainRuleDrainBehavior::WaitCompleted => Behavior::WaitCompleted,
            };
            if applies {
                applying.push(Rule { name, behavior, pods });
            }
        }
        applying.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self(applying))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether labels of Namespaces decide.
    pub(super) fn need_namespaces(&self) -> bool {
        self.0.iter().flat_map(|rule| &rule.pods).any(|(_, of_namespace)| !of_namespace.selects_all())
    }

    /// What the first rule says that selects a Pod. `namespaces` are the labels of all Namespaces, if any is needed.
    pub(super) fn behavior(
        &self,
        pod: &PodOnNode,
        namespaces: &BTreeMap<String, Labels>,
    ) -> Result<Option<Behavior>, DrainError> {
        let none = Labels::new();
        let namespace = match namespaces.get(&pod.namespace) {
            Some(labels) => labels,
            None if self.need_namespaces() => {
                return Err(DrainError(format!("the Namespace of Pod {} does not exist", pod.judged.name)));
            }
            None => &none,
        };
        let selects = |(of_pod, of_namespace): &(Selector, Selector)| {
            of_pod.matches(&pod.labels) && of_namespace.matches(namespace)
        };
        let first = self.0.iter().find(|rule| rule.pods.is_empty() || rule.pods.iter().any(selects));
        Ok(first.map(|rule| rule.behavior))
    }
}

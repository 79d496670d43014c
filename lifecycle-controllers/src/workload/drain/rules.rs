//! MachineDrainRules.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use lifecycle::drain::Behavior;

use super::{DrainError, pods::PodOnNode};

/// A `MachineDrainRule` that applies to the Machine.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainRule {
    /// `metadata.name`. The first rule by name that selects a Pod decides.
    pub name: String,
    /// `spec.pods`. Without any the rule applies to all Pods.
    pub pods: Vec<PodSelector>,
    /// `spec.drain`
    pub behavior: Behavior,
}

/// One entry of `spec.pods`: both selectors have to match, and an empty one does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSelector {
    /// `selector`, of Pods.
    pub selector: LabelSelector,
    /// `namespaceSelector`, of their Namespaces.
    pub namespace_selector: LabelSelector,
}

/// Rules whose selectors were read, by name.
pub(super) struct Rules<'a>(Vec<(&'a DrainRule, Vec<(Selector, Selector)>)>);

impl<'a> Rules<'a> {
    pub(super) fn new(rules: &'a [DrainRule]) -> Result<Self, DrainError> {
        let mut read = Vec::with_capacity(rules.len());
        for rule in rules {
            let mut selectors = Vec::with_capacity(rule.pods.len());
            for (at, pods) in rule.pods.iter().enumerate() {
                let selector = |selector: &LabelSelector, field: &str| {
                    Selector::try_from(selector.clone()).map_err(|error| {
                        DrainError(format!(
                            "MachineDrainRule {}: spec.pods[{at}].{field}: {error}",
                            rule.name
                        ))
                    })
                };
                selectors.push((
                    selector(&pods.selector, "selector")?,
                    selector(&pods.namespace_selector, "namespaceSelector")?,
                ));
            }
            read.push((rule, selectors));
        }
        read.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Ok(Self(read))
    }

    /// Whether labels of Namespaces decide.
    pub(super) fn need_namespaces(&self) -> bool {
        self.0
            .iter()
            .flat_map(|(_, selectors)| selectors)
            .any(|(_, of_namespace)| !of_namespace.selects_all())
    }

    /// What the first rule says that selects a Pod. `namespaces` are the labels of all Namespaces, if any is needed.
    pub(super) fn of(
        &self,
        pod: &PodOnNode,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Option<Behavior>, DrainError> {
        let none = BTreeMap::new();
        let namespace = namespaces.get(&pod.namespace);
        if namespace.is_none() && self.need_namespaces() {
            return Err(DrainError(format!("the Namespace of Pod {} does not exist", pod.judged.name)));
        }
        let namespace = namespace.unwrap_or(&none);
        let applies = |selectors: &[(Selector, Selector)]| {
            selectors.is_empty()
                || selectors.iter().any(|(of_pod, of_namespace)| {
                    of_pod.matches(&pod.labels) && of_namespace.matches(namespace)
                })
        };
        Ok(self.0.iter().find(|(_, selectors)| applies(selectors)).map(|(rule, _)| rule.behavior))
    }
}

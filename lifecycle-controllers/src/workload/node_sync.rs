//! What the Node of a Machine has to say of it: labels, annotations and taints.
//!
//! Source of the rules: `core/reconcilers/machine/machine_controller_noderef.go`, `util/labels` and `util/annotations` of
//! Cluster API 1.14.2. What others wrote to the Node stays. What came from the Machine is listed in annotations of the Node, so
//! that it can be removed once the Machine has it no more.

use std::collections::{BTreeMap, BTreeSet};

use cluster_api::{
    MachineTaint, MachineTaintPropagation, TaintEffect,
    names::{
        annotations::{
            ANNOTATIONS_FROM_MACHINE, LABELS_FROM_MACHINE, NODE_CLUSTER_NAME, NODE_CLUSTER_NAMESPACE,
            NODE_MACHINE, NODE_OWNER_KIND, NODE_OWNER_NAME, TAINTS_FROM_MACHINE,
        },
        labels::{INTERRUPTIBLE, MANAGED_NODE_DOMAIN, NODE_RESTRICTION_DOMAIN, NODE_ROLE_PREFIX},
        taints,
    },
};
use serde_json::{Map, Value, json};

use super::{Node, Taint};

/// Annotations that every Node of a Machine has. They are not listed in [`ANNOTATIONS_FROM_MACHINE`].
const COMMON: [&str; 5] =
    [NODE_CLUSTER_NAME, NODE_CLUSTER_NAMESPACE, NODE_MACHINE, NODE_OWNER_KIND, NODE_OWNER_NAME];

/// What is read of a Machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineFacts<'a> {
    /// `spec.clusterName`
    pub cluster: &'a str,
    /// `metadata.namespace`
    pub namespace: &'a str,
    /// `metadata.name`
    pub name: &'a str,
    /// Kind and name of the owner that is its controller.
    pub owner: Option<(&'a str, &'a str)>,
    /// `metadata.labels`
    pub labels: &'a BTreeMap<String, String>,
    /// `metadata.annotations`
    pub annotations: &'a BTreeMap<String, String>,
    /// `spec.taints`. `None`: taints of Machines are not propagated (upstream's gate `MachineTaintPropagation` is off).
    pub taints: Option<&'a [MachineTaint]>,
    /// `status.interruptible` of the infrastructure machine.
    pub is_interruptible: bool,
    /// [`is_outdated`] of its `MachineSet` and `MachineDeployment`; false without one of them.
    pub is_outdated: bool,
}

/// More keys that are synchronised: upstream's `--additional-sync-machine-labels` and `--additional-sync-machine-annotations`.
#[derive(Clone, Copy)]
pub struct AdditionalKeys<'a> {
    /// Whether a label is synchronised.
    pub labels: &'a (dyn Fn(&str) -> bool + Send + Sync),
    /// Whether an annotation is synchronised.
    pub annotations: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

impl AdditionalKeys<'_> {
    /// None.
    pub const NONE: AdditionalKeys<'static> = AdditionalKeys { labels: &|_| false, annotations: &|_| false };
}

impl std::fmt::Debug for AdditionalKeys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdditionalKeys").finish_non_exhaustive()
    }
}

/// What has to change in a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// Labels to set, or to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or to remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// The whole list of taints, if it changes.
    pub taints: Option<Vec<Taint>>,
}

impl NodePatch {
    /// As a merge patch of this Node. The UID is a condition. A list is replaced whole, so with taints the version is one too.
    #[must_use]
    pub fn body(&self, node: &Node) -> Value {
        let mut metadata = Map::from_iter([("uid".to_owned(), json!(node.uid))]);
        for (field, values) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !values.is_empty() {
                metadata.insert(field.to_owned(), json!(values));
            }
        }
        let mut body = Map::new();
        if let Some(taints) = &self.taints {
            metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
            body.insert("spec".to_owned(), json!({"taints": taints}));
        }
        body.insert("metadata".to_owned(), Value::Object(metadata));
        Value::Object(body)
    }
}

/// Whether a Machine belongs to a `MachineSet` of an older revision than its `MachineDeployment` has. Both are given by their
/// annotation `machinedeployment.clusters.x-k8s.io/revision`, which counts as 0 where it is missing. One that is no number is of
/// no revision, so nothing is outdated.
#[must_use]
pub fn is_outdated(machine_set: Option<&str>, machine_deployment: Option<&str>) -> bool {
    let revision = |text: Option<&str>| text.map_or(Some(0), |text| text.parse::<i64>().ok());
    revision(machine_set).zip(revision(machine_deployment)).is_some_and(|(own, newest)| own < newest)
}

/// What has to change in the Node of a Machine. `None`: nothing.
#[must_use]
pub fn sync(node: &Node, machine: &MachineFacts<'_>, additional: &AdditionalKeys<'_>) -> Option<NodePatch> {
    let labels = labels(machine, additional);
    let annotations = annotations(machine, additional);
    let mut wanted_labels = node.labels.clone();
    for key in listed(node, LABELS_FROM_MACHINE).filter(|key| !labels.contains_key(*key)) {
        wanted_labels.remove(key);
    }
    let mut wanted_annotations = node.annotations.clone();
    let gone =
        listed(node, ANNOTATIONS_FROM_MACHINE).chain(COMMON).filter(|key| !annotations.contains_key(*key));
    for key in gone.filter(|key| *key != ANNOTATIONS_FROM_MACHINE) {
        wanted_annotations.remove(key);
    }
    let own = annotations.keys().filter(|key| !COMMON.contains(&key.as_str()));
    let from_machine = [
        (LABELS_FROM_MACHINE.to_owned(), joined(labels.keys())),
        (ANNOTATIONS_FROM_MACHINE.to_owned(), joined(own)),
    ];
    wanted_labels.extend(labels);
    wanted_annotations.extend(annotations);
    wanted_annotations.extend(from_machine);

    let mut taints = node.taints.clone();
    taints.retain(|taint| !taint.matches(&plain(taints::NODE_UNINITIALIZED, "NoSchedule")));
    if let Some(of_machine) = machine.taints {
        let owned = propagate(&mut taints, of_machine, wanted_annotations.get(TAINTS_FROM_MACHINE));
        wanted_annotations.insert(TAINTS_FROM_MACHINE.to_owned(), owned);
    }
    let outdated = plain(taints::NODE_OUTDATED_REVISION, "PreferNoSchedule");
    match taints.iter().position(|taint| taint.matches(&outdated)) {
        None if machine.is_outdated => taints.push(outdated),
        Some(at) if !machine.is_outdated => drop(taints.remove(at)),
        _ => {}
    }
    let patch = NodePatch {
        labels: difference(&node.labels, wanted_labels),
        annotations: difference(&node.annotations, wanted_annotations),
        taints: (taints != node.taints).then_some(taints),
    };
    (patch != NodePatch::default()).then_some(patch)
}

fn labels(machine: &MachineFacts<'_>, additional: &AdditionalKeys<'_>) -> BTreeMap<String, String> {
    let is_managed = |key: &str| {
        let domain = domain(key);
        domain == NODE_ROLE_PREFIX
            || is_in(domain, NODE_RESTRICTION_DOMAIN)
            || is_in(domain, MANAGED_NODE_DOMAIN)
    };
    let mut labels = managed(machine.labels, |key| is_managed(key) || (additional.labels)(key));
    if machine.is_interruptible {
        labels.insert(INTERRUPTIBLE.to_owned(), String::new());
    }
    labels
}

fn annotations(machine: &MachineFacts<'_>, additional: &AdditionalKeys<'_>) -> BTreeMap<String, String> {
    let is_managed = |key: &str| is_in(domain(key), MANAGED_NODE_DOMAIN) || (additional.annotations)(key);
    let mut annotations: BTreeMap<String, String> = [
        (NODE_CLUSTER_NAME, machine.cluster),
        (NODE_CLUSTER_NAMESPACE, machine.namespace),
        (NODE_MACHINE, machine.name),
    ]
    .into_iter()
    .chain(
        machine.owner.into_iter().flat_map(|(kind, name)| [(NODE_OWNER_KIND, kind), (NODE_OWNER_NAME, name)]),
    )
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    annotations.extend(managed(machine.annotations, is_managed));
    annotations
}

fn managed(all: &BTreeMap<String, String>, is_managed: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    all.iter().filter(|(key, _)| is_managed(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The part of a key before the slash, or the key.
fn domain(key: &str) -> &str {
    key.split_once('/').map_or(key, |(domain, _)| domain)
}

fn is_in(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn listed<'a>(node: &'a Node, annotation: &str) -> impl Iterator<Item = &'a str> {
    node.annotations.get(annotation).map_or("", String::as_str).split(',').filter(|key| !key.is_empty())
}

fn joined<'a>(keys: impl Iterator<Item = &'a String>) -> String {
    keys.map(String::as_str).collect::<Vec<_>>().join(",")
}

fn plain(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

fn effect_of(taint: &MachineTaint) -> &'static str {
    match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// Puts the Machine's taints among those of the Node. `listed` is the list of before; without one the Node is new. Gives the list
/// of now. Entries of the list that are no taints are passed over; upstream gives up there.
fn propagate(taints: &mut Vec<Taint>, of_machine: &[MachineTaint], listed: Option<&String>) -> String {
    let shown = |taint: &MachineTaint| format!("{}:{}", taint.key, effect_of(taint));
    let with = |propagation: MachineTaintPropagation| {
        of_machine
            .iter()
            .filter(move |taint| taint.propagation == propagation)
            .map(shown)
            .collect::<BTreeSet<_>>()
    };
    let (always, once) =
        (with(MachineTaintPropagation::Always), with(MachineTaintPropagation::OnInitialization));
    for taint in of_machine {
        if taint.propagation == MachineTaintPropagation::OnInitialization && listed.is_some() {
            continue;
        }
        let MachineTaint { key, value, .. } = taint.clone();
        let taint = Taint { value: value.unwrap_or_default(), ..plain(&key, effect_of(taint)) };
        match taints.iter_mut().find(|one| one.matches(&taint)) {
            Some(one) if one.value != taint.value => *one = taint,
            Some(_) => {}
            None => taints.push(taint),
        }
    }
    let before = listed.map_or("", String::as_str).split(',');
    let gone = before.filter(|taint| !always.contains(*taint) && !once.contains(*taint));
    for (key, effect) in gone.filter_map(|taint| taint.split_once(':')) {
        taints.retain(|taint| !taint.matches(&plain(key, effect)));
    }
    always.into_iter().collect::<Vec<_>>().join(",")
}

fn difference(
    before: &BTreeMap<String, String>,
    after: BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    let mut changes: BTreeMap<String, Option<String>> = gone.collect();
    changes.extend(
        after
            .into_iter()
            .filter(|(key, value)| before.get(key) != Some(value))
            .map(|(key, value)| (key, Some(value))),
    );
    changes
}

#[cfg(test)]
mod tests;

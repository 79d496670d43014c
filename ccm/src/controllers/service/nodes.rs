//! Which Nodes are back ends of load balancers.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
};

use cloudprovider::parse_bool;
use controller_kit::nodes::{Node, NodeStore};

/// The label of Nodes that are no back ends.
pub(crate) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The taint of Nodes that the cluster autoscaler is about to delete, with any value and effect.
pub(crate) const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Why a Node is no back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// It has a deletion timestamp.
    Deleting,
    /// It has the label.
    Excluded,
    /// It has the taint.
    ToBeDeleted,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("it is being deleted"),
            Self::Excluded => write!(f, "label {EXCLUDE_LABEL}"),
            Self::ToBeDeleted => write!(f, "taint {TO_BE_DELETED_TAINT}"),
        }
    }
}

/// Why a Node is no back end; `None` for a back end. Whether it is Ready, schedulable or known to the cloud does not matter:
/// the load balancer's own health checks decide where traffic goes (KEP-3458).
pub(crate) fn left_out(node: &Node) -> Option<LeftOut> {
    let label = node.identity.labels.get(EXCLUDE_LABEL);
    if node.deleting {
        Some(LeftOut::Deleting)
    } else if label.is_some_and(|value| parse_bool(value) != Ok(false)) {
        Some(LeftOut::Excluded)
    } else if node.has_taint(TO_BE_DELETED_TAINT) {
        Some(LeftOut::ToBeDeleted)
    } else {
        None
    }
}

/// Names of back ends, each with its provider ID, sorted by name. Two sets of back ends are the same if these are.
pub(super) type BackendKeys = Vec<(String, Option<String>)>;

/// The back ends at one time. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Backends {
    /// What makes up the set.
    pub(super) keys: Arc<BackendKeys>,
    /// The Nodes, sorted by name.
    pub(super) nodes: Arc<[Arc<Node>]>,
}

/// Whether two sets of one [`BackendSet`] are the same. It has no two that are equal, so their names are not compared: there
/// may be thousands, and each Service asks.
pub(super) fn same_backends(a: &Arc<BackendKeys>, b: &Arc<BackendKeys>) -> bool {
    Arc::ptr_eq(a, b)
}

/// The back ends, kept up to date as Nodes change.
#[derive(Debug, Default)]
pub(super) struct BackendSet {
    members: BTreeMap<String, Arc<Node>>,
    /// Made when it is asked for, and used until a Node changes.
    current: Option<Backends>,
    keys: Arc<BackendKeys>,
    /// The sets that load balancers were told of, and the present one. A set that comes again is taken from here.
    known: HashSet<Arc<BackendKeys>>,
}

impl BackendSet {
    pub(super) fn of(nodes: &NodeStore) -> Self {
        let backends = nodes.all().into_iter().filter(|node| left_out(node).is_none());
        let members = backends.map(|node| (node.name().to_owned(), node)).collect();
        let mut set = Self { members, ..Self::default() };
        set.renew();
        set
    }

    /// Takes note of how a Node is now, or that it is gone. Returns whether the set is another one now.
    pub(super) fn note(&mut self, name: &str, node: Option<Arc<Node>>) -> bool {
        let node = node.filter(|node| left_out(node).is_none());
        let before = self.members.get(name);
        let is_same = match (before, &node) {
            (Some(before), Some(node)) => before.identity.provider_id == node.identity.provider_id,
            (None, None) => return false,
            _ => false,
        };
        if before.zip(node.as_ref()).is_none_or(|(before, node)| before.identity != node.identity) {
            self.current = None;
        }
        match node {
            Some(node) => self.members.insert(name.to_owned(), node),
            None => self.members.remove(name),
        };
        !is_same
    }

    /// Makes the set that [`keys`](Self::keys) gives, after Nodes have changed it.
    pub(super) fn renew(&mut self) {
        let keys = keys(&self.members);
        self.keys = self.known.get(&keys).cloned().unwrap_or_else(|| Arc::new(keys));
        self.known.insert(Arc::clone(&self.keys));
        // No load balancer was told of the others.
        self.known.retain(|known| Arc::strong_count(known) > 1);
    }

    pub(super) fn keys(&self) -> &Arc<BackendKeys> {
        &self.keys
    }

    pub(super) fn current(&mut self) -> Backends {
        let (members, keys) = (&self.members, &self.keys);
        let make = || Backends { keys: Arc::clone(keys), nodes: members.values().cloned().collect() };
        self.current.get_or_insert_with(make).clone()
    }
}

fn keys(members: &BTreeMap<String, Arc<Node>>) -> BackendKeys {
    members.iter().map(|(name, node)| (name.clone(), node.identity.provider_id.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(metadata: Value, spec: Value) -> Arc<Node> {
        Arc::new(Node::from_json(json!({
            "metadata": metadata, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        })))
    }

    #[test]
    fn the_stable_set() {
        let labelled = |value: &str| node(json!({"name": "n", "labels": {EXCLUDE_LABEL: value}}), json!({}));
        for value in ["", "1", "t", "T", "true", "TRUE", "True", "yes", "no", "off", "fAlse"] {
            assert_eq!(left_out(&labelled(value)), Some(LeftOut::Excluded), "{value:?}");
        }
        for value in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(left_out(&labelled(value)), None, "{value:?}");
        }
        let tainted = |key: &str, effect: &str| {
            node(json!({"name": "n"}), json!({"taints": [{"key": key, "effect": effect}]}))
        };
        for effect in ["NoSchedule", "NoExecute", "PreferNoSchedule"] {
            assert_eq!(left_out(&tainted(TO_BE_DELETED_TAINT, effect)), Some(LeftOut::ToBeDeleted));
            assert_eq!(left_out(&tainted("node.kubernetes.io/not-ready", effect)), None);
            assert_eq!(left_out(&tainted("node.cloudprovider.kubernetes.io/uninitialized", effect)), None);
        }
        let deleting = node(json!({"name": "n", "deletionTimestamp": "2026-01-02T03:04:05Z"}), json!({}));
        assert_eq!(left_out(&deleting), Some(LeftOut::Deleting));
        // Neither Ready nor schedulable nor known to the cloud, and of the control plane.
        let control_plane = json!({"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}});
        assert_eq!(left_out(&node(control_plane, json!({"unschedulable": true}))), None);
    }

    #[test]
    fn the_set_changes_with_what_matters_only() {
        let store = NodeStore::new();
        store.replace(vec![Node::from_json(json!({"metadata": {"name": "a", "uid": "1"}}))]);
        let mut set = BackendSet::of(&store);
        let (first, shown) = (set.keys().clone(), set.current());
        let note = |set: &mut BackendSet, metadata: Value, spec: Value| {
            let node = node(metadata, spec);
            let changed = set.note(node.name(), Some(node.clone()));
            set.renew();
            changed
        };
        assert!(!note(&mut set, json!({"name": "a", "uid": "1"}), json!({"taints": [{"key": "x"}]})));
        assert!(Arc::ptr_eq(&set.current().nodes, &shown.nodes), "nothing that a provider sees has changed");
        assert!(!note(&mut set, json!({"name": "a", "uid": "1", "labels": {"l": "1"}}), json!({})));
        assert!(Arc::ptr_eq(&first, set.keys()) && set.current().nodes[0].identity.labels.len() == 1);
        assert!(note(&mut set, json!({"name": "a", "uid": "1"}), json!({"providerID": "x://1"})));
        assert!(!same_backends(&first, set.keys()));
        assert!(note(&mut set, json!({"name": "b"}), json!({})));
        assert!(note(&mut set, json!({"name": "b", "labels": {EXCLUDE_LABEL: "true"}}), json!({})));
        assert!(!note(&mut set, json!({"name": "b", "labels": {EXCLUDE_LABEL: "1"}}), json!({})));
        assert!(!set.note("b", None) && !set.note("nobody", None));
        assert!(note(&mut set, json!({"name": "a"}), json!({"taints": [{"key": TO_BE_DELETED_TAINT}]})));
        assert!(set.keys().is_empty() && set.current().nodes.is_empty());
        assert!(note(&mut set, json!({"name": "a"}), json!({})));
        assert!(same_backends(&first, set.keys()), "as it was at first");
    }

    #[test]
    fn a_set_that_comes_again_is_the_one_of_before() {
        let mut set = BackendSet::of(&NodeStore::new());
        let node = |name: &str| node(json!({"name": name}), json!({}));
        let mut told = Vec::new();
        for _ in 0..3 {
            for is_there in [true, false] {
                set.note("flaps", is_there.then(|| node("flaps")));
                set.renew();
                told.push(Arc::clone(set.keys()));
            }
        }
        assert_eq!(set.known.len(), 2);
        assert!(same_backends(&told[0], &told[2]) && same_backends(&told[1], &told[5]));
        assert!(!same_backends(&told[0], &told[1]));
        told.clear();
        set.note("other", Some(node("other")));
        set.renew();
        assert_eq!(set.known.len(), 1, "nobody was told of another one");
    }
}

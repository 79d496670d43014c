//! The Nodes of one workload cluster.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use controller_kit::{cache::is_older, writes::WrittenVersion};
use parking_lot::RwLock;

use super::Node;

/// So many Nodes a cluster may have: twice what Kubernetes supports.
const MOST_NODES: usize = 10_000;
/// What is kept of all Nodes together, in bytes. A usual Node takes 2 to 3 kB.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The Nodes of one workload cluster, as its watch shows them. Clones share them. While the cluster is away they stay as they
/// were last.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<RwLock<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_name: HashMap<String, Arc<Node>>,
    /// Names by provider ID. Sets are never empty.
    by_provider_id: HashMap<String, BTreeSet<String>>,
    bytes: usize,
    /// The versions that our own writes made, by name, until the watch shows them.
    written: HashMap<String, WrittenVersion>,
}

/// Several Nodes have one provider ID, so none of them can be said to be a Machine's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Nodes {} have the same spec.providerID {provider_id}", .names.join(", "))]
pub struct DuplicateProviderId {
    /// The provider ID.
    pub provider_id: String,
    /// The names of the first three of these Nodes.
    pub names: Vec<String>,
}

/// There are more Nodes than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster has more than {MOST_NODES} Nodes, or more than {} MiB of what is read of them", MOST_BYTES >> 20)]
pub(super) struct TooMany;

/// What became of a Node: what it was before and what it is now.
pub(super) type Change = (Option<Arc<Node>>, Option<Arc<Node>>);

impl Nodes {
    /// The Node of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.0.read().by_name.get(name).cloned()
    }

    /// The Node with exactly this `spec.providerID`.
    ///
    /// # Errors
    /// Several have it.
    pub fn by_provider_id(&self, provider_id: &str) -> Result<Option<Arc<Node>>, DuplicateProviderId> {
        let kept = self.0.read();
        let Some(names) = kept.by_provider_id.get(provider_id) else { return Ok(None) };
        if names.len() > 1 {
            let names = names.iter().take(3).cloned().collect();
            return Err(DuplicateProviderId { provider_id: provider_id.to_owned(), names });
        }
        Ok(names.first().and_then(|name| kept.by_name.get(name)).cloned())
    }

    /// All Nodes, in no particular order.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.0.read().by_name.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.read().by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this Node is older than our last write of it. The watch shows that soon, which is a change.
    pub(super) fn is_late(&self, node: &Node) -> bool {
        self.0.read().is_awaited(node)
    }

    /// Notes a write of our own.
    pub(super) fn wrote(&self, name: &str, version: WrittenVersion) {
        let mut kept = self.0.write();
        let is_awaited =
            kept.by_name.get(name).is_some_and(|shown| is_older(&shown.resource_version, &version));
        if is_awaited {
            kept.written.insert(name.to_owned(), version);
        }
    }

    /// Stores a Node. Gives what changed, which is nothing if its version alone is new.
    pub(super) fn apply(&self, node: Node) -> Result<Option<Change>, TooMany> {
        let mut kept = self.0.write();
        let before = kept.by_name.get(&node.name).cloned();
        let bytes = kept.bytes - before.as_ref().map_or(0, |node| node.size()) + node.size();
        let count = kept.by_name.len() + usize::from(before.is_none());
        if bytes > MOST_BYTES || count > MOST_NODES {
            return Err(TooMany);
        }
        let node = Arc::new(node);
        kept.set(before.as_ref(), Some(&node));
        let is_same = before.as_ref().is_some_and(|before| before.same_content(&node));
        Ok((!is_same).then_some((before, Some(node))))
    }

    /// Removes a Node.
    pub(super) fn remove(&self, name: &str) -> Option<Change> {
        let mut kept = self.0.write();
        let before = kept.by_name.get(name).cloned()?;
        kept.set(Some(&before), None);
        Some((Some(before), None))
    }

    /// Replaces all by those of a complete list. Gives what changed.
    pub(super) fn replace(&self, list: Listing) -> Vec<Change> {
        let mut kept = self.0.write();
        // After a restore of its database, the versions of a cluster begin anew.
        kept.written.clear();
        let mut changes = Vec::new();
        let gone: Vec<Arc<Node>> =
            kept.by_name.values().filter(|node| !list.nodes.contains_key(&node.name)).cloned().collect();
        for node in gone {
            kept.set(Some(&node), None);
            changes.push((Some(node), None));
        }
        for (name, node) in list.nodes {
            let before = kept.by_name.get(&name).cloned();
            let node = Arc::new(node);
            kept.set(before.as_ref(), Some(&node));
            if before.as_ref().is_none_or(|before| !before.same_content(&node)) {
                changes.push((before, Some(node)));
            }
        }
        changes
    }
}

impl Kept {
    /// Whether a Node is older than our last write of it.
    fn is_awaited(&self, node: &Node) -> bool {
        self.written.get(&node.name).is_some_and(|written| is_older(&node.resource_version, written))
    }

    fn set(&mut self, before: Option<&Arc<Node>>, after: Option<&Arc<Node>>) {
        if let Some(node) = before {
            self.by_name.remove(&node.name);
            if after.is_none_or(|after| !self.is_awaited(after)) {
                self.written.remove(&node.name);
            }
            self.bytes = self.bytes.saturating_sub(node.size());
            if let Some(id) = &node.provider_id
                && let Some(names) = self.by_provider_id.get_mut(id)
            {
                names.remove(&node.name);
                if names.is_empty() {
                    self.by_provider_id.remove(id);
                }
            }
        }
        if let Some(node) = after {
            self.bytes += node.size();
            if let Some(id) = &node.provider_id {
                self.by_provider_id.entry(id.clone()).or_default().insert(node.name.clone());
            }
            self.by_name.insert(node.name.clone(), Arc::clone(node));
        }
    }
}

/// A list that is coming in, page by page.
#[derive(Debug, Default)]
pub(super) struct Listing {
    nodes: HashMap<String, Node>,
    bytes: usize,
}

impl Listing {
    pub(super) fn add(&mut self, node: Node) -> Result<(), TooMany> {
        self.bytes += node.size();
        if self.bytes > MOST_BYTES || self.nodes.len() >= MOST_NODES {
            return Err(TooMany);
        }
        self.nodes.insert(node.name.clone(), node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, provider_id: &str) -> Node {
        let provider_id = Some(provider_id.to_owned()).filter(|id| !id.is_empty());
        Node { name: name.to_owned(), uid: name.to_owned(), provider_id, ..Node::default() }
    }

    fn listing(nodes: &[(&str, &str)]) -> Listing {
        let mut listing = Listing::default();
        for (name, id) in nodes {
            listing.add(node(name, id)).expect("few");
        }
        listing
    }

    /// The names and provider IDs before and after.
    fn shown(mut changes: Vec<Change>) -> Vec<(String, Option<String>, Option<String>)> {
        let id = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.provider_id.clone());
        let name =
            |(before, after): &Change| after.as_ref().or(before.as_ref()).map(|node| node.name.clone());
        changes.sort_by_key(name);
        changes
            .iter()
            .map(|change| (name(change).unwrap_or_default(), id(&change.0), id(&change.1)))
            .collect()
    }

    fn row(
        name: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> (String, Option<String>, Option<String>) {
        (name.to_owned(), before.map(str::to_owned), after.map(str::to_owned))
    }

    #[test]
    fn provider_ids_lead_to_nodes() {
        let nodes = Nodes::default();
        let found = |id: &str| nodes.by_provider_id(id).map(|node| node.map(|node| node.name.clone()));
        let changes = nodes.replace(listing(&[("a", "x://1"), ("b", ""), ("c", "x://3")]));
        assert_eq!(
            shown(changes),
            [row("a", None, Some("x://1")), row("b", None, None), row("c", None, Some("x://3"))]
        );
        assert_eq!(
            (found("x://1"), found("x://2"), found("")),
            (Ok(Some("a".to_owned())), Ok(None), Ok(None))
        );
        let change = nodes.apply(node("b", "x://1")).expect("few").expect("a change");
        assert_eq!(shown(vec![change]), [row("b", None, Some("x://1"))]);
        let error = found("x://1").expect_err("two");
        assert_eq!(error.to_string(), "Nodes a, b have the same spec.providerID x://1");
        assert!(nodes.remove("a").is_some() && nodes.remove("a").is_none());
        assert_eq!(found("x://1"), Ok(Some("b".to_owned())));
        let newer = Node { resource_version: "9".to_owned(), ..node("b", "x://1") };
        assert_eq!(nodes.apply(newer).map(|change| change.is_some()), Ok(false), "its version alone is new");
        assert_eq!(nodes.get("b").map(|node| node.resource_version.clone()).as_deref(), Some("9"));
        let changes = nodes.replace(listing(&[("b", "x://1"), ("c", "x://4"), ("d", "x://5")]));
        assert_eq!(shown(changes), [row("c", Some("x://3"), Some("x://4")), row("d", None, Some("x://5"))]);
        assert_eq!((nodes.len(), found("x://3")), (3, Ok(None)));
        nodes.replace(Listing::default());
        assert!(nodes.is_empty());
        let kept = nodes.0.read();
        assert_eq!((kept.bytes, kept.by_provider_id.len()), (0, 0));
    }

    #[test]
    fn a_node_is_late_until_the_watch_shows_our_write() {
        let nodes = Nodes::default();
        let at = |version: &str| Node { resource_version: version.to_owned(), ..node("a", "x://1") };
        let show = |version: &str| nodes.apply(at(version)).expect("few");
        show("5");
        assert!(!nodes.is_late(&at("5")));
        nodes.wrote("a", "8".to_owned());
        show("6");
        assert!(nodes.is_late(&at("6")), "another one wrote before");
        show("8");
        assert!(!nodes.is_late(&at("8")));
        nodes.wrote("a", "7".to_owned());
        nodes.wrote("of another", "9".to_owned());
        assert!(nodes.0.read().written.is_empty(), "what is shown already is not awaited");
        for forget in
            [|nodes: &Nodes| drop(nodes.remove("a")), |nodes: &Nodes| drop(nodes.replace(Listing::default()))]
        {
            show("8");
            nodes.wrote("a", "9".to_owned());
            forget(&nodes);
            assert!(nodes.0.read().written.is_empty());
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let large = |name: &str| {
            let mut node = node(name, "x://1");
            node.annotations.insert("a".to_owned(), "x".repeat(MOST_BYTES / 3));
            node
        };
        let mut listing = Listing::default();
        assert_eq!(["a", "b", "c"].map(|name| listing.add(large(name)).is_ok()), [true, true, false]);
        let nodes = Nodes::default();
        for (name, fits) in [("a", true), ("b", true), ("b", true), ("c", false)] {
            assert_eq!(nodes.apply(large(name)).is_ok(), fits, "{name}");
        }
        let mut listing = Listing::default();
        let added =
            (0..=MOST_NODES).filter(|number| listing.add(node(&format!("n{number}"), "")).is_ok()).count();
        assert_eq!(added, MOST_NODES);
    }
}

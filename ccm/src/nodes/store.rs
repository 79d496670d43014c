//! The cache of Nodes and its subscribers.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use cloudprovider::InstanceRef;
use tokio::sync::{Notify, oneshot, watch};

use super::Node;

/// All Nodes of the cluster, kept up to date by [`watch_nodes`](super::watch_nodes). Clones share the Nodes.
#[derive(Clone, Debug)]
pub struct NodeStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: RwLock<HashMap<String, Arc<Node>>>,
    subscribers: Mutex<Vec<Arc<Pending>>>,
    /// Those who wait for the next version of a Node, by its name.
    waiting: Mutex<HashMap<String, Vec<oneshot::Sender<Infallible>>>>,
    synced: watch::Sender<bool>,
}

/// The names of Nodes that changed and that one subscriber has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    names: Mutex<HashSet<String>>,
    notify: Notify,
}

/// The names of Nodes that changed since the last look. Each is there once, however often the Node changed, so a slow reader
/// costs no memory.
#[derive(Debug)]
pub struct Changes {
    pending: Arc<Pending>,
}

impl Default for NodeStore {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeStore {
    /// An empty store, not synced.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                nodes: RwLock::default(),
                subscribers: Mutex::default(),
                waiting: Mutex::default(),
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// The Node of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.read().get(name).cloned()
    }

    /// All Nodes, in no particular order.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.read().values().cloned().collect()
    }

    /// How many Nodes there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are no Nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the Nodes that any of `instances` may belong to: by provider ID, or, for Nodes without one, by
    /// system UUID or name.
    pub fn matching(&self, instances: &[InstanceRef]) -> Vec<String> {
        let texts = |field: fn(&InstanceRef) -> Option<&String>| -> HashSet<String> {
            instances.iter().filter_map(field).map(|text| text.to_ascii_lowercase()).collect()
        };
        let provider_ids = texts(|i| i.provider_id.as_ref());
        let system_uuids = texts(|i| i.system_uuid.as_ref());
        let names = texts(|i| i.name.as_ref());
        let has = |set: &HashSet<String>, text: &str| set.contains(&text.to_ascii_lowercase());
        self.read()
            .values()
            .map(|node| &node.identity)
            .filter(|node| {
                node.provider_id.as_deref().is_some_and(|id| has(&provider_ids, id))
                    || node.system_uuid.as_deref().is_some_and(|uuid| has(&system_uuids, uuid))
                    || has(&names, &node.name)
            })
            .map(|node| node.name.clone())
            .collect()
    }

    /// Subscribes to changes from now on. Every Node that exists already counts as changed.
    pub fn subscribe(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        // Subscribed before the names are read. So a change in between is seen twice, and not lost.
        lock(&self.shared.subscribers).push(pending.clone());
        pending.add(self.read().keys().cloned());
        Changes { pending }
    }

    /// Waits until the first complete list has arrived.
    pub async fn synced(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Waits until the watch shows this version of a Node or a later one, and returns the Node that it shows
    /// then. `None` if the Node does not exist any more.
    pub async fn until_shown(&self, name: &str, version: &str) -> Option<Arc<Node>> {
        let is_shown =
            |node: &Option<Arc<Node>>| node.as_ref().is_none_or(|node| !node.is_older_than(version));
        loop {
            let node = self.get(name);
            if is_shown(&node) {
                return node;
            }
            let (next_version, comes) = oneshot::channel();
            {
                let mut waiting = lock(&self.shared.waiting);
                let waiting = waiting.entry(name.to_owned()).or_default();
                waiting.retain(|waits| !waits.is_closed());
                waiting.push(next_version);
            }
            // A change in between has not been announced to us.
            let node = self.get(name);
            if is_shown(&node) {
                lock(&self.shared.waiting).remove(name);
                return node;
            }
            // Nothing is ever sent. That the sender is dropped is the message.
            let _ = comes.await;
        }
    }

    /// Stores a Node, and notifies the subscribers if anything but its version changed.
    pub(super) fn apply(&self, node: Node) {
        let name = node.name().to_owned();
        let node = Arc::new(node);
        let before = self.write().insert(name.clone(), node.clone());
        lock(&self.shared.waiting).remove(&name);
        if before.is_none_or(|before| !before.same_content(&node)) {
            self.tell(&[name]);
        }
    }

    /// Sets the version of a Node of which nothing else changed.
    pub(super) fn set_version(&self, name: &str, version: &str) {
        if let Some(node) = self.write().get_mut(name) {
            version.clone_into(&mut Arc::make_mut(node).resource_version);
        }
        lock(&self.shared.waiting).remove(name);
    }

    /// Removes a Node.
    pub(super) fn remove(&self, name: &str) {
        if self.write().remove(name).is_some() {
            lock(&self.shared.waiting).remove(name);
            self.tell(&[name.to_owned()]);
        }
    }

    /// Replaces all Nodes with those of a complete list.
    pub(super) fn replace(&self, nodes: Vec<Node>) {
        let new: HashMap<String, Arc<Node>> =
            nodes.into_iter().map(|node| (node.name().to_owned(), Arc::new(node))).collect();
        let changed: Vec<String> = {
            let mut current = self.write();
            let vanished = current.keys().filter(|name| !new.contains_key(*name)).cloned();
            let differs = |(name, node): &(&String, &Arc<Node>)| {
                current.get(*name).is_none_or(|old| !old.same_content(node))
            };
            let changed = vanished.chain(new.iter().filter(differs).map(|(name, _)| name.clone())).collect();
            *current = new;
            changed
        };
        lock(&self.shared.waiting).clear();
        self.tell(&changed);
        self.shared.synced.send_replace(true);
    }

    fn tell(&self, names: &[String]) {
        let mut subscribers = lock(&self.shared.subscribers);
        // Nobody else holds it any more, so the subscriber is gone.
        subscribers.retain(|pending| Arc::strong_count(pending) > 1);
        for pending in subscribers.iter() {
            pending.add(names.iter().cloned());
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Arc<Node>>> {
        self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<Node>>> {
        self.shared.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn add(&self, names: impl IntoIterator<Item = String>) {
        let mut pending = lock(&self.names);
        pending.extend(names);
        if !pending.is_empty() {
            self.notify.notify_one();
        }
    }
}

impl Changes {
    /// Takes the names of the Nodes that changed, those of removed Nodes too.
    pub fn take(&mut self) -> HashSet<String> {
        std::mem::take(&mut *lock(&self.pending.names))
    }

    /// Waits until some Nodes changed and takes all their names, those of removed Nodes too. Cancel-safe.
    pub async fn next(&mut self) -> HashSet<String> {
        loop {
            let names = self.take();
            if !names.is_empty() {
                return names;
            }
            self.pending.notify.notified().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use cloudprovider::NodeIdentity;
    use futures::FutureExt;

    use super::*;

    fn node(name: &str, version: &str) -> Node {
        let identity =
            NodeIdentity { name: name.into(), uid: format!("uid-{name}"), ..NodeIdentity::default() };
        Node { identity, resource_version: version.into(), ..Node::default() }
    }

    fn names(changes: &mut Changes) -> Vec<String> {
        let mut names: Vec<_> = changes.next().now_or_never().unwrap_or_default().into_iter().collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_heartbeat_is_no_change() {
        let store = NodeStore::new();
        store.replace(vec![node("a", "1"), node("b", "1")]);
        let mut changes = store.subscribe();
        assert_eq!(names(&mut changes), ["a", "b"]);
        store.apply(node("a", "2"));
        let version = || store.get("a").map(|n| n.resource_version.clone());
        assert_eq!((names(&mut changes), version().as_deref()), (vec![], Some("2")));
        store.set_version("a", "3");
        assert_eq!((names(&mut changes), version().as_deref()), (vec![], Some("3")));
        store.set_version("nobody", "3");
        assert!(store.get("nobody").is_none());
        store.apply(Node { deleting: true, ..node("a", "3") });
        store.apply(Node { deleting: true, ..node("a", "4") });
        store.remove("b");
        assert_eq!(names(&mut changes), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_new_list_tells_what_changed_or_vanished() {
        let store = NodeStore::new();
        let mut changes = store.subscribe();
        assert!(store.synced().now_or_never().is_none());
        store.replace(vec![node("a", "1"), node("b", "1")]);
        assert!(store.synced().now_or_never().is_some());
        assert_eq!(names(&mut changes), ["a", "b"]);
        store.replace(vec![node("a", "9"), node("c", "1")]);
        assert_eq!(names(&mut changes), ["b", "c"]);
    }

    #[tokio::test]
    async fn a_version_is_waited_for() {
        let store = NodeStore::new();
        store.replace(vec![node("a", "5"), node("b", "5")]);
        assert!(store.until_shown("a", "5").now_or_never().is_some());
        assert!(store.until_shown("nobody", "5").now_or_never().is_some());
        let waits = |name: &'static str| {
            let store = store.clone();
            tokio::spawn(async move { store.until_shown(name, "7").await })
        };
        let tasks = [waits("a"), waits("a"), waits("b")];
        let are_done = async || {
            tokio::task::yield_now().await;
            tasks.each_ref().map(tokio::task::JoinHandle::is_finished)
        };
        assert_eq!(are_done().await, [false, false, false]);
        store.apply(node("a", "6"));
        assert_eq!(are_done().await, [false, false, false]);
        store.apply(node("a", "8"));
        assert_eq!(are_done().await, [true, true, false]);
        store.set_version("b", "6");
        assert_eq!(are_done().await, [true, true, false]);
        store.remove("b");
        assert_eq!(are_done().await, [true, true, true]);
        store.replace(vec![node("a", "5")]);
        let beaten = waits("a");
        tokio::task::yield_now().await;
        store.set_version("a", "7");
        let shown = beaten.await.expect("a heartbeat shows it");
        assert_eq!(shown.map(|node| node.resource_version.clone()).as_deref(), Some("7"));
        store.replace(vec![node("a", "5")]);
        let listed = waits("a");
        tokio::task::yield_now().await;
        store.replace(vec![node("a", "10")]);
        let shown = listed.await.expect("a new list shows it");
        assert_eq!(shown.map(|node| node.resource_version.clone()).as_deref(), Some("10"));
        assert!(lock(&store.shared.waiting).is_empty());
    }

    #[test]
    fn those_who_wait_no_more_are_forgotten() {
        let store = NodeStore::new();
        store.replace(vec![node("a", "5")]);
        for _ in 0..10 {
            assert!(store.until_shown("a", "6").now_or_never().is_none());
        }
        assert_eq!(lock(&store.shared.waiting)["a"].len(), 1);
    }

    #[test]
    fn instances_find_their_nodes() {
        let store = NodeStore::new();
        let mut by_id = node("a", "1");
        by_id.identity.provider_id = Some("libvirt:///X".into());
        let mut by_uuid = node("b", "1");
        by_uuid.identity.system_uuid = Some("ABC".into());
        store.replace(vec![by_id, by_uuid, node("c", "1"), node("d", "1")]);
        let refs = [
            InstanceRef { provider_id: Some("libvirt:///x".into()), ..InstanceRef::default() },
            InstanceRef { system_uuid: Some("abc".into()), name: Some("c".into()), ..InstanceRef::default() },
        ];
        let mut found = store.matching(&refs);
        found.sort();
        assert_eq!(found, ["a", "b", "c"]);
    }
}

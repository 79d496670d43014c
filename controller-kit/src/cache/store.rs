//! The cache of the objects of one kind, and its subscribers.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::{Notify, oneshot, watch};

use super::CachedObject;

/// All objects of one kind in the cluster, by their [keys](CachedObject::key), kept up to date by a watch. Clones share the
/// objects.
#[derive(Debug)]
pub struct Cache<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    objects: RwLock<HashMap<String, Arc<T>>>,
    subscribers: Mutex<Vec<Arc<Pending>>>,
    /// Those who wait for the next version of an object, by its key.
    waiting: Mutex<HashMap<String, Vec<oneshot::Sender<Infallible>>>>,
    synced: watch::Sender<bool>,
}

/// The keys of objects that changed and that one subscriber has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    keys: Mutex<HashSet<String>>,
    notify: Notify,
}

/// The keys of objects that changed since the last look. Each is there once, however often the object changed, so a slow
/// reader costs no memory.
#[derive(Debug)]
pub struct Changes {
    pending: Arc<Pending>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: CachedObject> Default for Cache<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: CachedObject> Cache<T> {
    /// An empty store, not synced.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                objects: RwLock::default(),
                subscribers: Mutex::default(),
                waiting: Mutex::default(),
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read().get(key).cloned()
    }

    /// All objects, in no particular order.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read().values().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Subscribes to changes from now on. Every object that exists already counts as changed.
    pub fn subscribe(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        // Subscribed before the keys are read. So a change in between is seen twice, and not lost.
        self.shared.subscribers.lock().push(pending.clone());
        pending.add(self.read().keys().cloned());
        Changes { pending }
    }

    /// Waits until the first complete list has arrived.
    pub async fn synced(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Whether the first complete list has arrived.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until the watch shows this version of an object or a later one, and returns the object that it shows
    /// then. `None` if the object does not exist any more.
    pub async fn until_shown(&self, key: &str, version: &str) -> Option<Arc<T>> {
        self.until(key, |object| object.is_none_or(|object| !object.is_older_than(version))).await
    }

    /// Waits until the watch shows an object with this key, such as one that was created.
    pub async fn until_exists(&self, key: &str) -> Option<Arc<T>> {
        self.until(key, |object| object.is_some()).await
    }

    /// Waits until what the watch shows under this key is `expected`, and returns it.
    pub async fn until(&self, key: &str, expected: impl Fn(Option<&T>) -> bool) -> Option<Arc<T>> {
        loop {
            let object = self.get(key);
            if expected(object.as_deref()) {
                return object;
            }
            let (next_version, comes) = oneshot::channel();
            {
                let mut waiting = self.shared.waiting.lock();
                let waiting = waiting.entry(key.to_owned()).or_default();
                waiting.retain(|waits| !waits.is_closed());
                waiting.push(next_version);
            }
            // A change in between has not been announced to us.
            let object = self.get(key);
            if expected(object.as_deref()) {
                self.shared.waiting.lock().remove(key);
                return object;
            }
            // Nothing is ever sent. That the sender is dropped is the message.
            let _ = comes.await;
        }
    }

    /// Stores an object, and notifies the subscribers if anything but its version changed.
    pub fn apply(&self, object: T) {
        let key = object.key().into_owned();
        let object = Arc::new(object);
        let before = self.write().insert(key.clone(), object.clone());
        self.shared.waiting.lock().remove(&key);
        if before.is_none_or(|before| !before.same_content(&object)) {
            self.tell(&[key]);
        }
    }

    /// Sets the version of an object of which nothing else changed.
    pub fn set_version(&self, key: &str, version: &str) {
        if let Some(object) = self.write().get_mut(key) {
            Arc::make_mut(object).set_resource_version(version);
        }
        self.shared.waiting.lock().remove(key);
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        if self.write().remove(key).is_some() {
            self.shared.waiting.lock().remove(key);
            self.tell(&[key.to_owned()]);
        }
    }

    /// Replaces all objects with those of a complete list.
    pub fn replace(&self, objects: Vec<T>) {
        let new: HashMap<String, Arc<T>> =
            objects.into_iter().map(|object| (object.key().into_owned(), Arc::new(object))).collect();
        let changed: Vec<String> = {
            let mut current = self.write();
            let vanished = current.keys().filter(|key| !new.contains_key(*key)).cloned();
            let differs = |(key, object): &(&String, &Arc<T>)| {
                current.get(*key).is_none_or(|old| !old.same_content(object))
            };
            let changed = vanished.chain(new.iter().filter(differs).map(|(key, _)| key.clone())).collect();
            *current = new;
            changed
        };
        self.shared.waiting.lock().clear();
        self.tell(&changed);
        self.shared.synced.send_replace(true);
    }

    fn tell(&self, keys: &[String]) {
        let mut subscribers = self.shared.subscribers.lock();
        // Nobody else holds it any more, so the subscriber is gone.
        subscribers.retain(|pending| Arc::strong_count(pending) > 1);
        for pending in subscribers.iter() {
            pending.add(keys.iter().cloned());
        }
    }

    /// How many there are for whom keys are collected.
    #[cfg(any(test, feature = "testing"))]
    pub fn subscribers(&self) -> usize {
        self.shared.subscribers.lock().len()
    }

    /// All objects by key. Changes wait while the guard lives.
    pub fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Arc<T>>> {
        self.shared.objects.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<T>>> {
        self.shared.objects.write()
    }
}

impl Pending {
    fn add(&self, keys: impl IntoIterator<Item = String>) {
        let mut pending = self.keys.lock();
        pending.extend(keys);
        if !pending.is_empty() {
            self.notify.notify_one();
        }
    }
}

impl Changes {
    /// Waits until some objects of any of these changed, and takes all their keys, with the number of theirs. Cancel-safe. Of
    /// none it waits for ever.
    pub async fn next_of(all: &mut [Self]) -> (usize, HashSet<String>) {
        if all.is_empty() {
            return std::future::pending().await;
        }
        let next = all.iter_mut().map(|changes| Box::pin(changes.next()));
        let (keys, number, _) = futures::future::select_all(next).await;
        (number, keys)
    }

    /// Takes the keys of the objects that changed, those of removed objects too.
    pub fn take(&mut self) -> HashSet<String> {
        std::mem::take(&mut *self.pending.keys.lock())
    }

    /// Waits until some objects changed and takes all their keys, those of removed objects too. Cancel-safe.
    pub async fn next(&mut self) -> HashSet<String> {
        loop {
            let keys = self.take();
            if !keys.is_empty() {
                return keys;
            }
            self.pending.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::NodeIdentity;
    use futures::FutureExt;

    use super::*;
    use crate::nodes::{Node, NodeStore};

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
        assert!(store.shared.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_created_object_is_waited_for() {
        let store = NodeStore::new();
        store.replace(vec![]);
        let exists = tokio::spawn({
            let store = store.clone();
            async move { store.until_exists("a").await.map(|node| node.resource_version.clone()) }
        });
        tokio::task::yield_now().await;
        assert!(!exists.is_finished());
        store.apply(node("a", "5"));
        assert_eq!(exists.await.expect("it ends").as_deref(), Some("5"));
        assert!(store.until("a", |node| node.is_none()).now_or_never().is_none());
        store.remove("a");
        assert!(store.until("a", |node| node.is_none()).now_or_never().is_some());
    }

    #[test]
    fn those_who_wait_no_more_are_forgotten() {
        let store = NodeStore::new();
        store.replace(vec![node("a", "5")]);
        for _ in 0..10 {
            assert!(store.until_shown("a", "6").now_or_never().is_none());
        }
        assert_eq!(store.shared.waiting.lock()["a"].len(), 1);
    }
}

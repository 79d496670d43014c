//! The objects of all kinds.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{
    Error, ErrorKind,
    machines::{AuxiliaryKind, not_served},
};
use controller_kit::cache::{Cache, CachedObject as _};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{
    object::{Auxiliary, PackedAuxiliary, key_of},
    reads::{Place, Reads, Seen},
};

/// How long the watch may be behind one of our own writes.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(60);

/// The objects of all auxiliary kinds. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AuxiliaryStores {
    stores: Arc<Vec<AuxiliaryStore>>,
    /// `--namespace`: nothing is known of other ones.
    namespace: Option<Arc<str>>,
    /// Something is known of a kind that was not before.
    news: watch::Sender<()>,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct AuxiliaryStore {
    /// The kind.
    pub kind: AuxiliaryKind,
    /// What the watch shows.
    pub cache: Cache<PackedAuxiliary>,
    /// Whether the API server serves the kind. `None` until it has said so.
    is_served: watch::Sender<Option<bool>>,
    /// What our own writes gave, by the key, until the watch shows it.
    written: Mutex<HashMap<String, (Arc<PackedAuxiliary>, Instant)>>,
    /// When the watch has shown the end of an object, by the key, for as long as the answer of an earlier
    /// write may come.
    ends: Mutex<HashMap<String, Instant>>,
}

impl AuxiliaryStores {
    /// Empty stores for these kinds.
    pub fn new(kinds: &[AuxiliaryKind]) -> Self {
        let stores = kinds.iter().map(|kind| AuxiliaryStore {
            kind: *kind,
            cache: Cache::new(),
            is_served: watch::Sender::new(None),
            written: Mutex::default(),
            ends: Mutex::default(),
        });
        Self { stores: Arc::new(stores.collect()), ..Self::default() }
    }

    /// The same where only the objects of this namespace are watched.
    #[must_use]
    pub fn in_namespace(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(Arc::from), ..self }
    }

    /// Whether the objects of this namespace are not watched.
    pub(super) fn is_elsewhere(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_some_and(|own| own != namespace)
    }

    /// All kinds.
    pub fn all(&self) -> &[AuxiliaryStore] {
        &self.stores
    }

    /// The objects of a kind.
    pub fn of(&self, kind: &AuxiliaryKind) -> Option<&AuxiliaryStore> {
        self.stores.iter().find(|store| store.kind == *kind)
    }

    /// Wakes when something is known of a kind that was not before.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The API server said whether it serves a kind.
    pub(crate) fn set_served(&self, store: &AuxiliaryStore, is_served: bool) {
        if store.is_served.send_replace(Some(is_served)) != Some(is_served) {
            if !is_served {
                let AuxiliaryKind { plural, group, .. } = store.kind;
                tracing::warn!("the API server does not serve {plural}.{group}: what needs it waits");
            }
            self.news.send_replace(());
        }
    }

    /// All objects of a kind have arrived.
    pub(crate) fn has_arrived(&self) {
        self.news.send_replace(());
    }

    /// Waits until every kind is known, with its objects if it is served.
    pub(crate) async fn settled(&self) {
        for store in &*self.stores {
            let mut is_served = store.is_served.subscribe();
            let known = is_served.wait_for(Option::is_some).await.map(|known| *known);
            if matches!(known, Ok(Some(true))) {
                store.cache.synced().await;
            }
        }
    }

    /// What is there now.
    pub fn look(&self, place: &Place) -> Seen {
        let Some(store) = self.of(&place.kind) else { return Seen::NotServed };
        store.look(place)
    }

    /// Has each object once in memory: what a step got from its own write is what the watch shows by now.
    pub(crate) fn share(&self, reads: &mut Reads) {
        let now = self.look_again(reads);
        if now == *reads {
            *reads = now;
        }
    }

    /// What is there now in the places of these reads.
    pub fn look_again(&self, reads: &Reads) -> Reads {
        reads.map(|place| self.look(place))
    }

    /// For `/debug/state`.
    pub(crate) fn to_json(&self) -> Value {
        let one = |store: &AuxiliaryStore| {
            let name = format!("{}.{}", store.kind.plural, store.kind.group);
            (name, json!({"served": *store.is_served.borrow(), "objects": store.cache.len()}))
        };
        Value::Object(self.stores.iter().map(one).collect())
    }
}

impl AuxiliaryStore {
    /// The object with this key: what the watch shows, or what our last write gave if that is newer.
    pub fn get(&self, key: &str) -> Option<Auxiliary> {
        self.packed(key).map(|packed| packed.unpacked())
    }

    fn packed(&self, key: &str) -> Option<Arc<PackedAuxiliary>> {
        let shown = self.cache.get(key);
        let mut written = self.written();
        let Some((ours, since)) = written.get(key) else { return shown };
        let is_behind = since.elapsed() < BEHIND_TIMEOUT
            && shown.as_ref().is_none_or(|shown| shown.is_older_than(ours.resource_version()));
        if is_behind {
            return Some(Arc::clone(ours));
        }
        written.remove(key);
        shown
    }

    fn look(&self, place: &Place) -> Seen {
        match *self.is_served.borrow() {
            Some(false) => return Seen::NotServed,
            _ if !self.cache.is_synced() => return Seen::NotListed,
            _ => {}
        }
        let namespace = place.namespace.as_deref();
        if let Some(name) = &place.name {
            let found = self.packed(&key_of(namespace, name));
            return Seen::Objects(found.map(|one| Arc::clone(one.object())).into_iter().collect());
        }
        let shown = self.cache.read().keys().cloned().collect::<BTreeSet<_>>();
        let keys = shown.into_iter().chain(self.written().keys().cloned()).collect::<BTreeSet<_>>();
        let is_in = |key: &str, one: &str| key.split_once('/').is_some_and(|(namespace, _)| namespace == one);
        let is_there = |key: &&String| namespace.is_none_or(|one| is_in(key, one));
        let all = keys.iter().filter(is_there).filter_map(|key| self.packed(key));
        Seen::Objects(all.map(|one| Arc::clone(one.object())).collect())
    }

    /// The names of the objects in a namespace that name this one as an owner, sorted.
    pub(super) fn names_owned_by(&self, namespace: &str, uid: &str) -> BTreeSet<String> {
        let name = |one: &Arc<PackedAuxiliary>| one.name_if_owned_by(namespace, uid).map(str::to_owned);
        let mut names: BTreeSet<_> = self.cache.read().values().filter_map(name).collect();
        names.extend(self.written().values().filter_map(|(one, _)| name(one)));
        names
    }

    /// A request that was begun at this time gave this. It does not count if the watch has shown the end of
    /// the object since.
    pub(crate) fn wrote(&self, kept: Auxiliary, begun: Instant) {
        let kept = Arc::new(PackedAuxiliary::from(kept));
        let key = kept.key().into_owned();
        let has_ended = self.ends.lock().get(&key).is_some_and(|end| *end >= begun);
        if !has_ended || self.cache.get(&key).is_some() {
            self.written().insert(key, (kept, Instant::now()));
        }
    }

    /// The watch has shown the end of an object.
    pub(crate) fn ended(&self, key: &str) {
        self.vanished(key);
        let mut ends = self.ends.lock();
        ends.retain(|_, end| end.elapsed() < BEHIND_TIMEOUT);
        ends.insert(key.to_owned(), Instant::now());
    }

    /// There is no such object any more.
    pub(crate) fn vanished(&self, key: &str) {
        self.written().remove(key);
    }

    /// Why nothing can be said about its objects.
    ///
    /// # Errors
    /// As [`Objects::get`](cloudprovider::machines::Objects::get).
    pub(crate) fn check(&self) -> Result<(), Error> {
        match *self.is_served.borrow() {
            Some(false) => Err(not_served(&self.kind)),
            _ if !self.cache.is_synced() => Err(not_listed(&self.kind)),
            _ => Ok(()),
        }
    }

    /// Whether the API server has said that it does not serve the kind.
    pub(crate) fn is_missing(&self) -> bool {
        *self.is_served.borrow() == Some(false)
    }

    fn written(&self) -> MutexGuard<'_, HashMap<String, (Arc<PackedAuxiliary>, Instant)>> {
        self.written.lock()
    }
}

pub(super) fn not_listed(kind: &AuxiliaryKind) -> Error {
    let AuxiliaryKind { plural, group, .. } = kind;
    let words = format!(
        "the list of {plural}.{group} has not arrived yet; if it never does, see whether the controller may list and watch them \
         (its log has the API server's answer)"
    );
    Error::new(ErrorKind::Unavailable, words)
}

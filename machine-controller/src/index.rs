//! Which objects depend on which, so that a change wakes those and no others.

mod sorted;

use std::collections::{BTreeSet, HashMap};

use cloudprovider::machines::Kinds;
use jiff::Timestamp;

use self::sorted::Sorted;
use super::{
    object::InfraObject,
    object_key::{ObjectKey, ObjectKind},
    store::key_of,
};

type ByKey = HashMap<String, Sorted<ObjectKey>>;

/// The machines and clusters of the provider, by what they depend on. Templates depend on nothing.
#[derive(Debug, Default)]
pub struct Index {
    entries: HashMap<ObjectKey, Entry>,
    /// By the key of the Machine that owns them.
    by_owner: ByKey,
    /// By the key of their Cluster. A machine whose Cluster is not known has the key of a Cluster without a
    /// name. So have all clusters of its namespace, since it may belong to each of them.
    by_cluster: ByKey,
    /// Their claims by the identity, which is a namespace and the UID of a mark.
    by_identity: HashMap<String, Sorted<Claim>>,
    /// By the UID of their mark alone, over all namespaces.
    by_uid: ByKey,
    /// By their own UID: those that have had their identity from the beginning.
    originals: HashMap<String, ObjectKey>,
}

/// Another object with the same UID in its mark, and the better claim to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its namespace and name.
    pub key: String,
    /// Whether it is in another namespace. An object says nothing of it then.
    pub is_foreign: bool,
    /// Whether its mark is the same as a whole, so that everything in the cloud that carries the mark is that
    /// object's.
    pub has_same_mark: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    owner: Option<String>,
    /// The keys of the Clusters that it may belong to.
    clusters: Box<[String]>,
    /// The key of the Cluster in its mark.
    marked: String,
    namespace: String,
    /// The UID of its mark.
    uid: String,
    claim: Claim,
}

/// In the place of the name of a Cluster that is not known.
const UNKNOWN: &str = "";

/// How good a claim to an identity is. The least is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// An object that has its own UID had it from the beginning.
    is_borrowed: bool,
    made: Option<Timestamp>,
    object_key: ObjectKey,
}

impl Index {
    /// Takes note of an object as it is now, or that it is gone. Gives those for which that makes a
    /// difference.
    pub fn update(
        &mut self,
        object_key: &ObjectKey,
        object: Option<&InfraObject>,
        kinds: &Kinds,
    ) -> BTreeSet<ObjectKey> {
        let entry = object.map(|object| Entry::of(object_key, object, kinds));
        if self.entries.get(object_key) == entry.as_ref() {
            return match object_key.kind {
                // Its spec counts for its machines.
                ObjectKind::Cluster => self.of_same_cluster(object_key),
                _ => BTreeSet::new(),
            };
        }
        let mut touched = self.of_same_cluster(object_key);
        let old = self.entries.remove(object_key);
        let entries: Vec<_> = old.iter().chain(&entry).cloned().collect();
        let before: Vec<_> = entries.iter().map(|entry| self.owners_of(entry)).collect();
        if let Some(old) = &old {
            self.remove(object_key, old);
        }
        if let Some(entry) = entry {
            self.insert(object_key, entry);
        }
        // Of thousands of copies, a new one concerns none of the others.
        for (entry, before) in entries.iter().zip(before) {
            let now = self.owners_of(entry);
            if now.0 != before.0 {
                let claims = self.by_identity.get(&entry.identity()).into_iter().flat_map(Sorted::iter);
                touched.extend(claims.map(|claim| claim.object_key.clone()));
            }
            if now.1 != before.1 {
                touched.extend(self.of_uid(&entry.uid));
            }
        }
        touched.extend(self.of_same_cluster(object_key));
        touched.remove(object_key);
        touched
    }

    /// Which object has the best claim in its namespace, and which is the original.
    fn owners_of(&self, entry: &Entry) -> (Option<Claim>, Option<ObjectKey>) {
        let best = self.by_identity.get(&entry.identity()).and_then(|claims| claims.first());
        (best.cloned(), self.originals.get(&entry.uid).cloned())
    }

    fn remove(&mut self, object_key: &ObjectKey, entry: &Entry) {
        for (map, keys) in self.maps(entry) {
            for key in keys {
                if let Some(object_keys) = map.get_mut(&key) {
                    object_keys.remove(object_key);
                    if object_keys.is_empty() {
                        map.remove(&key);
                    }
                }
            }
        }
        let identity = entry.identity();
        if let Some(claims) = self.by_identity.get_mut(&identity) {
            claims.remove(&entry.claim);
            if claims.is_empty() {
                self.by_identity.remove(&identity);
            }
        }
        if self.originals.get(&entry.uid) == Some(object_key) {
            self.originals.remove(&entry.uid);
        }
    }

    fn insert(&mut self, object_key: &ObjectKey, entry: Entry) {
        for (map, keys) in self.maps(&entry) {
            for key in keys {
                map.entry(key).or_default().insert(object_key.clone());
            }
        }
        self.by_identity.entry(entry.identity()).or_default().insert(entry.claim.clone());
        if !entry.claim.is_borrowed && !entry.uid.is_empty() {
            self.originals.insert(entry.uid.clone(), object_key.clone());
        }
        self.entries.insert(object_key.clone(), entry);
    }

    /// Those of the same Cluster: machines for a cluster, the cluster for a machine.
    fn of_same_cluster(&self, object_key: &ObjectKey) -> BTreeSet<ObjectKey> {
        let Some(entry) = self.entries.get(object_key) else { return BTreeSet::new() };
        let of_clusters = entry.clusters.iter().filter_map(|key| self.by_cluster.get(key));
        let of_clusters = of_clusters.flat_map(Sorted::iter);
        of_clusters.filter(|other| other.kind != object_key.kind).cloned().collect()
    }

    /// Each map of objects with the keys that this entry has in it.
    fn maps(&mut self, entry: &Entry) -> [(&mut ByKey, Vec<String>); 3] {
        [
            (&mut self.by_uid, vec![entry.uid.clone()]),
            (&mut self.by_owner, entry.owner.iter().cloned().collect()),
            (&mut self.by_cluster, entry.clusters.to_vec()),
        ]
    }

    /// The machines that this Machine owns.
    pub fn of_owner(&self, key: &str) -> Vec<ObjectKey> {
        all(self.by_owner.get(key))
    }

    /// The machines and the infrastructure of this Cluster.
    pub fn of_cluster(&self, key: &str) -> Vec<ObjectKey> {
        all(self.by_cluster.get(key))
    }

    /// What has this UID in its mark, in any namespace.
    pub fn of_uid(&self, uid: &str) -> Vec<ObjectKey> {
        all(self.by_uid.get(uid))
    }

    /// The UID in the mark of this object.
    pub fn uid(&self, object_key: &ObjectKey) -> Option<&str> {
        self.entries.get(object_key).map(|entry| entry.uid.as_str())
    }

    /// The infrastructure with this Cluster in its mark. `None` if there are several.
    pub fn infrastructure_of(&self, key: &str) -> Option<&ObjectKey> {
        let is_marked = |one: &ObjectKey| self.entries.get(one).is_some_and(|entry| entry.marked == key);
        let of_cluster = self.by_cluster.get(key)?.iter();
        let mut found = of_cluster.filter(|one| one.kind == ObjectKind::Cluster && is_marked(one));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// The machines of this cluster, and those of its namespace whose Cluster is not known.
    pub fn machines_of(&self, cluster: &ObjectKey) -> BTreeSet<&ObjectKey> {
        let keys = self.entries.get(cluster).into_iter().flat_map(|entry| &entry.clusters);
        let all = keys.filter_map(|key| self.by_cluster.get(key)).flat_map(Sorted::iter);
        all.filter(|one| one.kind == ObjectKind::Machine).collect()
    }

    /// Whether nothing says to which Cluster this machine belongs.
    pub fn is_stray(&self, machine: &ObjectKey) -> bool {
        self.entries.get(machine).is_some_and(|entry| entry.clusters.iter().all(|key| key.ends_with('/')))
    }

    /// The object that stands in the way of this one, since it has the better claim to what the mark names.
    ///
    /// An annotation with a UID is a claim that a tenant writes. In its namespace the oldest object is right.
    /// Over namespaces it counts only against those who write it: an object with that very UID of its own is
    /// right, and after a move, where nobody has it, marks tell the namespaces apart.
    pub fn rival(&self, object_key: &ObjectKey) -> Option<Rival> {
        let entry = self.entries.get(object_key)?;
        let best = self.by_identity.get(&entry.identity())?.first()?;
        if best < &entry.claim {
            let other = self.entries.get(&best.object_key)?;
            let are_clusters =
                [object_key, &best.object_key].iter().all(|one| one.kind == ObjectKind::Cluster);
            let has_same_mark = are_clusters && other.marked == entry.marked;
            return Some(Rival { key: best.object_key.key.clone(), is_foreign: false, has_same_mark });
        }
        let original = self.originals.get(&entry.uid).filter(|_| entry.claim.is_borrowed)?;
        Some(Rival { key: original.key.clone(), is_foreign: true, has_same_mark: false })
    }
}

impl Entry {
    fn of(object_key: &ObjectKey, object: &InfraObject, kinds: &Kinds) -> Self {
        let own = object.metadata.uid.as_deref().unwrap_or_default();
        let uid = object.identity(kinds).unwrap_or(own);
        let in_namespace = |name: &str| key_of(object.namespace(), name);
        let nameless = if object_key.kind == ObjectKind::Cluster { object.name() } else { UNKNOWN };
        let marked = in_namespace(object.marked_cluster(kinds).unwrap_or(nameless));
        let mut names = object.cluster_names(kinds);
        match object_key.kind {
            // The name in its mark, if nothing else names its Cluster.
            ObjectKind::Cluster if names.is_empty() => names.extend([object.name(), UNKNOWN]),
            ObjectKind::Cluster => drop(names.insert(UNKNOWN)),
            _ if names.is_empty() => drop(names.insert(UNKNOWN)),
            _ => {}
        }
        let clusters = names.into_iter().map(in_namespace).collect();
        let claim = Claim {
            is_borrowed: uid != own,
            made: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            object_key: object_key.clone(),
        };
        Self {
            owner: object.core_owner("Machine").map(|owner| in_namespace(&owner.name)),
            clusters,
            marked,
            namespace: object.namespace().to_owned(),
            uid: uid.to_owned(),
            claim,
        }
    }

    /// What it is in the cloud: namespaces share nothing.
    fn identity(&self) -> String {
        key_of(&self.namespace, &self.uid)
    }
}

fn all(object_keys: Option<&Sorted<ObjectKey>>) -> Vec<ObjectKey> {
    object_keys.into_iter().flat_map(Sorted::iter).cloned().collect()
}

#[cfg(test)]
mod tests;

//! Which objects depend on which, so that a change wakes those and no others.

use std::collections::{BTreeSet, HashMap};

use cloudprovider::machines::Kinds;
use jiff::Timestamp;

use super::{
    object::InfraObject,
    store::key_of,
    subject::{Subject, SubjectKind},
};

type ByKey = HashMap<String, BTreeSet<Subject>>;

/// The machines and clusters of the provider, by what they depend on. Templates depend on nothing.
#[derive(Debug, Default)]
pub struct Index {
    entries: HashMap<Subject, Entry>,
    /// By the key of the Machine that owns them.
    by_owner: ByKey,
    /// By the key of their Cluster. Machines of which it is not known, and all clusters of their namespace, have the key of a
    /// Cluster without a name.
    by_cluster: ByKey,
    /// By the identity: the UID of their mark.
    by_identity: ByKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    owner: Option<String>,
    /// The keys of the Clusters that it may belong to.
    clusters: BTreeSet<String>,
    /// The key of the Cluster in its mark.
    marked: String,
    identity: String,
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
    subject: Subject,
}

impl Index {
    /// Takes note of an object as it is now, or that it is gone. Gives those for which that makes a difference.
    pub fn update(
        &mut self,
        subject: &Subject,
        object: Option<&InfraObject>,
        kinds: &Kinds,
    ) -> BTreeSet<Subject> {
        let entry = object.map(|object| Entry::of(subject, object, kinds));
        if self.entries.get(subject) == entry.as_ref() {
            return match subject.kind {
                // Its spec counts for its machines.
                SubjectKind::Cluster => self.neighbours(subject),
                SubjectKind::Machine | SubjectKind::Template => BTreeSet::new(),
            };
        }
        let mut touched = self.neighbours(subject);
        if let Some(old) = self.entries.remove(subject) {
            for (map, keys) in self.maps(&old) {
                for key in keys {
                    if let Some(subjects) = map.get_mut(&key) {
                        subjects.remove(subject);
                        if subjects.is_empty() {
                            map.remove(&key);
                        }
                    }
                }
            }
        }
        if let Some(entry) = entry {
            for (map, keys) in self.maps(&entry) {
                for key in keys {
                    map.entry(key).or_default().insert(subject.clone());
                }
            }
            self.entries.insert(subject.clone(), entry);
        }
        touched.extend(self.neighbours(subject));
        touched
    }

    /// Those that have the same identity, and of the same Cluster: machines for a cluster, the cluster for a machine.
    fn neighbours(&self, subject: &Subject) -> BTreeSet<Subject> {
        let Some(entry) = self.entries.get(subject) else { return BTreeSet::new() };
        let mut found = self.of_identity(&entry.identity);
        for key in &entry.clusters {
            let of_cluster = self.by_cluster.get(key).into_iter().flatten();
            found.extend(of_cluster.filter(|other| other.kind != subject.kind).cloned());
        }
        found.into_iter().filter(|other| other != subject).collect()
    }

    /// Each map with the keys that this entry has in it.
    fn maps(&mut self, entry: &Entry) -> [(&mut ByKey, Vec<String>); 3] {
        [
            (&mut self.by_identity, vec![entry.identity.clone()]),
            (&mut self.by_owner, entry.owner.iter().cloned().collect()),
            (&mut self.by_cluster, entry.clusters.iter().cloned().collect()),
        ]
    }

    /// The machines that this Machine owns.
    pub fn of_owner(&self, key: &str) -> Vec<Subject> {
        all(self.by_owner.get(key))
    }

    /// The machines and the infrastructure of this Cluster.
    pub fn of_cluster(&self, key: &str) -> Vec<Subject> {
        all(self.by_cluster.get(key))
    }

    /// What has this identity.
    pub fn of_identity(&self, uid: &str) -> Vec<Subject> {
        all(self.by_identity.get(uid))
    }

    /// The identity of this object.
    pub fn identity(&self, subject: &Subject) -> Option<&str> {
        self.entries.get(subject).map(|entry| entry.identity.as_str())
    }

    /// The infrastructure with this Cluster in its mark. `None` if there are several.
    pub fn infrastructure_of(&self, key: &str) -> Option<&Subject> {
        let is_marked = |one: &Subject| self.entries.get(one).is_some_and(|entry| entry.marked == key);
        let of_cluster = self.by_cluster.get(key)?.iter();
        let mut found = of_cluster.filter(|one| one.kind == SubjectKind::Cluster && is_marked(one));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// The machines of this cluster, and those of its namespace of which nothing says to which Cluster they belong.
    pub fn machines_of(&self, cluster: &Subject) -> BTreeSet<&Subject> {
        let keys = self.entries.get(cluster).into_iter().flat_map(|entry| &entry.clusters);
        let all = keys.filter_map(|key| self.by_cluster.get(key)).flatten();
        all.filter(|one| one.kind == SubjectKind::Machine).collect()
    }

    /// Whether nothing says to which Cluster this machine belongs.
    pub fn is_stray(&self, machine: &Subject) -> bool {
        self.entries.get(machine).is_some_and(|entry| entry.clusters.iter().all(|key| key.ends_with('/')))
    }

    /// The object that has the same identity as this one, and the better claim to it.
    pub fn rival(&self, subject: &Subject) -> Option<String> {
        let entry = self.entries.get(subject)?;
        let others =
            self.by_identity.get(&entry.identity)?.iter().filter_map(|other| self.entries.get(other));
        let best = others.map(|other| &other.claim).min()?;
        (best < &entry.claim).then(|| best.subject.key.clone())
    }
}

impl Entry {
    fn of(subject: &Subject, object: &InfraObject, kinds: &Kinds) -> Self {
        let own = object.metadata.uid.as_deref().unwrap_or_default();
        let identity = object.identity(kinds).unwrap_or(own);
        let in_namespace = |name: &str| key_of(object.namespace(), name);
        let nameless = if subject.kind == SubjectKind::Cluster { object.name() } else { UNKNOWN };
        let marked = in_namespace(object.marked_cluster(kinds).unwrap_or(nameless));
        let mut names = object.cluster_names(kinds);
        match subject.kind {
            // The name in its mark, if nothing else names its Cluster.
            SubjectKind::Cluster if names.is_empty() => names.extend([object.name(), UNKNOWN]),
            SubjectKind::Cluster => drop(names.insert(UNKNOWN)),
            _ if names.is_empty() => drop(names.insert(UNKNOWN)),
            _ => {}
        }
        let clusters = names.into_iter().map(in_namespace).collect();
        let claim = Claim {
            is_borrowed: identity != own,
            made: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            subject: subject.clone(),
        };
        Self {
            owner: object.core_owner("Machine").map(|owner| in_namespace(&owner.name)),
            clusters,
            marked,
            identity: identity.to_owned(),
            claim,
        }
    }
}

fn all(subjects: Option<&BTreeSet<Subject>>) -> Vec<Subject> {
    subjects.into_iter().flatten().cloned().collect()
}

#[cfg(test)]
mod tests;

//! Which objects depend on which, so that a change wakes those and no others.

use std::collections::{BTreeSet, HashMap};

use cloudprovider::machines::Kinds;
use jiff::Timestamp;

use super::{
    object::InfraObject,
    store::key_of,
    subject::{Subject, SubjectKind},
};

/// The machines and clusters of the provider, by what they depend on. Templates depend on nothing.
#[derive(Debug, Default)]
pub struct Index {
    entries: HashMap<Subject, Entry>,
    /// By the key of the Machine that owns them.
    by_owner: HashMap<String, BTreeSet<Subject>>,
    /// By the key of their Cluster.
    by_cluster: HashMap<String, BTreeSet<Subject>>,
    /// By the identity: the UID of their mark.
    by_identity: HashMap<String, BTreeSet<Subject>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    owner: Option<String>,
    cluster: Option<String>,
    identity: String,
    claim: Claim,
}

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
            for (map, key) in self.maps(&old) {
                if let Some(subjects) = map.get_mut(&key) {
                    subjects.remove(subject);
                    if subjects.is_empty() {
                        map.remove(&key);
                    }
                }
            }
        }
        if let Some(entry) = entry {
            for (map, key) in self.maps(&entry) {
                map.entry(key).or_default().insert(subject.clone());
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
        if let Some(key) = &entry.cluster {
            let of_cluster = self.by_cluster.get(key).into_iter().flatten();
            found.extend(of_cluster.filter(|other| other.kind != subject.kind).cloned());
        }
        found.into_iter().filter(|other| other != subject).collect()
    }

    fn maps(&mut self, entry: &Entry) -> Vec<(&mut HashMap<String, BTreeSet<Subject>>, String)> {
        let mut maps = vec![(&mut self.by_identity, entry.identity.clone())];
        maps.extend(entry.owner.clone().map(|key| (&mut self.by_owner, key)));
        maps.extend(entry.cluster.clone().map(|key| (&mut self.by_cluster, key)));
        maps
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

    /// How many machines this Cluster has.
    pub fn machines_of_cluster(&self, key: &str) -> usize {
        let all = self.by_cluster.get(key).into_iter().flatten();
        all.filter(|one| one.kind == SubjectKind::Machine).count()
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
        let claim = Claim {
            is_borrowed: identity != own,
            made: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            subject: subject.clone(),
        };
        Self {
            owner: object.core_owner("Machine").map(|owner| in_namespace(&owner.name)),
            cluster: object.cluster_name().map(in_namespace),
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

//! Which objects have read what of the further kinds, and which own what of them.

use std::collections::{BTreeSet, HashMap};

use cloudprovider::machines::{FurtherKind, Kinds};

use super::{
    further::{Kept, Place, Reads, key_of},
    subject::{Subject, SubjectKind},
};

/// A companion: its kind and its key.
pub type CompanionKey = (FurtherKind, String);

/// Who depends on what of the further kinds.
#[derive(Debug, Default)]
pub struct Dependents {
    readers: HashMap<Place, BTreeSet<Subject>>,
    places: HashMap<Subject, Vec<Place>>,
    companions: HashMap<Subject, BTreeSet<CompanionKey>>,
    owners: HashMap<CompanionKey, Vec<Subject>>,
}

impl Dependents {
    /// Takes note of what the last step of an object has read.
    pub fn read(&mut self, subject: &Subject, reads: &Reads) {
        self.forget(subject);
        let places: Vec<_> = reads.places().cloned().collect();
        if places.is_empty() {
            return;
        }
        for place in &places {
            self.readers.entry(place.clone()).or_default().insert(subject.clone());
        }
        self.places.insert(subject.clone(), places);
    }

    /// There is no such object any more.
    pub fn forget(&mut self, subject: &Subject) {
        for place in self.places.remove(subject).unwrap_or_default() {
            if let Some(readers) = self.readers.get_mut(&place) {
                readers.remove(subject);
                if readers.is_empty() {
                    self.readers.remove(&place);
                }
            }
        }
    }

    /// Takes note of an object of a further kind as it is now, or that it is gone. Gives those that do not own it any more.
    pub fn update(&mut self, companion: CompanionKey, found: Option<&Kept>, kinds: &Kinds) -> Vec<Subject> {
        let mut before = self.owners.remove(&companion).unwrap_or_default();
        for owner in &before {
            if let Some(own) = self.companions.get_mut(owner) {
                own.remove(&companion);
                if own.is_empty() {
                    self.companions.remove(owner);
                }
            }
        }
        let owners = found.map(|found| owners_of(found, kinds)).unwrap_or_default();
        for owner in &owners {
            self.companions.entry(owner.clone()).or_default().insert(companion.clone());
        }
        before.retain(|owner| !owners.contains(owner));
        if !owners.is_empty() {
            self.owners.insert(companion, owners);
        }
        before
    }

    /// Those that have read the object with this key, or a list that it belongs to.
    pub fn readers_of(&self, kind: &FurtherKind, key: &str) -> BTreeSet<Subject> {
        let places = Place::with_key(kind, key);
        places.iter().filter_map(|place| self.readers.get(place)).flatten().cloned().collect()
    }

    /// All that have read something.
    pub fn readers(&self) -> Vec<Subject> {
        self.places.keys().cloned().collect()
    }

    /// What an object reads and wants, in words.
    pub fn of(&self, subject: &Subject) -> Vec<String> {
        let all = self.places.get(subject).into_iter().flatten();
        all.map(ToString::to_string).collect()
    }

    /// What may be a companion of this object: what names it as its owner, and what its last step wanted.
    pub fn companions_of(&self, subject: &Subject) -> BTreeSet<CompanionKey> {
        let wanted = self.places.get(subject).into_iter().flatten().filter(|place| place.kind.is_made);
        let wanted = wanted.filter_map(|place| {
            Some((place.kind, key_of(place.namespace.as_deref(), place.name.as_deref()?)))
        });
        self.companions.get(subject).into_iter().flatten().cloned().chain(wanted).collect()
    }
}

/// The machines and clusters of the provider that own an object.
fn owners_of(found: &Kept, kinds: &Kinds) -> Vec<Subject> {
    let Some(namespace) = found.object.namespace.as_deref() else { return Vec::new() };
    let owners = found.metadata.owner_references.iter().flatten();
    let own = owners.filter_map(|owner| {
        let is_of_group = owner.api_version.split('/').next() == Some(kinds.group);
        let kind = match owner.kind.as_str() {
            kind if kind == kinds.machine.kind => SubjectKind::Machine,
            kind if kind == kinds.cluster.kind => SubjectKind::Cluster,
            _ => return None,
        };
        is_of_group.then(|| Subject::new(kind, key_of(Some(namespace), &owner.name)))
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloudprovider::machines::{Kind, ObjectSource as _};
    use serde_json::json;

    use super::*;
    use crate::controllers::machine::further::{Further, Reader, WireFurther};

    const GUEST: FurtherKind = FurtherKind::new("example.org", "v1", Kind::new("Guest", "guests")).made();
    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

    fn machine(name: &str) -> Subject {
        Subject::new(SubjectKind::Machine, format!("default/{name}"))
    }

    fn guest(owner: &str) -> Kept {
        let wire: WireFurther = serde_json::from_value(json!({
            "apiVersion": "example.org/v1", "kind": "Guest",
            "metadata": {"name": "g", "namespace": "default", "ownerReferences": [
                {"apiVersion": "infrastructure.cluster.x-k8s.io/v9", "kind": "MyMachine", "name": owner, "uid": "u"},
                {"apiVersion": "other/v1", "kind": "MyMachine", "name": "other", "uid": "u"},
            ]},
        }))
        .expect("an object");
        wire.into()
    }

    #[test]
    fn companions_are_known_by_their_owners() {
        let mut dependents = Dependents::default();
        let key: CompanionKey = (GUEST, "default/g".to_owned());
        assert_eq!(dependents.update(key.clone(), Some(&guest("one")), &KINDS), []);
        assert_eq!(dependents.companions_of(&machine("one")), BTreeSet::from([key.clone()]));
        assert!(dependents.companions_of(&machine("other")).is_empty());
        assert_eq!(dependents.update(key.clone(), Some(&guest("two")), &KINDS), [machine("one")]);
        assert!(dependents.companions_of(&machine("one")).is_empty());
        assert_eq!(dependents.update(key, None, &KINDS), [machine("two")]);
        assert!(dependents.companions.is_empty() && dependents.owners.is_empty());
    }

    #[test]
    fn a_change_finds_those_that_have_read() {
        let mut dependents = Dependents::default();
        let reader = Arc::new(Reader::new(Further::new(&[GUEST])));
        let _not_there_yet = reader.get(&GUEST, Some("default"), "g");
        dependents.read(&machine("one"), &reader.reads());
        let _not_there_yet = reader.list(&GUEST, None);
        dependents.read(&machine("two"), &reader.reads());
        let of = |dependents: &Dependents, key: &str| dependents.readers_of(&GUEST, key).len();
        assert_eq!([of(&dependents, "default/g"), of(&dependents, "default/h")], [2, 1]);
        // Before the watch shows what was made.
        assert_eq!(
            dependents.companions_of(&machine("one")),
            BTreeSet::from([(GUEST, "default/g".to_owned())])
        );
        dependents.read(&machine("two"), &Reads::default());
        dependents.forget(&machine("one"));
        assert!(dependents.readers.is_empty() && dependents.readers().is_empty());
    }
}

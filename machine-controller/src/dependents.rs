//! Which objects have read what of the auxiliary kinds, and which own what of them.

use std::collections::{BTreeSet, HashMap};

use cloudprovider::machines::{AuxiliaryKind, Kinds};

use super::{
    auxiliary::{Auxiliary, Place, Reads, key_of},
    object_key::{ObjectKey, ObjectKind},
};

/// An owned object: its kind and its key.
pub type OwnedKey = (AuxiliaryKind, String);

/// Who depends on what of the auxiliary kinds.
#[derive(Debug, Default)]
pub struct Dependents {
    readers: HashMap<Place, BTreeSet<ObjectKey>>,
    places: HashMap<ObjectKey, Vec<Place>>,
    owned: HashMap<ObjectKey, BTreeSet<OwnedKey>>,
    owners: HashMap<OwnedKey, Vec<ObjectKey>>,
}

impl Dependents {
    /// Takes note of what the last step of an object has read.
    pub fn read(&mut self, object_key: &ObjectKey, reads: &Reads) {
        self.forget(object_key);
        let places: Vec<_> = reads.places().cloned().collect();
        if places.is_empty() {
            return;
        }
        for place in &places {
            self.readers.entry(place.clone()).or_default().insert(object_key.clone());
        }
        self.places.insert(object_key.clone(), places);
    }

    /// There is no such object any more.
    pub fn forget(&mut self, object_key: &ObjectKey) {
        for place in self.places.remove(object_key).unwrap_or_default() {
            if let Some(readers) = self.readers.get_mut(&place) {
                readers.remove(object_key);
                if readers.is_empty() {
                    self.readers.remove(&place);
                }
            }
        }
    }

    /// Takes note of an object of an auxiliary kind as it is now, or that it is gone. Gives those that do not
    /// own it any more.
    pub fn update(&mut self, owned: OwnedKey, found: Option<&Auxiliary>, kinds: &Kinds) -> Vec<ObjectKey> {
        let mut before = self.owners.remove(&owned).unwrap_or_default();
        for owner in &before {
            if let Some(own) = self.owned.get_mut(owner) {
                own.remove(&owned);
                if own.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
        let owners = found.map(|found| owners_of(found, kinds)).unwrap_or_default();
        for owner in &owners {
            self.owned.entry(owner.clone()).or_default().insert(owned.clone());
        }
        before.retain(|owner| !owners.contains(owner));
        if !owners.is_empty() {
            self.owners.insert(owned, owners);
        }
        before
    }

    /// Those that have read the object with this key, or a list that it belongs to.
    pub fn readers_of(&self, kind: &AuxiliaryKind, key: &str) -> BTreeSet<ObjectKey> {
        let places = Place::with_key(kind, key);
        places.iter().filter_map(|place| self.readers.get(place)).flatten().cloned().collect()
    }

    /// All that have read something.
    pub fn readers(&self) -> Vec<ObjectKey> {
        self.places.keys().cloned().collect()
    }

    /// What an object reads and wants, in words.
    pub fn of(&self, object_key: &ObjectKey) -> Vec<String> {
        let all = self.places.get(object_key).into_iter().flatten();
        all.map(ToString::to_string).collect()
    }

    /// What this object may own: what names it as its owner, and what its last step wanted.
    pub fn owned_of(&self, object_key: &ObjectKey) -> BTreeSet<OwnedKey> {
        let wanted = self.places.get(object_key).into_iter().flatten().filter(|place| place.kind.is_made);
        let wanted = wanted.filter_map(|place| {
            Some((place.kind, key_of(place.namespace.as_deref(), place.name.as_deref()?)))
        });
        self.owned.get(object_key).into_iter().flatten().cloned().chain(wanted).collect()
    }
}

/// The machines and clusters of the provider that own an object.
fn owners_of(found: &Auxiliary, kinds: &Kinds) -> Vec<ObjectKey> {
    let Some(namespace) = found.object.namespace.as_deref() else { return Vec::new() };
    let owners = found.metadata.owner_references.iter().flatten();
    let own = owners.filter_map(|owner| {
        let is_of_group = owner.api_version.split('/').next() == Some(kinds.group);
        let kind = match owner.kind.as_str() {
            kind if kind == kinds.machine.kind => ObjectKind::Machine,
            kind if kind == kinds.cluster.kind => ObjectKind::Cluster,
            _ => return None,
        };
        is_of_group.then(|| ObjectKey::new(kind, key_of(Some(namespace), &owner.name)))
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloudprovider::machines::{Kind, ObjectSource as _};
    use serde_json::json;

    use super::*;
    use crate::auxiliary::{AuxiliaryStores, Reader, WireAuxiliary};

    const GUEST: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Guest", "guests")).made();
    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

    fn machine(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Machine, format!("default/{name}"))
    }

    fn guest(owner: &str) -> Auxiliary {
        let wire: WireAuxiliary = serde_json::from_value(json!({
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
        let key: OwnedKey = (GUEST, "default/g".to_owned());
        assert_eq!(dependents.update(key.clone(), Some(&guest("one")), &KINDS), []);
        assert_eq!(dependents.owned_of(&machine("one")), BTreeSet::from([key.clone()]));
        assert!(dependents.owned_of(&machine("other")).is_empty());
        assert_eq!(dependents.update(key.clone(), Some(&guest("two")), &KINDS), [machine("one")]);
        assert!(dependents.owned_of(&machine("one")).is_empty());
        assert_eq!(dependents.update(key, None, &KINDS), [machine("two")]);
        assert!(dependents.owned.is_empty() && dependents.owners.is_empty());
    }

    #[test]
    fn a_change_finds_those_that_have_read() {
        let mut dependents = Dependents::default();
        let reader = Arc::new(Reader::new(AuxiliaryStores::new(&[GUEST])));
        let _not_there_yet = reader.get(&GUEST, Some("default"), "g");
        dependents.read(&machine("one"), &reader.reads());
        let _not_there_yet = reader.list(&GUEST, None);
        dependents.read(&machine("two"), &reader.reads());
        let of = |dependents: &Dependents, key: &str| dependents.readers_of(&GUEST, key).len();
        assert_eq!([of(&dependents, "default/g"), of(&dependents, "default/h")], [2, 1]);
        // Before the watch shows what was made.
        assert_eq!(dependents.owned_of(&machine("one")), BTreeSet::from([(GUEST, "default/g".to_owned())]));
        dependents.read(&machine("two"), &Reads::default());
        dependents.forget(&machine("one"));
        assert!(dependents.readers.is_empty() && dependents.readers().is_empty());
    }
}

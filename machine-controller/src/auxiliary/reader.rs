//! Reads for one step.

use std::{collections::BTreeMap, sync::Arc};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{AuxiliaryKind, AuxiliaryObject, ObjectSource, not_served},
};
use parking_lot::{Mutex, MutexGuard};

use super::{
    reads::{Place, Reads, Seen},
    stores::{AuxiliaryStores, not_listed},
};

/// Reads for one step, and takes note of it.
#[derive(Debug)]
pub struct Reader {
    auxiliary: AuxiliaryStores,
    reads: Mutex<BTreeMap<Place, Seen>>,
}

impl Reader {
    /// Nothing is read yet.
    pub fn new(auxiliary: AuxiliaryStores) -> Self {
        Self { auxiliary, reads: Mutex::default() }
    }

    /// What was read.
    pub fn reads(&self) -> Reads {
        Reads(Arc::new(self.lock().clone()))
    }

    /// Whether the step asked for objects of a kind and got no answer.
    pub(crate) fn has_missed(&self, kind: &AuxiliaryKind) -> bool {
        let reads = self.lock();
        reads.iter().any(|(place, seen)| place.kind == *kind && !matches!(seen, Seen::Objects(_)))
    }

    /// Takes note of a place in which something is wanted: `before` was there when it was decided what to
    /// write, and `after` is there now. If the step has read something else there, that stays, so that it
    /// looks again.
    pub(crate) fn note(&self, place: Place, before: &Seen, after: Seen) {
        let mut reads = self.lock();
        if reads.get(&place).is_none_or(|read| read == before) {
            reads.insert(place, after);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Seen>> {
        self.reads.lock()
    }

    fn read(&self, place: Place) -> Result<Vec<Arc<AuxiliaryObject>>> {
        let (kind, seen) = (place.kind, self.look(&place)?);
        // The first look counts, so that a change after it is seen.
        self.lock().entry(place).or_insert_with(|| seen.clone());
        match seen {
            Seen::Objects(found) => Ok(found.iter().map(|one| Arc::new(one.read())).collect()),
            Seen::NotServed => Err(not_served(&kind)),
            Seen::NotListed => Err(not_listed(&kind)),
        }
    }

    /// What is there now.
    ///
    /// # Errors
    /// A place in which nothing can be.
    fn look(&self, place: &Place) -> Result<Seen> {
        if self.auxiliary.of(&place.kind).is_none() {
            let words = format!("the kind {} is not among those that the provider reads", place.kind.kind);
            return Err(Error::new(ErrorKind::Internal, words));
        }
        let kind = place.kind;
        let is_possible = if kind.is_namespaced {
            place.namespace.is_some() || place.name.is_none()
        } else {
            place.namespace.is_none()
        };
        if !is_possible {
            let is = if kind.is_namespaced { "is in a namespace" } else { "is in no namespace" };
            let words = format!("{place} cannot be read: the kind {} {is}", kind.kind);
            return Err(Error::new(ErrorKind::Internal, words));
        }
        if place.namespace.as_deref().is_some_and(|namespace| self.auxiliary.is_elsewhere(namespace)) {
            let words = format!("{place} cannot be read: with --namespace only that one is looked at");
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        Ok(self.auxiliary.look(place))
    }
}

impl ObjectSource for Reader {
    fn get(
        &self,
        kind: &AuxiliaryKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<AuxiliaryObject>>> {
        Ok(self.read(Place::object(kind, namespace, name))?.pop())
    }

    fn list(&self, kind: &AuxiliaryKind, namespace: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>> {
        self.read(Place::list(kind, namespace))
    }

    /// Nothing is noted, as each change of each object would be news for each step.
    fn any(&self, kind: &AuxiliaryKind, is_it: &mut dyn FnMut(&AuxiliaryObject) -> bool) -> Result<bool> {
        match self.look(&Place::list(kind, None))? {
            Seen::Objects(found) => Ok(found.iter().any(|one| is_it(&one.read()))),
            Seen::NotServed => Err(not_served(kind)),
            Seen::NotListed => Err(not_listed(kind)),
        }
    }

    /// Only the objects in the answer are noted, and not the list: each change of each object would be news
    /// for each owner.
    fn owned_by(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Vec<Arc<AuxiliaryObject>>> {
        let owned = |name: &str| -> Result<Option<Arc<AuxiliaryObject>>> {
            let found = self.read(Place::object(kind, Some(namespace), name))?.pop();
            Ok(found.filter(|found| found.is_owned_by(uid)))
        };
        if let Some(found) = owned(name)? {
            return Ok(vec![found]);
        }
        let names = self.auxiliary.of(kind).map(|store| store.names_owned_by(namespace, uid));
        let all = names.into_iter().flatten().filter(|one| one != name);
        all.filter_map(|name| owned(&name).transpose()).collect()
    }
}

//! Objects beside machines and clusters, as steps read them.

mod object;

use std::{fmt, sync::Arc};

pub use self::object::AuxiliaryObject;
use super::AuxiliaryKind;
use crate::{Error, Result};

/// What a step reads of [auxiliary kinds](AuxiliaryKind). It is a cheap handle, and reads ask nobody: the
/// controller watches the kinds, and answers from what it has seen.
///
/// The controller takes note of what a step read, and of what it did not find. It makes the next step of the
/// object when that changes, so there is nothing to wait for by the clock.
#[derive(Clone, Default)]
pub struct Objects(Option<Arc<dyn ObjectSource>>);

/// Where [`Objects`] come from. The daemon implements it. Not for provider authors.
pub trait ObjectSource: fmt::Debug + Send + Sync {
    /// See [`Objects::get`].
    fn get(
        &self,
        kind: &AuxiliaryKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<AuxiliaryObject>>>;

    /// See [`Objects::list`].
    fn list(&self, kind: &AuxiliaryKind, namespace: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>>;

    /// See [`Objects::any`]. A source that takes notes, or has many objects, does not go by
    /// [`list`](Self::list) as this does.
    fn any(&self, kind: &AuxiliaryKind, is_it: &mut dyn FnMut(&AuxiliaryObject) -> bool) -> Result<bool> {
        Ok(self.list(kind, None)?.iter().any(|object| is_it(object)))
    }

    /// See [`Objects::owned_by`].
    fn owned_by(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Vec<Arc<AuxiliaryObject>>> {
        if let Some(found) = self.get(kind, Some(namespace), name)?.filter(|found| found.is_owned_by(uid)) {
            return Ok(vec![found]);
        }
        let mut all = self.list(kind, Some(namespace))?;
        all.retain(|object| object.is_owned_by(uid));
        Ok(all)
    }
}

impl Objects {
    /// Those of a source.
    pub fn new(source: Arc<dyn ObjectSource>) -> Self {
        Self(Some(source))
    }

    /// These and no others, for tests.
    pub fn of(all: impl IntoIterator<Item = (AuxiliaryKind, AuxiliaryObject)>) -> Self {
        let all = all.into_iter().map(|(kind, object)| (kind, Arc::new(object))).collect();
        Self::new(Arc::new(Fixed(all)))
    }

    /// The object with this name, if there is one. `namespace` is `None` for kinds that are in no namespace.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the API server does not serve the kind: the message
    /// names the CRD. [`Unavailable`](crate::ErrorKind::Unavailable) if the objects have not arrived yet.
    /// [`Internal`](crate::ErrorKind::Internal) for a kind that is not among
    /// [`Kinds::auxiliary`](super::Kinds::auxiliary).
    pub fn get(
        &self,
        kind: &AuxiliaryKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<AuxiliaryObject>>> {
        self.0.as_ref().map_or(Ok(None), |source| source.get(kind, namespace, name))
    }

    /// All objects of a kind, sorted by namespace and name. `namespace` is `None` for those of all
    /// namespaces.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn list(&self, kind: &AuxiliaryKind, namespace: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>> {
        self.0.as_ref().map_or(Ok(Vec::new()), |source| source.list(kind, namespace))
    }

    /// Whether there is an object of a kind, in any namespace, for which `is_it` is true. They are read one
    /// after the other, so thousands of them take no room. What was read is not noted: a change of them makes
    /// no step.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn any(&self, kind: &AuxiliaryKind, mut is_it: impl FnMut(&AuxiliaryObject) -> bool) -> Result<bool> {
        self.0.as_ref().map_or(Ok(false), |source| source.any(kind, &mut is_it))
    }

    /// The objects of a kind in a namespace that name the object with this UID as an owner. If the one called
    /// `name` does, which is looked at first, it is the only one in the answer.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn owned_by(
        &self,
        kind: &AuxiliaryKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Vec<Arc<AuxiliaryObject>>> {
        self.0.as_ref().map_or(Ok(Vec::new()), |source| source.owned_by(kind, namespace, name, uid))
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

/// The error about a kind that the API server does not serve.
pub fn not_served(kind: &AuxiliaryKind) -> Error {
    let AuxiliaryKind { plural, group, version, .. } = kind;
    Error::unsupported(format!(
        "the API server does not serve {plural}.{group} in the version {version}: install its CustomResourceDefinition"
    ))
}

/// A list that does not change.
#[derive(Debug)]
struct Fixed(Vec<(AuxiliaryKind, Arc<AuxiliaryObject>)>);

impl ObjectSource for Fixed {
    fn get(
        &self,
        kind: &AuxiliaryKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<AuxiliaryObject>>> {
        let is_it =
            |object: &AuxiliaryObject| object.namespace.as_deref() == namespace && object.name == name;
        Ok(self.0.iter().find(|(of, object)| of == kind && is_it(object)).map(|(_, object)| object.clone()))
    }

    fn list(&self, kind: &AuxiliaryKind, namespace: Option<&str>) -> Result<Vec<Arc<AuxiliaryObject>>> {
        let is_there =
            |object: &AuxiliaryObject| namespace.is_none_or(|one| object.namespace.as_deref() == Some(one));
        let all = self.0.iter().filter(|(of, object)| of == kind && is_there(object));
        let mut all: Vec<_> = all.map(|(_, object)| object.clone()).collect();
        all.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::Kind;

    const ZONE: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Zone", "zones"));
    const POOL: AuxiliaryKind =
        AuxiliaryKind::new("example.org", "v1", Kind::new("Pool", "pools")).cluster_scoped();

    #[test]
    fn objects_are_found_by_kind_namespace_and_name() {
        let objects = Objects::of([
            (ZONE, AuxiliaryObject::new("b").in_namespace("one")),
            (ZONE, AuxiliaryObject::new("a").in_namespace("one")),
            (ZONE, AuxiliaryObject::new("a").in_namespace("two")),
            (POOL, AuxiliaryObject::new("a")),
        ]);
        let get = |kind: &AuxiliaryKind, namespace: Option<&str>, name: &str| {
            objects.get(kind, namespace, name).expect("an answer").is_some()
        };
        assert!(get(&ZONE, Some("one"), "b") && get(&POOL, None, "a"));
        assert!(!get(&ZONE, Some("two"), "b") && !get(&ZONE, None, "a") && !get(&POOL, None, "b"));
        let names = |namespace: Option<&str>| -> Vec<String> {
            let all = objects.list(&ZONE, namespace).expect("an answer");
            all.iter()
                .map(|one| format!("{}/{}", one.namespace.as_deref().unwrap_or_default(), one.name))
                .collect()
        };
        assert_eq!(names(None), ["one/a", "one/b", "two/a"]);
        assert_eq!(names(Some("two")), ["two/a"]);
        let any = |name: &str| objects.any(&ZONE, |one| one.name == name).expect("an answer");
        assert!(any("b") && !any("c"));
        assert_eq!(Objects::default().get(&ZONE, None, "a").expect("an answer"), None);
        assert!(!Objects::default().any(&ZONE, |_| true).expect("an answer"));
        assert!(Objects::default().owned_by(&ZONE, "one", "a", "u").expect("an answer").is_empty());
    }

    #[test]
    fn objects_are_found_by_their_owner() {
        let of = |name: &str, owner: &str| {
            (ZONE, AuxiliaryObject::new(name).in_namespace("one").with_owners([owner.to_owned()]))
        };
        let objects = Objects::of([of("a", "u-1"), of("b", "u-1"), of("c", "u-2")]);
        let names = |namespace: &str, name: &str, uid: &str| -> Vec<String> {
            let all = objects.owned_by(&ZONE, namespace, name, uid).expect("an answer");
            all.iter().map(|one| one.name.clone()).collect()
        };
        assert_eq!(names("one", "b", "u-1"), ["b"], "that of this name comes first");
        assert_eq!(names("one", "c", "u-1"), ["a", "b"]);
        assert_eq!(names("one", "a", "u-2"), ["c"]);
        assert!(names("two", "a", "u-1").is_empty());
    }

    #[test]
    fn a_kind_that_is_missing_is_named_with_its_crd() {
        let words = not_served(&ZONE).to_string();
        assert!(words.contains("zones.example.org in the version v1"), "{words}");
    }
}

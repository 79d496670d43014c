//! Objects beside machines and clusters that users make, and whose status the provider says.
//!
//! No step is made for them: the provider observes one, and the controller writes its status. They have no
//! owner. Only those that are failure domains have a finalizer, while Machines are in them.

mod decision;
pub mod states;

use std::collections::HashMap;

pub use self::decision::{Next, next, users_of, write_of};
use super::object_key::ObjectKey;

/// The objects that there are, by their UIDs.
#[derive(Debug, Default)]
pub(super) struct StatusOnlyIndex {
    uids: HashMap<ObjectKey, String>,
    by_uid: HashMap<String, ObjectKey>,
}

impl StatusOnlyIndex {
    /// Takes note of the UID that an object has, or that there is no such object. Gives the UID that is gone.
    pub(super) fn update(&mut self, object_key: &ObjectKey, uid: Option<String>) -> Option<String> {
        let before = match &uid {
            Some(uid) => self.uids.insert(object_key.clone(), uid.clone()),
            None => self.uids.remove(object_key),
        };
        let gone = before.filter(|before| Some(before) != uid.as_ref());
        if let Some(gone) = &gone {
            self.by_uid.remove(gone);
        }
        if let Some(uid) = uid {
            self.by_uid.insert(uid, object_key.clone());
        }
        gone
    }

    /// The object with this UID.
    pub(super) fn of_uid(&self, uid: &str) -> Option<&ObjectKey> {
        self.by_uid.get(uid)
    }

    /// Whether there is this object.
    pub(super) fn has(&self, object_key: &ObjectKey) -> bool {
        self.uids.contains_key(object_key)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &ObjectKey> {
        self.uids.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_key::ObjectKind;

    #[test]
    fn a_uid_is_gone_with_its_object() {
        let mut index = StatusOnlyIndex::default();
        let zone = ObjectKey::new(ObjectKind::StatusOnly(1), "z");
        assert_eq!(index.update(&zone, Some("u-1".into())), None);
        assert_eq!(index.update(&zone, Some("u-1".into())), None, "it is still there");
        assert_eq!(index.of_uid("u-1"), Some(&zone));
        // Another one with its name, whose deletion was not seen.
        assert_eq!(index.update(&zone, Some("u-2".into())).as_deref(), Some("u-1"));
        assert_eq!((index.of_uid("u-1"), index.of_uid("u-2")), (None, Some(&zone)));
        assert_eq!(index.update(&zone, None).as_deref(), Some("u-2"));
        assert_eq!(index.update(&zone, None), None);
        assert!(index.all().next().is_none() && index.by_uid.is_empty());
    }
}

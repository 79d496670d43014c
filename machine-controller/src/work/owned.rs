//! Writes the objects that a step wants to have beside its own one.

use std::collections::BTreeSet;

use cloudprovider::{
    Error, ErrorKind,
    machines::{AuxiliaryKind, DesiredObject, Record},
};
use controller_kit::{cache::CachedObject as _, writes::WriteError};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{MAX_READS_AGAIN, Work};
use crate::{
    auxiliary::{Auxiliary, AuxiliaryStore, Place, Reader, Seen, key_of},
    dependents::OwnedKey,
    object_key::ObjectKind,
    owned::{Owner, Reason, Write, next_write, removal},
};

/// Which of those go that a step does not want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwanted {
    /// None: the step may not have come to where it wants them.
    Stay,
    /// Those that this step did not want.
    Go,
    /// All, and also what it wants: nothing is left in the cloud.
    AllGo,
}

impl Work<'_> {
    /// Makes what the step wants to have, and removes what it does not want any more. What cannot be known
    /// yet, since the list of its kind has not arrived, is left for the step that comes with the list.
    ///
    /// # Errors
    /// Why not everything is as it is wanted. Each owned object is tried, and the first error counts.
    pub(super) async fn reconcile_owned(
        &self,
        record: &Record<Value>,
        reader: &Reader,
        unwanted: Unwanted,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut wanted = BTreeSet::new();
        if unwanted != Unwanted::AllGo {
            for one in record.wanted() {
                wanted.insert((one.kind, key_of(Some(self.object.namespace()), &one.name)));
                outcome = outcome.and(self.keep(one, reader).await);
            }
        }
        if unwanted == Unwanted::Stay {
            return outcome;
        }
        if unwanted == Unwanted::AllGo {
            self.check_lists().await?;
        }
        let uids = self.owned_uids();
        for one in self.view.owned.difference(&wanted) {
            // A step that could not read a kind does not say that it wants none of it.
            let is_sure = self.view.auxiliary.of(&one.0).is_some_and(|store| store.check().is_ok());
            if unwanted == Unwanted::AllGo || (is_sure && !reader.has_missed(&one.0)) {
                outcome = outcome.and(self.remove(one, unwanted, &uids).await);
            }
        }
        outcome
    }

    /// Writes until an owned object is as it is wanted.
    async fn keep(&self, wanted: &DesiredObject, reader: &Reader) -> Result<(), Error> {
        let store = self
            .view
            .auxiliary
            .of(&wanted.kind)
            .filter(|store| store.kind.is_made && store.kind.is_namespaced);
        let Some(store) = store else {
            let words = format!("the kind {} is not among those that the provider makes", wanted.kind.kind);
            return Err(Error::new(ErrorKind::Internal, words));
        };
        let namespace = self.object.namespace();
        let place = Place::object(&wanted.kind, Some(namespace), &wanted.name);
        let key = key_of(Some(namespace), &wanted.name);
        let before = self.view.auxiliary.look(&place);
        let outcome = match store.check() {
            Ok(()) => self.keep_in(store, &key, wanted).await,
            // The next step is due when it arrives.
            Err(_) if before == Seen::NotListed => Ok(()),
            Err(error) => Err(error),
        };
        let after = self.view.auxiliary.look(&place);
        // A foreign one that goes makes room.
        reader.note(place, &before, if outcome.is_err() { before.clone() } else { after });
        outcome
    }

    async fn keep_in(&self, store: &AuxiliaryStore, key: &str, wanted: &DesiredObject) -> Result<(), Error> {
        let shared = self.shared;
        let kind = self.view.object_key.kind.kind(&shared.kinds);
        let owned = self.owned_uids();
        let owner = Owner {
            api_version: &shared.api_version,
            kind: &kind,
            namespace: self.object.namespace(),
            name: self.object.name(),
            uid: self.object.metadata.uid.as_deref().unwrap_or_default(),
            cluster: self.object.marked_cluster(&shared.kinds),
            is_deleting: self.object.is_deleting(),
            owned: &owned,
        };
        for _ in 0..=MAX_READS_AGAIN {
            let found = store.get(key);
            let write = next_write(&owner, wanted, found.as_ref(), Timestamp::now())?;
            let Some(write) = write else { return Ok(()) };
            self.write_owned(store, key, &wanted.name, found.as_ref(), &write).await?;
        }
        Err(not_written(store, key, "it changes all the time"))
    }

    /// The UIDs of the owned objects that are there.
    fn owned_uids(&self) -> Vec<String> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let all = self.view.owned.iter();
        let found = all.filter_map(|(kind, key)| self.view.auxiliary.of(kind)?.get(key));
        found.filter(|one| one.is_owned_by(uid)).map(|one| one.object.uid.clone()).collect()
    }

    /// Fails while an owned object may be there that is not known, since the list of its kind has not
    /// arrived. Of a kind that is not served there is none. What a cluster has is left to the garbage
    /// collector then.
    async fn check_lists(&self) -> Result<(), Error> {
        if self.view.object_key.kind != ObjectKind::Machine {
            return Ok(());
        }
        let (namespace, uid) = (self.object.namespace(), self.object.metadata.uid.as_deref());
        let cluster = self.object.marked_cluster(&self.shared.kinds);
        for store in self.view.auxiliary.all().iter().filter(|one| one.kind.is_made && !one.is_missing()) {
            let Err(error) = store.check() else { continue };
            let has = self.shared.writer.has_owned(&store.kind, namespace, cluster, uid.unwrap_or_default());
            match has.await {
                Ok(false) | Err(WriteError::Gone) => {}
                Ok(true) => return Err(error),
                Err(WriteError::Stale(why) | WriteError::Failed(why)) => {
                    let AuxiliaryKind { plural, group, .. } = store.kind;
                    let words = format!("{plural}.{group} cannot be listed: {why}");
                    return Err(Error::new(ErrorKind::Unavailable, words));
                }
            }
        }
        Ok(())
    }

    /// Writes until an owned object goes that is not wanted any more. `uids` are those of the owned objects
    /// that were there.
    async fn remove(&self, (kind, key): &OwnedKey, unwanted: Unwanted, uids: &[String]) -> Result<(), Error> {
        let reason = if unwanted == Unwanted::AllGo { Reason::OwnerGone } else { Reason::Unwanted };
        let Some(store) = self.view.auxiliary.of(kind) else { return Ok(()) };
        for _ in 0..=MAX_READS_AGAIN {
            let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
            let is_ours =
                |found: &Auxiliary| found.is_owned_by(uid) || uids.iter().any(|uid| found.is_owned_by(uid));
            let Some(found) = store.get(key).filter(|found| is_ours(found)) else { return Ok(()) };
            let Some(write) = removal(uid, kind, &found, reason) else { return Ok(()) };
            let name = found.object.name.clone();
            let is_written = self.write_owned(store, key, &name, Some(&found), &write).await?;
            if is_written && write == Write::Delete {
                return Ok(());
            }
        }
        Err(not_written(store, key, "it changes all the time"))
    }

    /// Makes one write. If another program was faster, the object is read, and what is to be written is
    /// decided again. Gives whether it is written.
    async fn write_owned(
        &self,
        store: &AuxiliaryStore,
        key: &str,
        name: &str,
        found: Option<&Auxiliary>,
        write: &Write,
    ) -> Result<bool, Error> {
        let (shared, namespace) = (self.shared, self.object.namespace());
        let begun = Instant::now();
        let answer = shared.writer.write_owned(&store.kind, namespace, name, found, write).await;
        let (begun, read) = match answer {
            Ok(written) => {
                shared.count_write(&self.view.object_key, write.as_str());
                match written {
                    Some(kept) => store.wrote(kept, begun),
                    None => store.vanished(key),
                }
                return Ok(true);
            }
            Err(WriteError::Failed(why)) => return Err(not_written(store, key, &why)),
            Err(WriteError::Gone | WriteError::Stale(_)) => {
                (Instant::now(), shared.writer.read_owned(&store.kind, namespace, name).await)
            }
        };
        match read {
            Ok(kept) => {
                // What the watch shows until then is older.
                if store.cache.get(key).is_none_or(|shown| shown.is_older_than(kept.resource_version())) {
                    store.wrote(kept, begun);
                }
                Ok(false)
            }
            Err(WriteError::Gone) => {
                store.vanished(key);
                Ok(*write == Write::Delete)
            }
            Err(WriteError::Stale(why) | WriteError::Failed(why)) => Err(not_written(store, key, &why)),
        }
    }
}

/// The error about an owned object that the API server did not take.
fn not_written(store: &AuxiliaryStore, key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} {key} is not as it should be: {why}", store.kind.kind))
}

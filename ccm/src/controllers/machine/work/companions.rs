//! Writes the objects that a step wants to have beside its own one.

use std::collections::BTreeSet;

use cloudprovider::{
    Error, ErrorKind,
    machines::{FurtherKind, Record, Wanted},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{MAX_READS_AGAIN, Work};
use crate::{
    cache::CachedObject as _,
    controllers::machine::{
        companions::{Owner, Reason, Write, next_write, removal},
        dependents::CompanionKey,
        further::{FurtherStore, Kept, Place, Reader, Seen, key_of},
        subject::SubjectKind,
    },
    writes::WriteError,
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
    /// Makes what the step wants to have, and removes what it does not want any more. What cannot be known yet, since the list of
    /// its kind has not arrived, is left for the step that comes with the list.
    ///
    /// # Errors
    /// Why not everything is as it is wanted. Each companion is tried, and the first error counts.
    pub(super) async fn companions(
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
        let companions = self.companion_uids();
        for companion in self.view.companions.difference(&wanted) {
            // A step that could not read a kind does not say that it wants none of it.
            let is_sure = self.view.further.of(&companion.0).is_some_and(|store| store.check().is_ok());
            if unwanted == Unwanted::AllGo || (is_sure && !reader.has_missed(&companion.0)) {
                outcome = outcome.and(self.remove(companion, unwanted, &companions).await);
            }
        }
        outcome
    }

    /// Writes until a companion is as it is wanted.
    async fn keep(&self, wanted: &Wanted, reader: &Reader) -> Result<(), Error> {
        let store =
            self.view.further.of(&wanted.kind).filter(|store| store.kind.is_made && store.kind.is_namespaced);
        let Some(store) = store else {
            let words = format!("the kind {} is not among those that the provider makes", wanted.kind.kind);
            return Err(Error::new(ErrorKind::Internal, words));
        };
        let namespace = self.object.namespace();
        let place = Place::object(&wanted.kind, Some(namespace), &wanted.name);
        let key = key_of(Some(namespace), &wanted.name);
        let before = self.view.further.look(&place);
        let outcome = match store.check() {
            Ok(()) => self.keep_in(store, &key, wanted).await,
            // The next step is due when it arrives.
            Err(_) if before == Seen::NotListed => Ok(()),
            Err(error) => Err(error),
        };
        let after = self.view.further.look(&place);
        // A foreign one that goes makes room.
        reader.note(place, &before, if outcome.is_err() { before.clone() } else { after });
        outcome
    }

    async fn keep_in(&self, store: &FurtherStore, key: &str, wanted: &Wanted) -> Result<(), Error> {
        let shared = self.shared;
        let kind = self.view.subject.kind.kind(&shared.kinds);
        let companions = self.companion_uids();
        let owner = Owner {
            api_version: &shared.api_version,
            kind: &kind,
            namespace: self.object.namespace(),
            name: self.object.name(),
            uid: self.object.metadata.uid.as_deref().unwrap_or_default(),
            cluster: self.object.marked_cluster(&shared.kinds),
            is_deleting: self.object.is_deleting(),
            companions: &companions,
        };
        for _ in 0..=MAX_READS_AGAIN {
            let found = store.get(key);
            let write = next_write(&owner, wanted, found.as_ref(), Timestamp::now())?;
            let Some(write) = write else { return Ok(()) };
            self.write_companion(store, key, &wanted.name, found.as_ref(), &write).await?;
        }
        Err(not_written(store, key, "it changes all the time"))
    }

    /// The UIDs of the companions that are there.
    fn companion_uids(&self) -> Vec<String> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let all = self.view.companions.iter();
        let found = all.filter_map(|(kind, key)| self.view.further.of(kind)?.get(key));
        found.filter(|one| one.is_owned_by(uid)).map(|one| one.object.uid.clone()).collect()
    }

    /// Fails while a companion may be there that is not known, since the list of its kind has not arrived. Of a kind that is not
    /// served there is none. What a cluster has is left to the garbage collector then.
    async fn check_lists(&self) -> Result<(), Error> {
        if self.view.subject.kind != SubjectKind::Machine {
            return Ok(());
        }
        let (namespace, uid) = (self.object.namespace(), self.object.metadata.uid.as_deref());
        let cluster = self.object.marked_cluster(&self.shared.kinds);
        for store in self.view.further.all().iter().filter(|one| one.kind.is_made && !one.is_missing()) {
            let Err(error) = store.check() else { continue };
            let has =
                self.shared.writer.has_companions(&store.kind, namespace, cluster, uid.unwrap_or_default());
            match has.await {
                Ok(false) | Err(WriteError::Gone) => {}
                Ok(true) => return Err(error),
                Err(WriteError::Stale(why) | WriteError::Failed(why)) => {
                    let FurtherKind { plural, group, .. } = store.kind;
                    let words = format!("{plural}.{group} cannot be listed: {why}");
                    return Err(Error::new(ErrorKind::Unavailable, words));
                }
            }
        }
        Ok(())
    }

    /// Writes until a companion goes that is not wanted any more. `companions` are the UIDs of those that were there.
    async fn remove(
        &self,
        (kind, key): &CompanionKey,
        unwanted: Unwanted,
        companions: &[String],
    ) -> Result<(), Error> {
        let reason = if unwanted == Unwanted::AllGo { Reason::OwnerGone } else { Reason::Unwanted };
        let Some(store) = self.view.further.of(kind) else { return Ok(()) };
        for _ in 0..=MAX_READS_AGAIN {
            let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
            let is_ours = |found: &Kept| {
                found.is_owned_by(uid) || companions.iter().any(|companion| found.is_owned_by(companion))
            };
            let Some(found) = store.get(key).filter(|found| is_ours(found)) else { return Ok(()) };
            let Some(write) = removal(uid, kind, &found, reason) else { return Ok(()) };
            let name = found.object.name.clone();
            let is_written = self.write_companion(store, key, &name, Some(&found), &write).await?;
            if is_written && write == Write::Delete {
                return Ok(());
            }
        }
        Err(not_written(store, key, "it changes all the time"))
    }

    /// Makes one write. If somebody else was faster, the object is read, and what is to be written is decided again. Gives
    /// whether it is written.
    async fn write_companion(
        &self,
        store: &FurtherStore,
        key: &str,
        name: &str,
        found: Option<&Kept>,
        write: &Write,
    ) -> Result<bool, Error> {
        let (shared, namespace) = (self.shared, self.object.namespace());
        let begun = Instant::now();
        let answer = shared.writer.write_companion(&store.kind, namespace, name, found, write).await;
        let (begun, read) = match answer {
            Ok(written) => {
                shared.count_write(&self.view.subject, write.as_str());
                match written {
                    Some(kept) => store.wrote(kept, begun),
                    None => store.vanished(key),
                }
                return Ok(true);
            }
            Err(WriteError::Failed(why)) => return Err(not_written(store, key, &why)),
            Err(WriteError::Gone | WriteError::Stale(_)) => {
                (Instant::now(), shared.writer.read_companion(&store.kind, namespace, name).await)
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

/// The error about a companion that the API server did not take.
fn not_written(store: &FurtherStore, key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} {key} is not as it should be: {why}", store.kind.kind))
}

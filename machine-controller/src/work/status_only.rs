//! Asks the provider what the status of an object is, and writes it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloudprovider::machines::{Objects, ObserveRequest};
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Ended, Shared, Then};
use crate::{
    auxiliary::{Auxiliary, AuxiliaryStore, Reader},
    concurrency::Permit,
    outcome::{RETRIES, due_after_error},
    owned::Write,
    plan::{Due, Inputs, Memory},
    status_only::{Next, next, users_of, write_of},
    store::Stores,
};

/// The kind of these objects, and the observation of one, in the metrics.
const LABELS: (&str, &str) = ("told", "look");

/// How soon it is looked whether all machines have arrived, or whether an object is gone that the API server
/// does not find.
const SOON: Duration = Duration::from_secs(1);

/// Who is in a failure domain.
enum Users {
    /// These.
    Known(BTreeSet<String>),
    /// Not all machines have arrived.
    NotYetKnown,
    /// Not all of them are seen, or nothing is written.
    NotSeen,
}

/// The work on one status-only object.
pub(crate) struct StatusOnlyWork {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stores: Stores,
    /// `--namespace`: machines of other ones are not seen.
    pub(crate) is_in_namespace: bool,
    /// How many providers have taken over so far.
    pub(crate) provider: u64,
    /// How often in a row it failed so far.
    pub(crate) failures: u32,
    pub(crate) permit: Permit,
}

impl StatusOnlyWork {
    /// Does what is due for the object with this key.
    pub(crate) async fn act(self, store: &AuxiliaryStore, key: &str) -> Ended {
        let Some(found) = store.get(key) else {
            store.vanished(key);
            return Ended::NOTHING;
        };
        let mut memory =
            Memory { inputs: Inputs::of_status_only(&found, self.provider), ..Memory::default() };
        let users = match self.users_of(store, &found) {
            Users::NotYetKnown => return again(memory, self.failures, SOON),
            Users::Known(users) => {
                memory.is_held = found.object.is_deleting && !users.is_empty();
                Some(users)
            }
            Users::NotSeen => None,
        };
        let is_ignored = self.shared.ignores(&found.as_infra());
        match next(&store.kind, &found, is_ignored, users.as_ref(), Timestamp::now()) {
            Next::Rest => ended(memory),
            Next::Write(write) => self.write(store, &found, &write, memory).await,
            Next::Observe => self.observe(store, &found, memory).await,
        }
    }

    /// Who is in the failure domain that an object is. It matters when it is deleted.
    fn users_of(&self, store: &AuxiliaryStore, found: &Auxiliary) -> Users {
        if store.kind.failure_domain.is_none() || self.is_in_namespace || self.shared.dry_run {
            return Users::NotSeen;
        }
        if !found.object.is_deleting {
            return Users::Known(BTreeSet::new());
        }
        let Stores { core_machines, machines, .. } = &self.stores;
        if !core_machines.is_synced() || !machines.is_synced() {
            return Users::NotYetKnown;
        }
        let kind = self.shared.kinds.machine.kind;
        Users::Known(users_of(&found.object.name, &core_machines.all(), &machines.all(), kind))
    }

    async fn observe(&self, store: &AuxiliaryStore, found: &Auxiliary, mut memory: Memory) -> Ended {
        let shared = &self.shared;
        let reader = Arc::new(Reader::new(self.stores.auxiliary.clone()));
        let objects = Objects::new(Arc::<Reader>::clone(&reader));
        let request = ObserveRequest::new(store.kind, Arc::clone(&found.object)).with_objects(objects);
        let Some(answer) = shared.call_cloud(&self.permit, shared.cloud.observe(&request)).await else {
            return Ended { version: None, memory: None, then: Then::Stopped };
        };
        memory.inputs = memory.inputs.with_reads(reader.reads());
        let result = answer.as_ref().map_or_else(|error| error.kind().as_str(), |_| "ok");
        shared.metrics.steps(LABELS.0, LABELS.1, result).inc();
        let report = match answer {
            Ok(report) => report,
            Err(error) => {
                let (kind, name) = (store.kind.kind, &found.object.name);
                tracing::warn!(kind, name, error = %error.log_report(), "the provider cannot say the status of this object");
                memory.failures = self.failures.saturating_add(1);
                memory.due = due_after_error(&error, memory.failures, Instant::now());
                return ended(memory);
            }
        };
        let soon = report.look_again_after.and_then(|after| Instant::now().checked_add(after));
        memory.due = soon.map_or(Due::WhenChanged, Due::At);
        match write_of(&store.kind, &report, found, Timestamp::now()) {
            Some(write) => self.write(store, found, &write, memory).await,
            None => ended(memory),
        }
    }

    /// Makes one write. The watch tells of it, and then the object is observed again.
    async fn write(&self, store: &AuxiliaryStore, found: &Auxiliary, write: &Write, memory: Memory) -> Ended {
        let (kind, name) = (store.kind.kind, &found.object.name);
        if self.shared.dry_run {
            tracing::info!(kind, name, "dry run: a daemon would write what the provider says about it");
            return ended(memory);
        }
        let begun = Instant::now();
        let writer = &self.shared.writer;
        match self.shared.fence.pass(Box::pin(writer.write_status_only(&store.kind, found, write))).await {
            None => Ended { version: None, memory: None, then: Then::Stopped },
            // The watch tells of its end.
            Some(Err(WriteError::Gone)) => again(memory, self.failures, SOON),
            Some(Ok(written)) => {
                self.shared.metrics.writes(LABELS.0, "status").inc();
                store.wrote(written, begun);
                ended(memory)
            }
            Some(Err(error)) => {
                tracing::warn!(kind, name, %error, "the status of this object is not written");
                let failures = self.failures.saturating_add(1);
                again(memory, failures, RETRIES.after(failures))
            }
        }
    }
}

fn again(memory: Memory, failures: u32, after: Duration) -> Ended {
    ended(Memory { due: Due::At(Instant::now() + after), failures, ..memory })
}

fn ended(memory: Memory) -> Ended {
    Ended { version: None, memory: Some(memory), then: Then::Look }
}

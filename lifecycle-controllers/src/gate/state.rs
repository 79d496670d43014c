//! The state of a part, for `/readyz` and `/debug/state`.

use std::sync::Arc;

use component::leader_election::ElectionStatus;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Part, foreign::SeenWrites};

/// What a part does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It looks for the namespaces of the Leases. The text says why that failed, if it did.
    Looks(Option<String>),
    /// It is a candidate for its Leases.
    Waits,
    /// Its controllers run.
    Works,
    /// The daemon writes nothing, so the controllers do not run.
    DryRun,
    /// It has ended with the daemon.
    Ended,
}

/// The state of a part. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct State {
    part: &'static Part,
    /// The name of this process on the Leases.
    identity: String,
    /// Where other managers write without holding the Lease.
    pub(super) seen: SeenWrites,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    phase: Phase,
    elections: Vec<ElectionStatus>,
    ignored: Vec<String>,
}

impl State {
    pub(super) fn new(part: &'static Part, identity: &str) -> Self {
        let shared = Shared { phase: Phase::Looks(None), elections: Vec::new(), ignored: Vec::new() };
        Self {
            part,
            identity: identity.to_owned(),
            seen: SeenWrites::default(),
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    pub(super) fn set(&self, phase: Phase) {
        self.shared.lock().phase = phase;
    }

    /// Forgets the elections of the Leases before.
    pub(super) fn begin(&self, ignored: Vec<String>) {
        let mut shared = self.shared.lock();
        shared.elections.clear();
        shared.ignored = ignored;
        shared.phase = Phase::Waits;
    }

    /// The election for one more Lease, in place of an earlier one for the same.
    pub(super) fn show(&self, election: ElectionStatus) {
        let mut shared = self.shared.lock();
        shared.elections.retain(|known| known.lease() != election.lease());
        shared.elections.push(election);
    }

    /// The check of `/readyz`: the part works. One that is stopped in some namespaces is ready, since a user of a namespace can stop
    /// it there, and the readiness of the daemon is everybody's.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_ready = matches!(self.shared.lock().phase, Phase::Works | Phase::DryRun);
        if is_ready { Ok(()) } else { Err(self.describe()) }
    }

    /// What the part does, in words for people.
    pub(super) fn describe(&self) -> String {
        let shared = self.shared.lock();
        match &shared.phase {
            Phase::Looks(None) => format!("looks for the namespace of the lease {}", self.part.lease),
            Phase::Looks(Some(why)) => {
                format!("cannot find the namespace of the lease {}: {why}", self.part.lease)
            }
            Phase::Waits => {
                let mut holders = shared.elections.iter().map(ElectionStatus::holder);
                match holders.find(|holder| !holder.is_empty() && *holder != self.identity) {
                    Some(holder) => format!("held by {holder}"),
                    None => format!("waits for the lease {}", self.part.lease),
                }
            }
            Phase::Works => match &self.seen.stopped()[..] {
                [] => "works".to_owned(),
                [write] => format!("stopped in namespace {}: {write}", write.namespace),
                [write, others @ ..] => {
                    format!("stopped in namespace {} and {} more: {write}", write.namespace, others.len())
                }
            },
            Phase::DryRun => "does nothing in a dry run".to_owned(),
            Phase::Ended => "ended".to_owned(),
        }
    }

    /// The state for `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let state = self.describe();
        let shared = self.shared.lock();
        json!({
            "state": state,
            "leases": shared.elections.iter().map(ElectionStatus::to_json).collect::<Vec<_>>(),
            "ignoredNamespaces": shared.ignored,
            "foreignWrites": self.seen.stopped().iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

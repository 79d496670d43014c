//! Reboots the machine of an unhealthy Machine, or asks the owner of the Machine to replace it.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result, dns,
    machines::{Condition, ConditionStatus, Objects, Reset},
};
use component::events::{EventObject, EventType};
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Ended, Shared, Then};
use crate::{
    auxiliary::{Auxiliary, AuxiliaryStore, Reader},
    cluster_api::Bootstrap,
    concurrency::Permit,
    conditions::paused,
    names::{CORE_GROUP, HANDED_OVER, OUTCOME_UNKNOWN, OWNER_MISSING, REBOOTED, REBOOTING, reason_of},
    object::InfraObject,
    outcome::{RETRIES, due_after_error},
    owned::Write,
    plan::{CountedReboot, Due, Inputs, Memory, RebootOutcome},
    reboot::{
        Facts, HandOver, Next, Phase, Progress, RebootSpec, Target, ask_owner, is_unseen, next, owner_of,
        status, was_not_made,
    },
    status::record_of,
    view::View,
};

/// The kind of these objects in the metrics.
const KIND: &str = "reboot";

/// The work on one `RebootRemediation`.
pub(crate) struct RebootWork {
    pub(crate) shared: Arc<Shared>,
    /// The version in which the kinds of the core are read and written, if it is known now.
    pub(crate) core_version: Option<&'static str>,
    /// What it was decided from that there is work.
    pub(crate) inputs: Inputs,
    /// The infrastructure with the name that the Machine gives, if this provider has it.
    pub(crate) view: Option<View>,
    /// How many providers have taken over so far.
    pub(crate) provider: u64,
    /// How often in a row it failed so far.
    pub(crate) failures: u32,
    /// The reboot that was counted last, as this process knows it.
    pub(crate) counted: Option<CountedReboot>,
    pub(crate) permit: Permit,
}

/// A remediation, and its Machine as the API server has it now.
struct Remediation<'a> {
    store: &'a AuxiliaryStore,
    found: Auxiliary,
    machine: InfraObject,
    /// The version of the Machine.
    core_version: &'static str,
}

/// What a `RebootRemediation` says of a reboot that was made.
fn rebooted(number: u32, spec: &RebootSpec) -> Condition {
    let (limit, seconds) = (spec.retry_limit, spec.timeout.as_secs());
    let words = format!("reboot {number} of {limit}; the Node has {seconds} s to become healthy");
    Condition::new(REBOOTED, ConditionStatus::True, REBOOTED).with_message(words)
}

/// When a reboot is tried again that was certainly not made.
fn due_again(error: &Error, failures: u32) -> Due {
    let now = Instant::now();
    match due_after_error(error, failures, now) {
        // What has to change for it may not be seen.
        Due::WhenChanged => Due::At(now + RETRIES.after(failures)),
        due => due,
    }
}

impl RebootWork {
    /// Does what is due for the object with this key.
    pub(crate) async fn act(self, store: &AuxiliaryStore, key: &str) -> Ended {
        let Some(found) = store.get(key) else {
            store.vanished(key);
            return Ended::NOTHING;
        };
        if found.object.is_deleting {
            return self.rest();
        }
        let Some(owner) = owner_of(&found) else {
            let words = "metadata.ownerReferences names no Machine with the name of this object";
            let missing = Condition::new(REBOOTED, ConditionStatus::False, OWNER_MISSING).with_message(words);
            let said = self.say(store, &found, &Progress::of(&found), &[missing]).await;
            return said.map_or_else(|ended| ended, |_| self.rest());
        };
        let namespace = found.object.namespace.as_deref().unwrap_or_default();
        let Some(core_version) = self.core_version else { return self.again() };
        let machine = match self.shared.writer.core_machine(core_version, namespace, &owner.name).await {
            Ok(machine) if machine.metadata.uid.as_ref() == Some(&owner.uid) => machine,
            // The API server removes this object too.
            Ok(_) | Err(WriteError::Gone) => return self.rest(),
            Err(error) => {
                tracing::warn!(remediation = key, %error, "the Machine cannot be read");
                return self.again();
            }
        };
        let Some(target) = self.target(&machine).await else { return self.rest() };
        self.decide(Remediation { store, found, machine, core_version }, target).await
    }

    /// What is known of the machine in the cloud. `None`: it is another provider's.
    async fn target(&self, machine: &InfraObject) -> Option<Target> {
        let known = self.known_target(machine)?;
        if !matches!(known, Target::Absent | Target::Unprovisioned) {
            return Some(known);
        }
        // A Machine is replaced for it, and the watch may be late, or leave out what cannot be read.
        // A tenant writes the name, and it becomes a part of a path.
        let name = machine.spec["infrastructureRef"]["name"].as_str().filter(|name| dns::is_subdomain(name));
        let Some(name) = name else { return Some(Target::Held) };
        let is_seen = self.view.as_ref().map(|view| &view.object.metadata.uid);
        Some(match self.shared.writer.infra_machine(machine.namespace(), name).await {
            Err(WriteError::Gone) => Target::Absent,
            Ok(found) if is_seen == Some(&found.metadata.uid) && found.provider_id().is_none() => known,
            Ok(_) => Target::Held,
            Err(error) => {
                tracing::warn!(machine = machine.key(), %error, "its infrastructure cannot be read");
                Target::Held
            }
        })
    }

    /// The same as far as the cache has it.
    fn known_target(&self, machine: &InfraObject) -> Option<Target> {
        let (reference, kinds) = (&machine.spec["infrastructureRef"], &self.shared.kinds);
        let of_version = || reference["apiVersion"].as_str()?.split('/').next();
        let group = reference["apiGroup"].as_str().or_else(of_version);
        if group != Some(kinds.group) || reference["kind"] != kinds.machine.kind {
            return None;
        }
        if self.inputs.is_cluster_paused() {
            return Some(Target::Paused);
        }
        let Some(view) = &self.view else { return Some(Target::Absent) };
        let owner = view.object.core_owner("Machine").map(|owner| owner.uid.as_str());
        if reference["name"] != view.object.name() || owner != machine.metadata.uid.as_deref() {
            return Some(Target::Held);
        }
        let scope = self.shared.scope(self.provider);
        Some(view.machine_context(&view.object, &Bootstrap::Missing).reset_target(&scope))
    }

    /// The reboot that the status counts last. Of one that another process has counted only the status has the time.
    fn last_counted(&self, found: &Auxiliary, progress: &Progress) -> Option<CountedReboot> {
        if let Some(known) = self.counted.filter(|known| known.number == progress.count) {
            return Some(known);
        }
        let left = progress.left(RebootSpec::read(&found.object.spec).timeout, Timestamp::now())?;
        let outcome = if was_not_made(found) { RebootOutcome::NotMade } else { RebootOutcome::Unknown };
        Some(CountedReboot { number: progress.count, until: Instant::now() + left, outcome })
    }

    async fn decide(mut self, remediation: Remediation<'_>, target: Target) -> Ended {
        let Remediation { store, found, machine, .. } = &remediation;
        let progress = Progress::of(found);
        self.counted = self.last_counted(found, &progress);
        let left = self.counted.as_ref().and_then(CountedReboot::left);
        // A status that says more than this process knows is another's.
        let is_running = progress.phase == Phase::Running;
        let is_open =
            self.counted.map_or_else(|| was_not_made(found), |counted| counted.is_open() && is_running);
        let is_unseen = is_unseen(machine, self.inputs.is_connected());
        let can_reset = self.shared.kinds.can_reset;
        let facts = Facts { remediation: found, machine, target, can_reset, left, is_open, is_unseen };
        let (wait, condition, progress) = match next(&facts) {
            Next::Rest => return self.rest(),
            Next::Look(after) => return self.after(after),
            Next::Pause(after) => (after, paused(), progress),
            Next::Wait(left) if progress.phase == Phase::Running => {
                let waiting = Progress { phase: Phase::Waiting, ..progress };
                let spec = RebootSpec::read(&found.object.spec);
                if self.counted.is_some_and(|counted| counted.outcome == RebootOutcome::Made) {
                    (left, rebooted(progress.count, &spec), waiting)
                } else {
                    let words = format!(
                        "reboot {} was begun, and whether it was made is not known; it is not made again",
                        progress.count
                    );
                    let unknown = Condition::new(REBOOTED, ConditionStatus::Unknown, OUTCOME_UNKNOWN);
                    (left, unknown.with_message(words), waiting)
                }
            }
            Next::Wait(left) => return self.after(left),
            Next::Reboot(number) => return self.reboot(remediation, number).await,
            Next::HandOver(why) => return self.hand_over(&remediation, &progress, why).await,
        };
        let said = self.say(store, found, &progress, &[condition]).await;
        said.map_or_else(|ended| ended, |_| self.after(wait))
    }

    /// Counts a reboot, makes it, and says what came of it.
    async fn reboot(mut self, mut remediation: Remediation<'_>, number: u32) -> Ended {
        let spec = RebootSpec::read(&remediation.found.object.spec);
        let RebootSpec { retry_limit, timeout } = spec;
        if self.shared.dry_run {
            tracing::info!(machine = remediation.machine.key(), "dry run: a daemon would reboot it");
            return self.rest();
        }
        // From here on no other pass makes it, whatever becomes of this process. The Node has its time from the last attempt on.
        let mut progress = Progress { phase: Phase::Running, count: number, last: Some(Timestamp::now()) };
        let until = Instant::now() + timeout;
        let words = format!("reboot {number} of {retry_limit} was begun");
        let begun = Condition::new(REBOOTED, ConditionStatus::Unknown, REBOOTING).with_message(words);
        match self.say(remediation.store, &remediation.found, &progress, &[begun]).await {
            Ok(written) => remediation.found = written,
            Err(ended) => return ended,
        }
        let mut counted = CountedReboot { number, until, outcome: RebootOutcome::Unknown };
        self.counted = Some(counted);
        let deadline = Due::At(until);
        let Some(answer) = self.reset().await else {
            return Ended { then: Then::Stopped, ..self.ended(deadline) };
        };
        let result = answer.as_ref().map_or_else(|error| error.kind().as_str(), |_| "ok");
        self.shared.metrics.steps(KIND, "reset", result).inc();
        progress.phase = Phase::Waiting;
        let (condition, due) = match answer {
            Ok(Reset::Absent) => {
                return self.hand_over(&remediation, &progress, HandOver::MachineNotFound).await;
            }
            Ok(_) => {
                let condition = rebooted(number, &spec);
                (self.failures, counted.outcome) = (0, RebootOutcome::Made);
                let words = condition.message.to_string();
                self.record(&remediation.machine, EventType::Normal, "MachineRebooted", words);
                (condition, deadline)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere) =>
            {
                return self.hand_over(&remediation, &progress, HandOver::ResetNotSupported).await;
            }
            Err(error) => {
                let words = format!("reboot {number} of {retry_limit}: {}", error.report());
                self.tell_failure(&remediation.machine, &error, &words);
                let (status, due) = if Reset::may_have_happened(&error) {
                    self.failures = 0;
                    (ConditionStatus::Unknown, deadline)
                } else {
                    self.failures = self.failures.saturating_add(1);
                    (counted.outcome, progress.phase) = (RebootOutcome::NotMade, Phase::Running);
                    (ConditionStatus::False, due_again(&error, self.failures))
                };
                (Condition::new(REBOOTED, status, reason_of(error.kind())).with_message(words), due)
            }
        };
        // If it is not written, the next pass knows it still.
        self.counted = Some(counted);
        let said = self.say(remediation.store, &remediation.found, &progress, &[condition]).await;
        said.map_or_else(|ended| ended, |_| self.ended(due))
    }

    /// Asks the provider. `None`: the term has ended, or the controller stops. Then it is not known what became of it.
    async fn reset(&self) -> Option<Result<Reset>> {
        let view = self.view.as_ref()?;
        let scope = self.shared.scope(self.provider);
        let objects = Objects::new(Arc::new(Reader::new(view.auxiliary.clone())));
        let request = view.machine_context(&view.object, &Bootstrap::Missing).request(&scope);
        let request = request.with_objects(objects);
        let record = record_of(&view.object);
        let call = self.shared.cloud.reset_machine(&request, &record);
        self.shared.call_cloud(&self.permit, Box::pin(call)).await
    }

    /// Asks the owner of the Machine to replace it. First the Machine, then the status of the remediation: a pass after a
    /// crash in between sees that the owner is asked.
    async fn hand_over(&self, remediation: &Remediation<'_>, progress: &Progress, why: HandOver) -> Ended {
        let Remediation { store, found, machine, core_version } = remediation;
        let limit = RebootSpec::read(&found.object.spec).retry_limit;
        let words = why.message(progress.count, limit);
        if self.shared.dry_run {
            tracing::info!(
                machine = machine.key(),
                "dry run: a daemon would ask its owner to replace it: {words}"
            );
            return self.rest();
        }
        if let Some(conditions) = ask_owner(machine, &words, Timestamp::now()) {
            let write = self.shared.writer.write_core_conditions(core_version, machine, &conditions);
            match self.shared.fence.pass(Box::pin(write)).await {
                None => return Ended { version: None, memory: None, then: Then::Stopped },
                Some(Ok(())) => {
                    self.record(machine, EventType::Warning, "RemediationHandedOver", words.clone());
                }
                Some(Err(WriteError::Gone)) => return self.rest(),
                Some(Err(error)) => {
                    tracing::info!(machine = machine.key(), %error, "its owner is not asked yet");
                    return self.again();
                }
            }
        }
        let over = Progress { phase: Phase::HandedOver, ..*progress };
        let condition = Condition::new(HANDED_OVER, ConditionStatus::True, why.reason()).with_message(words);
        let said = self.say(store, found, &over, &[condition]).await;
        said.map_or_else(|ended| ended, |_| self.rest())
    }

    /// Writes the status, unless it says so already. Gives the object as it is then.
    async fn say(
        &self,
        store: &AuxiliaryStore,
        found: &Auxiliary,
        progress: &Progress,
        conditions: &[Condition],
    ) -> Result<Auxiliary, Ended> {
        let new = status(found, progress, conditions, Timestamp::now());
        let Some(new) = new.filter(|_| !self.shared.dry_run) else { return Ok(found.clone()) };
        let (begun, write) = (Instant::now(), Write::Status(new));
        let writer = &self.shared.writer;
        match self.shared.fence.pass(Box::pin(writer.write_status_only(&store.kind, found, &write))).await {
            None => Err(Ended { version: None, memory: None, then: Then::Stopped }),
            Some(Ok(written)) => {
                self.shared.metrics.writes(KIND, "status").inc();
                store.wrote(written.clone(), begun);
                Ok(written)
            }
            // The watch tells of its end.
            Some(Err(WriteError::Gone)) => Err(self.rest()),
            Some(Err(error)) => {
                let name = &found.object.name;
                tracing::info!(remediation = name, %error, "its status is not written yet");
                Err(self.again())
            }
        }
    }

    /// An event once, and each failure in the log.
    fn tell_failure(&self, machine: &InfraObject, error: &Error, words: &str) {
        tracing::warn!(machine = machine.key(), error = %error.log_report(), "the machine is not rebooted");
        if self.failures == 0 {
            self.record(machine, EventType::Warning, "MachineRebootFailed", words.to_owned());
        }
    }

    /// An event about the Machine.
    fn record(&self, machine: &InfraObject, event_type: EventType, reason: &'static str, message: String) {
        if event_type == EventType::Normal {
            tracing::info!(machine = machine.key(), reason, "{message}");
        }
        let about = EventObject {
            api_version: format!("{CORE_GROUP}/{}", self.core_version.unwrap_or_default()).into(),
            kind: "Machine",
            namespace: machine.namespace().to_owned(),
            name: machine.name().to_owned(),
            uid: machine.metadata.uid.clone().unwrap_or_default(),
        };
        self.shared.events.record(about, event_type, reason, message);
    }

    fn rest(&self) -> Ended {
        self.ended(Due::WhenChanged)
    }

    fn after(&self, wait: Duration) -> Ended {
        self.ended(Due::At(Instant::now() + wait))
    }

    /// The API server did not do what it was asked for.
    fn again(&self) -> Ended {
        let failures = self.failures.saturating_add(1);
        let due = Due::At(Instant::now() + RETRIES.after(failures));
        Ended { memory: Some(Memory { failures, ..self.memory(due) }), ..Ended::NOTHING }
    }

    fn ended(&self, due: Due) -> Ended {
        let is_open = self.counted.is_some_and(|counted| counted.is_open());
        let failures = if is_open { self.failures } else { 0 };
        Ended { memory: Some(Memory { failures, ..self.memory(due) }), ..Ended::NOTHING }
    }

    fn memory(&self, due: Due) -> Memory {
        Memory { inputs: self.inputs.clone(), due, reboot: self.counted, ..Memory::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_that_was_not_made_is_always_tried_again() {
        for kind in [ErrorKind::Unavailable, ErrorKind::PermissionDenied, ErrorKind::InvalidInput] {
            let due = due_again(&Error::new(kind, "no"), 1);
            assert!(matches!(due, Due::At(time) if time > Instant::now()), "{kind:?}: {due:?}");
        }
    }
}

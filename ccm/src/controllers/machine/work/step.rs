//! One step of a machine or a cluster, and what is written about it.

use cloudprovider::{
    Error,
    machines::{ClusterReport, Deletion, MachineReport, Record},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{Ended, MAX_READS_AGAIN, NotWritten, Then, Work};
use crate::controllers::machine::{
    object::InfraObject,
    outcome::{Outcome, RETRIES},
    plan::{Due, Memory},
    status::{after_step, record_of},
    subject::SubjectKind,
    surroundings::Bootstrap,
};

/// What a step answered.
#[derive(Debug)]
enum Answer {
    Machine(Result<MachineReport, Error>),
    Cluster(Result<ClusterReport, Error>),
    Deletion(Result<Deletion, Error>),
}

impl Answer {
    fn error(&self) -> Option<&Error> {
        match self {
            Self::Machine(answer) => answer.as_ref().err(),
            Self::Cluster(answer) => answer.as_ref().err(),
            Self::Deletion(answer) => answer.as_ref().err(),
        }
    }

    /// The words of the step and of its result, for the metrics.
    fn labels(&self) -> (&'static str, &'static str) {
        let step = if matches!(self, Self::Deletion(_)) { "delete" } else { "ensure" };
        (step, self.error().map_or("ok", |error| error.kind().as_str()))
    }

    fn outcome(&self, object: &InfraObject, failures: u32, now: Instant) -> Outcome {
        match self {
            Self::Machine(answer) => Outcome::of_machine(object, answer, failures, now),
            Self::Cluster(answer) => Outcome::of_cluster(object, answer, failures, now),
            Self::Deletion(answer) => Outcome::of_deletion(answer, failures, now),
        }
    }
}

impl Work<'_> {
    /// Calls the step that is due and writes what came of it: metadata and spec first, then the status.
    pub(super) async fn step(mut self, bootstrap: &Bootstrap) -> Ended {
        let mut record = record_of(&self.object);
        let Some(answer) = self.call(bootstrap, &mut record).await else {
            return self.end(None, Then::Stopped);
        };
        let (step, result) = answer.labels();
        self.shared.metrics.steps.with_label_values(&[self.view.subject.kind.as_str(), step, result]).inc();
        if let Some(error) = answer.error() {
            tracing::warn!(object = %self.view.subject, step, error = %error.report(), "step failed");
        }
        let before = self.view.memory.as_ref().map_or(0, |memory| memory.failures);
        let failures = if answer.error().is_some() { before.saturating_add(1) } else { 0 };
        // What the step saw. What somebody else writes from now on is something new for the next step.
        let seen = self.object.clone();
        let (outcome, written) = self.write(&answer, &record, failures).await;
        let failures = if outcome.has_failed { before.saturating_add(1) } else { failures };
        let (object, due, then) = match written {
            Written::All if outcome.is_gone => (&self.object, Due::WhenChanged, Then::WhenChanged),
            Written::All => (&self.object, outcome.due, Then::Look),
            Written::AfterOthers => (&seen, outcome.due, Then::Look),
            // The step is made again, since only that says what is to be written.
            Written::Not(Then::TryAgain) => {
                let tries = before.saturating_add(1);
                let due = Due::At(Instant::now() + RETRIES.after(tries));
                let inputs = self.view.inputs(&seen, bootstrap, &self.scope);
                return self.end(Some(Memory { inputs, due, failures: tries }), Then::Look);
            }
            Written::Not(then) => (&seen, outcome.due, then),
        };
        let inputs = self.view.inputs(object, bootstrap, &self.scope);
        self.end(Some(Memory { inputs, due, failures }), then)
    }

    /// `None`: the term has ended, or the controller stops.
    async fn call(&self, bootstrap: &Bootstrap, record: &mut Record<Value>) -> Option<Answer> {
        let (cloud, object) = (&self.shared.cloud, &self.object);
        let call = async {
            match (self.view.subject.kind, object.is_deleting()) {
                (SubjectKind::Machine, is_deleting) => {
                    let request = self.view.machine_situation(object, bootstrap).request(&self.scope);
                    if is_deleting {
                        Answer::Deletion(cloud.delete_machine(&request, record).await)
                    } else {
                        Answer::Machine(cloud.ensure_machine(&request, record).await)
                    }
                }
                (SubjectKind::Cluster | SubjectKind::Template, is_deleting) => {
                    let request = self.view.cluster_situation(object).request(&self.scope);
                    if is_deleting {
                        Answer::Deletion(cloud.delete_cluster(&request, record).await)
                    } else {
                        Answer::Cluster(cloud.ensure_cluster(&request, record).await)
                    }
                }
            }
        };
        self.shared.cut.run_until_cancelled(self.shared.fence.pass(call)).await.flatten()
    }

    async fn write(&mut self, answer: &Answer, record: &Record<Value>, failures: u32) -> (Outcome, Written) {
        let kind = self.view.subject.kind.own_kind(&self.shared.kinds);
        let mut written = Written::All;
        let mut reads = 0;
        loop {
            let mut outcome = answer.outcome(&self.object, failures, Instant::now());
            if self.view.is_paused(&self.object) {
                outcome = outcome.while_paused();
            }
            match self.write_outcome(&outcome, record, &kind).await {
                Ok(()) => return (outcome, written),
                Err(NotWritten::Early(then)) => return (outcome, Written::Not(then)),
                Err(NotWritten::Stale) if reads == MAX_READS_AGAIN => {
                    return (outcome, Written::Not(Then::TryAgain));
                }
                Err(NotWritten::Stale) => {}
            }
            if let Err(NotWritten::Early(then)) = self.read_again().await {
                return (outcome, Written::Not(then));
            }
            (written, reads) = (Written::AfterOthers, reads + 1);
        }
    }

    async fn write_outcome(
        &mut self,
        outcome: &Outcome,
        record: &Record<Value>,
        kind: &cloudprovider::machines::Kind,
    ) -> Result<(), NotWritten> {
        if let Some(body) = outcome.patch(&self.object, &self.shared.kinds, kind) {
            self.patch(&body).await?;
        }
        let happening = outcome.happening(&self.object);
        if outcome.is_gone {
            return Ok(());
        }
        let before = self.object.clone();
        if let Some(status) = after_step(&self.object, record, &outcome.told, Timestamp::now()) {
            self.write_status(&status).await?;
        }
        if let Some(happening) = happening {
            self.shared.record(&self.view.subject, &before, happening);
        }
        Ok(())
    }
}

/// How far the outcome of a step is written.
enum Written {
    /// All of it, to the object that the step saw.
    All,
    /// All of it, and others have changed the object meanwhile.
    AfterOthers,
    /// Not all of it.
    Not(Then),
}

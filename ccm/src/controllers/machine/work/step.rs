//! One step of a machine or a cluster, and what is written about it.

use std::sync::Arc;

use cloudprovider::{
    Error, ErrorKind,
    machines::{ClusterReport, Deletion, MachineReport, Objects, Record},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{Ended, MAX_READS_AGAIN, NotWritten, Then, Work, companions::Unwanted};
use crate::controllers::machine::{
    conditions::is_news,
    further::Reader,
    names::{COMPANIONS_UP_TO_DATE, DELETING},
    object::InfraObject,
    outcome::{Happening, Outcome, RETRIES, about_companions, due_after_error},
    plan::{Due, Memory, Untold, says_paused},
    status::{after_step, record_of, with_conditions, without_condition},
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

    /// The same step with this error, if it has none of its own.
    fn with_error(self, error: Error) -> Self {
        match self {
            failed if failed.error().is_some() => failed,
            Self::Machine(_) => Self::Machine(Err(error)),
            Self::Cluster(_) => Self::Cluster(Err(error)),
            Self::Deletion(_) => Self::Deletion(Err(error)),
        }
    }

    /// Which companions go that the step did not want.
    fn unwanted(&self) -> Unwanted {
        match self {
            Self::Machine(Ok(_)) | Self::Cluster(Ok(_)) => Unwanted::Go,
            Self::Deletion(Ok(Deletion::Gone)) => Unwanted::AllGo,
            _ => Unwanted::Stay,
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
    /// Calls the step that is due and writes what came of it: metadata and spec first, then the status, and then the companions.
    /// Trouble with those hides nothing of what the step saw. Only of what is gone, they go first.
    pub(super) async fn step(mut self, bootstrap: &Bootstrap) -> Ended {
        let given = record_of(&self.object);
        let unwritten = self.view.memory.as_ref().and_then(|memory| memory.unwritten_of(&self.object));
        let mut record = match unwritten {
            Some(earlier) => given.clone().with_unwritten(earlier),
            None => given.clone(),
        };
        let reader = Arc::new(Reader::new(self.view.further.clone()));
        let Some(answer) = self.call(bootstrap, &reader, &mut record).await else {
            return self.end(None, Then::Stopped);
        };
        let unwanted = answer.unwanted();
        let answer = match unwanted {
            Unwanted::AllGo => match self.companions(&record, &reader, unwanted).await {
                Ok(()) => answer,
                Err(error) => answer.with_error(error),
            },
            Unwanted::Stay | Unwanted::Go => answer,
        };
        let (step, result) = answer.labels();
        self.shared.metrics.steps(self.view.subject.kind.as_str(), step, result).inc();
        if let Some(error) = answer.error() {
            tracing::warn!(object = %self.view.subject, step, error = %error.report(), "step failed");
        }
        if let Some((untold, due)) = self.told_late(&answer, (&given, &record))
            && self.holds_move(&answer).await
        {
            let inputs = self.view.inputs(&self.object, bootstrap, &self.scope).with_reads(reader.reads());
            let memory =
                Memory { inputs, due, untold: Some(untold), unwritten: Some(record), ..Memory::default() };
            return self.end(Some(memory), Then::Look);
        }
        let before = self.view.memory.as_ref().map_or(0, |memory| memory.failures);
        let failures = if answer.error().is_some() { before.saturating_add(1) } else { 0 };
        // What the step saw. What somebody else writes from now on is something new for the next step.
        let seen = self.object.clone();
        let (mut outcome, mut written) = self.write(&answer, (&given, &record), failures).await;
        let mut failures = if outcome.has_failed { before.saturating_add(1) } else { failures };
        let may_go_on = !matches!(written, Written::Not(_)) && !self.view.is_paused(&self.object);
        if unwanted != Unwanted::AllGo && may_go_on {
            let trouble = self.companions(&record, &reader, unwanted).await.err();
            if let Some(error) = &trouble {
                tracing::warn!(object = %self.view.subject, error = %error.report(), "companions not written");
                failures = before.saturating_add(1);
                outcome.due = outcome.due.or(due_after_error(error, failures, Instant::now()));
            }
            written = self.tell_trouble(trouble.as_ref(), before, written).await;
        }
        let is_released = outcome.is_gone && matches!(written, Written::All | Written::AfterOthers);
        let released = is_released.then(Instant::now);
        let (object, due, then) = match written {
            Written::All if outcome.is_gone => (&self.object, Due::WhenChanged, Then::WhenChanged),
            Written::All => (&self.object, outcome.due, Then::Look),
            Written::AfterOthers => (&seen, outcome.due, Then::Look),
            // The step is made again, since only that says what is to be written.
            Written::Not(Then::TryAgain) => {
                let tries = before.saturating_add(1);
                let due = Due::At(Instant::now() + RETRIES.after(tries));
                let inputs = self.view.inputs(&seen, bootstrap, &self.scope).with_reads(reader.reads());
                let memory =
                    Memory { inputs, due, failures: tries, unwritten: Some(record), ..Memory::default() };
                return self.end(Some(memory), Then::Look);
            }
            Written::Not(then) => (&seen, outcome.due, then),
        };
        let inputs = self.view.inputs(object, bootstrap, &self.scope).with_reads(reader.reads());
        self.end(Some(Memory { inputs, due, failures, released, ..Memory::default() }), then)
    }

    /// The wait of a machine that is not told yet, and when the next step is due. Nothing is written then: neither what was seen nor
    /// what is wanted beside the machine. A deletion is one wait, whatever it does just now.
    fn told_late(
        &self,
        answer: &Answer,
        (given, record): (&Record<Value>, &Record<Value>),
    ) -> Option<(Untold, Due)> {
        let (wait, reason) = match answer {
            Answer::Machine(Ok(report)) if !self.object.is_provisioned() => {
                report.wait().map(|wait| (wait, wait.reason.clone()))?
            }
            Answer::Deletion(Ok(Deletion::Deleting(wait))) => (wait, DELETING.into()),
            _ => return None,
        };
        // As long as the status says that it is paused, each step is due at once.
        if !wait.is_told_late || says_paused(&self.object) || self.view.is_paused(&self.object) {
            return None;
        }
        let now = Instant::now();
        let outcome = answer.outcome(&self.object, 0, now);
        let kind = self.view.subject.kind.own_kind(&self.shared.kinds);
        let is_news = outcome.patch(&self.object, &self.shared.kinds, &kind).is_some()
            || after_step(&self.object, given, record, &outcome.told, Timestamp::now()).is_some();
        if outcome.has_failed || !is_news {
            return None;
        }
        let memory = self.view.memory.as_ref();
        let known = memory.and_then(|memory| memory.untold_of(&self.object, &reason));
        let untold = known.cloned().unwrap_or(Untold { reason, since: now });
        let told_at = untold.told_at();
        (now < told_at).then(|| (untold, outcome.due.or(Due::At(told_at))))
    }

    /// Lets a move wait for a task of which nothing is told yet. Gives whether it does, or need not.
    async fn holds_move(&mut self, answer: &Answer) -> bool {
        let outcome = answer.outcome(&self.object, 0, Instant::now());
        let Some(body) = outcome.hold(&self.object) else { return true };
        // What did not work is written with everything else.
        self.patch(&body).await.is_ok()
    }

    /// `None`: the term has ended, or the controller stops.
    async fn call(
        &self,
        bootstrap: &Bootstrap,
        reader: &Arc<Reader>,
        record: &mut Record<Value>,
    ) -> Option<Answer> {
        let objects = Objects::new(Arc::<Reader>::clone(reader));
        let (cloud, object) = (&self.shared.cloud, &self.object);
        let call = async {
            match (self.view.subject.kind, object.is_deleting()) {
                (SubjectKind::Machine, is_deleting) => {
                    let request = self.view.machine_situation(object, bootstrap).request(&self.scope);
                    let request = request.with_objects(objects);
                    if is_deleting {
                        Answer::Deletion(cloud.delete_machine(&request, record).await)
                    } else {
                        Answer::Machine(cloud.ensure_machine(&request, record).await)
                    }
                }
                (SubjectKind::Cluster | SubjectKind::Template, is_deleting) => {
                    let request = self.view.cluster_situation(object).request(&self.scope);
                    let request = request.with_objects(objects);
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

    async fn write(
        &mut self,
        answer: &Answer,
        records: (&Record<Value>, &Record<Value>),
        failures: u32,
    ) -> (Outcome, Written) {
        let kind = self.view.subject.kind.own_kind(&self.shared.kinds);
        let mut written = Written::All;
        let mut reads = 0;
        loop {
            let mut outcome = answer.outcome(&self.object, failures, Instant::now());
            if self.view.is_paused(&self.object) {
                outcome = outcome.while_paused();
            }
            match self.write_outcome(&outcome, records, &kind).await {
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

    /// Says in a condition of its own what is wrong with the companions. It goes when nothing is. What may pass by itself is told
    /// when it comes a second time.
    async fn tell_trouble(
        &mut self,
        trouble: Option<&Error>,
        failures_before: u32,
        mut written: Written,
    ) -> Written {
        let may_pass = |error: &Error| {
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::RateLimited)
        };
        if failures_before == 0 && trouble.is_some_and(may_pass) {
            return written;
        }
        let condition = trouble.map(about_companions);
        for _ in 0..=MAX_READS_AGAIN {
            let status = match &condition {
                Some(condition) => {
                    with_conditions(&self.object, std::slice::from_ref(condition), Timestamp::now())
                }
                None => without_condition(&self.object, COMPANIONS_UP_TO_DATE),
            };
            let Some(status) = status else { return written };
            let before = self.object.clone();
            match self.write_status(&status).await {
                Ok(()) => {
                    if let Some(condition) = condition.filter(|condition| is_news(&before, condition)) {
                        self.shared.record(&self.view.subject, &before, Happening::warning(&condition));
                    }
                    return written;
                }
                Err(NotWritten::Early(then)) => return Written::Not(then),
                Err(NotWritten::Stale) => {}
            }
            if let Err(NotWritten::Early(then)) = self.read_again().await {
                return Written::Not(then);
            }
            written = Written::AfterOthers;
        }
        Written::Not(Then::TryAgain)
    }

    async fn write_outcome(
        &mut self,
        outcome: &Outcome,
        (given, record): (&Record<Value>, &Record<Value>),
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
        if let Some(status) = after_step(&self.object, given, record, &outcome.told, Timestamp::now()) {
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

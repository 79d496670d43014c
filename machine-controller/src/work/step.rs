//! One step of a machine or a cluster, and what is written about it.

use std::{borrow::Cow, sync::Arc};

use cloudprovider::{
    Error, ErrorKind,
    machines::{ClusterReport, Deletion, Kind, MachineReport, Objects, Record, Wait, WaitsFor},
};
use controller_kit::writes::GONE_FOR;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{Ended, MAX_READS_AGAIN, NotWritten, Then, Work, owned::Unwanted};
use crate::{
    auxiliary::Reader,
    cluster_api::Bootstrap,
    conditions::is_news,
    deferred::{DeferredStatus, may_be_deferred},
    names::{COMPANIONS_UP_TO_DATE, DELETING},
    object::InfraObject,
    object_key::ObjectKind,
    outcome::{Event, Outcome, RETRIES, about_owned, due_after_error},
    plan::{Due, Memory, says_paused},
    status::{after_step, record_of, with_conditions, without_condition},
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

    /// What a machine waits for that is to exist.
    fn wait_of_machine(&self) -> Option<&Wait> {
        match self {
            Self::Machine(Ok(report)) => report.wait(),
            _ => None,
        }
    }

    /// The reason of the wait that is all that the status says, if it may be written later: that of a machine
    /// that never was complete, or of a deletion, which is one wait whatever it does just now.
    fn deferrable(&self, object: &InfraObject) -> Option<Cow<'static, str>> {
        match self {
            Self::Machine(_) if !object.is_provisioned() => {
                self.wait_of_machine().filter(|wait| may_be_deferred(wait)).map(|wait| wait.reason.clone())
            }
            Self::Deletion(Ok(Deletion::Deleting(wait))) => {
                may_be_deferred(wait).then_some(Cow::Borrowed(DELETING))
            }
            _ => None,
        }
    }

    /// Which owned objects go that the step did not want.
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
    /// Calls the step that is due and writes what came of it: metadata and spec first, then the status, and
    /// then the owned objects. Trouble with those hides nothing of what the step saw. Only of what is gone,
    /// they go first.
    pub(super) async fn step(mut self, bootstrap: &Bootstrap) -> Ended {
        let given = record_of(&self.object);
        let mut record = match self.deferred_record() {
            Some(earlier) => given.clone().with_deferred(earlier),
            None => given.clone(),
        };
        let reader = Arc::new(Reader::new(self.view.auxiliary.clone()));
        let Some(answer) = self.call(bootstrap, &reader, &mut record).await else {
            return self.end(None, Then::Stopped);
        };
        let known = self.view.memory.as_ref();
        let was_called_without = known.is_some_and(|known| known.needs_no_bootstrap_of(&self.object));
        let wait = answer.wait_of_machine();
        if was_called_without && wait.is_some_and(|wait| wait.waits_for == WaitsFor::BootstrapData) {
            tracing::debug!(object = %self.view.object_key, "the step needs the bootstrap data: calling it again");
            self.count_step(&answer);
            let inputs = self.view.inputs(&self.object, bootstrap, &self.scope).with_reads(reader.reads());
            let reason = wait.map(|wait| wait.reason.clone()).unwrap_or_default();
            let deferred = DeferredStatus::of_wait(self.deferred(), reason, Some(record), Instant::now());
            let (due, deferred) = (Due::Now, Some(deferred));
            let memory = Memory { inputs, due, deferred, needs_no_bootstrap: false, ..self.remembered() };
            return self.end(Some(memory), Then::Look);
        }
        let needs_no_bootstrap = wait.map_or(was_called_without, |wait| !wait.needs_bootstrap_data);
        let unwanted = answer.unwanted();
        let answer = match unwanted {
            Unwanted::AllGo => match self.reconcile_owned(&record, &reader, unwanted).await {
                Ok(()) => answer,
                Err(error) => answer.with_error(error),
            },
            Unwanted::Stay | Unwanted::Go => answer,
        };
        let step = self.count_step(&answer);
        if let Some(error) = answer.error() {
            tracing::warn!(object = %self.view.object_key, step, error = %error.log_report(), "step failed");
        }
        // What the step saw. A write by another program from here on makes the next step due.
        let seen = Arc::clone(&self.object);
        if let Some((deferred, due)) = self.defer(&answer, (&given, &record))
            && let Some(is_alone) = self.write_at_once(&answer).await
        {
            let object = if is_alone { &self.object } else { &seen };
            let inputs = self.view.inputs(object, bootstrap, &self.scope).with_reads(reader.reads());
            let deferred = Some(deferred);
            let memory = Memory { inputs, due, needs_no_bootstrap, deferred, ..Memory::default() };
            return self.end(Some(memory), Then::Look);
        }
        let before = self.view.memory.as_ref().map_or(0, |memory| memory.failures);
        let failures = if answer.error().is_some() { before.saturating_add(1) } else { 0 };
        let (mut outcome, mut written) = self.write(&answer, (&given, &record), failures).await;
        let mut failures = if outcome.has_failed { before.saturating_add(1) } else { failures };
        let may_go_on = !matches!(written, Written::Not(_)) && !self.view.is_paused(&self.object);
        if unwanted != Unwanted::AllGo && may_go_on {
            let trouble = self.reconcile_owned(&record, &reader, unwanted).await.err();
            if let Some(error) = &trouble {
                tracing::warn!(object = %self.view.object_key, error = %error.log_report(), "companions not written");
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
                let (now, failures) = (Instant::now(), before.saturating_add(1));
                let due = Due::At(now + RETRIES.after(failures));
                let inputs = self.view.inputs(&seen, bootstrap, &self.scope).with_reads(reader.reads());
                let deferred = Some(DeferredStatus::refused(record, now));
                let memory =
                    Memory { inputs, due, failures, needs_no_bootstrap, deferred, ..Memory::default() };
                return self.end(Some(memory), Then::Look);
            }
            Written::Not(Then::Gone) => {
                (&seen, outcome.due.or(Due::At(Instant::now() + GONE_FOR)), Then::Gone)
            }
            Written::Not(then) => (&seen, outcome.due, then),
        };
        let inputs = self.view.inputs(object, bootstrap, &self.scope).with_reads(reader.reads());
        let memory = Memory { inputs, due, failures, needs_no_bootstrap, released, ..Memory::default() };
        self.end(Some(memory), then)
    }

    /// The status that a step leaves, if it is written later, and when the next step is due. What the step
    /// wants beside the object is written with it.
    fn defer(
        &self,
        answer: &Answer,
        (given, record): (&Record<Value>, &Record<Value>),
    ) -> Option<(DeferredStatus, Due)> {
        let reason = answer.deferrable(&self.object)?;
        // As long as the status says that it is paused, each step is due at once.
        if says_paused(&self.object) || self.view.is_paused(&self.object) {
            return None;
        }
        let now = Instant::now();
        let outcome = answer.outcome(&self.object, 0, now);
        let kind = self.own_kind();
        let is_news = outcome.patch(&self.object, &self.shared.kinds, &kind).is_some()
            || after_step(&self.object, (given, record), &outcome.observed, &kind, Timestamp::now())
                .is_some();
        if outcome.has_failed || !is_news {
            return None;
        }
        let deferred = DeferredStatus::of_wait(self.deferred(), reason, Some(record.clone()), now);
        let at = deferred.due();
        (now < at).then(|| (deferred, outcome.due.or(Due::At(at))))
    }

    /// Writes what is not deferred: the provider ID, and that a move waits for a task. `None` if that is not
    /// written. Else whether the object had no other change meanwhile.
    ///
    /// The core looks at an object once a second at most. Were the provider ID written together with the
    /// status at the end, the core would look after the first of the two writes, and see the second one only
    /// a second later.
    async fn write_at_once(&mut self, answer: &Answer) -> Option<bool> {
        let mut is_alone = true;
        for _ in 0..=MAX_READS_AGAIN {
            let outcome = answer.outcome(&self.object, 0, Instant::now());
            let kind = self.own_kind();
            let Some(body) = outcome.at_once(&self.object, &self.shared.kinds, &kind) else {
                return Some(is_alone);
            };
            match self.patch(&body).await {
                Ok(()) => return Some(is_alone),
                Err(NotWritten::Early(_)) => return None,
                Err(NotWritten::Stale) => is_alone = false,
            }
            if self.read_again().await.is_err() || self.view.is_paused(&self.object) {
                return None;
            }
        }
        None
    }

    /// Counts a step, and gives its name.
    fn count_step(&self, answer: &Answer) -> &'static str {
        let (step, result) = answer.labels();
        self.shared.metrics.steps(self.view.object_key.kind.as_str(), step, result).inc();
        step
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
            match (self.view.object_key.kind, object.is_deleting()) {
                (ObjectKind::Machine, is_deleting) => {
                    let request = self.view.machine_context(object, bootstrap).request(&self.scope);
                    let request = request.with_objects(objects);
                    if is_deleting {
                        Answer::Deletion(cloud.delete_machine(&request, record).await)
                    } else {
                        Answer::Machine(cloud.ensure_machine(&request, record).await)
                    }
                }
                (_, is_deleting) => {
                    let request = self.view.cluster_context(object).request(&self.scope);
                    let request = request.with_objects(objects);
                    if is_deleting {
                        Answer::Deletion(cloud.delete_cluster(&request, record).await)
                    } else {
                        Answer::Cluster(cloud.ensure_cluster(&request, record).await)
                    }
                }
            }
        };
        self.shared.call_cloud(&self.permit, Box::pin(call)).await
    }

    async fn write(
        &mut self,
        answer: &Answer,
        records: (&Record<Value>, &Record<Value>),
        failures: u32,
    ) -> (Outcome, Written) {
        let kind = self.own_kind();
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

    /// Says in a condition of its own what is wrong with the owned objects. It goes when nothing is. Trouble
    /// that may pass by itself is written when it comes a second time.
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
        let condition = trouble.map(about_owned);
        for _ in 0..=MAX_READS_AGAIN {
            let status = match &condition {
                Some(condition) => {
                    let table = self.own_kind().v1beta1_conditions;
                    with_conditions(&self.object, std::slice::from_ref(condition), table, Timestamp::now())
                }
                None => without_condition(&self.object, COMPANIONS_UP_TO_DATE),
            };
            let Some(status) = status else { return written };
            let before = Arc::clone(&self.object);
            match self.write_status(&status).await {
                Ok(()) => {
                    if let Some(condition) = condition.filter(|condition| is_news(&before, condition)) {
                        self.shared.record(&self.view.object_key, &before, Event::warning(&condition));
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
        records: (&Record<Value>, &Record<Value>),
        kind: &Kind,
    ) -> Result<(), NotWritten> {
        if let Some(body) = outcome.patch(&self.object, &self.shared.kinds, kind) {
            self.patch(&body).await?;
        }
        let event = outcome.event(&self.object);
        if outcome.is_gone {
            return Ok(());
        }
        let before = Arc::clone(&self.object);
        if let Some(status) = after_step(&self.object, records, &outcome.observed, kind, Timestamp::now()) {
            self.write_status(&status).await?;
        }
        if let Some(event) = event {
            self.shared.record(&self.view.object_key, &before, event);
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

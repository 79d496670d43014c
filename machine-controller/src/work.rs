//! The work on one object: what its turn came for is decided once more, and done.

mod identity;
mod owned;
pub(super) mod reboot;
pub(super) mod status_only;
mod step;
mod template;

use std::{sync::Arc, time::Duration};

use cloudprovider::machines::{Condition, Kind, Kinds, Record};
use component::{
    backoff::Backoff,
    events::{EventObject, EventRecorder, EventType},
};
use controller_kit::{
    clients::TermFence,
    cloud::Cloud,
    writes::{WriteError, WrittenVersion},
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    cluster_api::Bootstrap,
    concurrency::Permit,
    conditions::{is_news, not_paused, paused, with_twin},
    deferred::DeferredStatus,
    metrics::ControllerMachineMetrics,
    names::IDENTITY_IN_USE,
    object::InfraObject,
    object_key::ObjectKey,
    outcome::{Event, adoption, release, unblock},
    plan::{Due, Memory, Next, Scope},
    status::{with_conditions, with_record},
    view::View,
    writer::ObjectWriter,
};

/// How often an object is read again in one piece of work because it changed meanwhile.
const MAX_READS_AGAIN: usize = 5;

/// The waits for a Secret with bootstrap data that is not there, or cannot be used.
const BOOTSTRAP_WAITS: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_secs(60) };

/// What the tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cloud: Cloud,
    /// Closed when another leader may call the cloud.
    pub(super) fence: TermFence,
    pub(super) kinds: Kinds,
    pub(super) writer: ObjectWriter,
    pub(super) events: EventRecorder,
    pub(super) metrics: ControllerMachineMetrics,
    /// `apiVersion` of the objects, for events.
    pub(super) api_version: Arc<str>,
    /// `--watch-filter`
    pub(super) watch_filter: Option<String>,
    /// `--dry-run`: no step is called, and nothing is written.
    pub(super) dry_run: bool,
    /// Cancelled when steps are given up.
    pub(super) cut: CancellationToken,
}

/// How a piece of work ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The version of the last write.
    pub(super) version: Option<WrittenVersion>,
    /// What is remembered from now on. `None` leaves what was remembered.
    pub(super) memory: Option<Memory>,
    pub(super) then: Then,
}

impl Ended {
    /// There was nothing to do.
    pub(super) const NOTHING: Self = Self { version: None, memory: None, then: Then::Look };
}

/// When the object is scheduled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// At once: its memory says what is due.
    Look,
    /// When something changes.
    WhenChanged,
    /// Soon, since the API server did not do what it was asked for.
    TryAgain,
    /// When the watch shows that the object is gone, as the API server says, or else after
    /// [`GONE_FOR`](controller_kit::writes::GONE_FOR).
    Gone,
    /// The term has ended.
    Stopped,
}

/// Why a write was the last one of this piece of work.
pub(super) enum NotWritten {
    /// It changed meanwhile.
    Stale,
    /// It is to end like this.
    Early(Then),
}

/// How the question ended which machine in the cloud is the object's own.
pub(super) enum Identified {
    /// The next write was made, or was not.
    Written(Result<(), NotWritten>),
    /// Nothing more can be done now.
    Ended(Then, Option<Box<Memory>>),
}

/// An object at work.
pub(super) struct Work<'a> {
    pub(super) shared: &'a Shared,
    pub(super) view: &'a View,
    pub(super) scope: Scope<'a>,
    /// The newest version.
    pub(super) object: Arc<InfraObject>,
    pub(super) version: Option<WrittenVersion>,
    permit: Permit,
}

impl Shared {
    pub(super) fn scope(&self, provider: u64) -> Scope<'_> {
        Scope {
            kinds: &self.kinds,
            watch_filter: self.watch_filter.as_deref(),
            provider,
            now: Instant::now(),
        }
    }

    /// Does what is due for a machine or a cluster.
    pub(super) async fn act(&self, view: &View, provider: u64, permit: Permit) -> Ended {
        let work = Work {
            shared: self,
            view,
            scope: self.scope(provider),
            object: Arc::clone(&view.object),
            version: None,
            permit,
        };
        work.act().await
    }

    /// Calls the cloud. `None`: the term has ended, or the controller stops.
    pub(super) async fn call_cloud<T>(&self, permit: &Permit, call: impl Future<Output = T>) -> Option<T> {
        // Its state is large, and would be in that of everything around it.
        let call = permit.call(Box::pin(self.fence.pass(call)));
        self.cut.run_until_cancelled(call).await.flatten()
    }

    pub(super) fn record(&self, object_key: &ObjectKey, object: &InfraObject, event: Event) {
        let kind = object_key.kind.own_kind(&self.kinds).kind;
        let about = EventObject {
            api_version: self.api_version.to_string().into(),
            kind,
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
        };
        // A step that fails has a line of its own.
        if event.event_type == EventType::Normal {
            tracing::info!(object = %object_key, reason = %event.reason, "{}", event.message);
        }
        self.events.record(about, event.event_type, event.reason, event.message);
    }

    pub(super) fn count_write(&self, object_key: &ObjectKey, what: &str) {
        self.metrics.writes(object_key.kind.as_str(), what).inc();
    }
}

impl Work<'_> {
    async fn act(mut self) -> Ended {
        let mut bootstrap = self.view.unread();
        for _ in 0..=MAX_READS_AGAIN {
            let next = self.view.next(&self.object, &bootstrap, &self.scope);
            if let Some(words) = self.would_do(&next) {
                tracing::info!(object = %self.view.object_key, "dry run: a daemon would {words}");
                return self.end(None, Then::WhenChanged);
            }
            let written = match next {
                Next::Ignore | Next::Rest => return self.rest(&bootstrap),
                Next::At(at) => return self.wait_until(at, &bootstrap),
                Next::Defer(ready) => return self.defer_wait(&ready, &bootstrap),
                Next::ReadBootstrap => match self.read_bootstrap().await {
                    Ok(read) => {
                        bootstrap = read;
                        continue;
                    }
                    Err(error) => Err(self.not_written("bootstrap data not read", error)),
                },
                Next::SayPaused => match self.say_paused().await {
                    Ok(()) => return self.end(None, Then::WhenChanged),
                    Err(error) => Err(error),
                },
                Next::Say(ready) => {
                    if let Some(rival) = self.view.rival().filter(|_| ready.reason == IDENTITY_IN_USE) {
                        tracing::warn!(object = %self.view.object_key, other = rival, "another object has its identity");
                    }
                    match self.say(&[ready, not_paused()]).await {
                        Ok(()) => return self.rest(&bootstrap),
                        Err(error) => Err(error),
                    }
                }
                Next::Identify => match self.identify(&bootstrap).await {
                    Identified::Written(written) => written,
                    Identified::Ended(then, memory) => return self.end(memory.map(|memory| *memory), then),
                },
                Next::Adopt => {
                    let kind = self.own_kind();
                    self.patch(&adoption(&self.object, &self.shared.kinds, &kind)).await
                }
                Next::Release => {
                    let kind = self.own_kind();
                    match self.patch(&release(&self.object, &self.shared.kinds, &kind)).await {
                        Ok(()) => return self.end(None, Then::WhenChanged),
                        Err(error) => Err(error),
                    }
                }
                Next::Ensure | Next::Delete => return self.step(&bootstrap).await,
            };
            match written {
                Ok(()) => {}
                Err(NotWritten::Stale) => {
                    if let Err(NotWritten::Early(then)) = self.read_again().await {
                        return self.end(None, then);
                    }
                }
                Err(NotWritten::Early(then)) => return self.end(None, then),
            }
        }
        // It changes all the time.
        self.end(None, Then::TryAgain)
    }

    /// In a dry run: what a daemon would do.
    fn would_do(&self, next: &Next) -> Option<&'static str> {
        if !self.shared.dry_run {
            return None;
        }
        match next {
            Next::Ignore | Next::Rest | Next::At(_) | Next::ReadBootstrap => None,
            Next::SayPaused => Some("say in its status that it is paused"),
            Next::Say(_) | Next::Defer(_) => Some("say in its status what it waits for"),
            Next::Identify => Some("find out which machine in the cloud is its own, and take it over"),
            Next::Adopt => Some("write finalizer and mark, and then look at it in the cloud"),
            Next::Ensure => Some("go one step towards it in the cloud"),
            Next::Delete => Some("delete what was made for it in the cloud"),
            Next::Release => Some("remove the finalizer"),
        }
    }

    /// Nothing more is due now. A Secret that is missing is read again, since the controller does not watch
    /// Secrets.
    fn rest(self, bootstrap: &Bootstrap) -> Ended {
        if !matches!(bootstrap, Bootstrap::Missing | Bootstrap::Unusable(_))
            || self.view.bootstrap_secret.is_none()
        {
            return self.end(None, Then::WhenChanged);
        }
        let inputs = self.view.inputs(&self.object, bootstrap, &self.scope);
        let known = self.view.memory.as_ref().filter(|known| known.inputs == inputs);
        let failures = known.map_or(1, |known| known.failures.saturating_add(1));
        let due = Due::At(Instant::now() + BOOTSTRAP_WAITS.after(failures));
        let memory = Memory { inputs, due, failures, ..self.remembered() };
        self.end(Some(memory), Then::Look)
    }

    /// Nothing is due before this time.
    fn wait_until(self, at: Instant, bootstrap: &Bootstrap) -> Ended {
        let is_read = self.view.bootstrap_secret.is_some() && !matches!(bootstrap, Bootstrap::Unread);
        // Else the Secret would be read again at once.
        let memory = is_read.then(|| Memory {
            inputs: self.view.inputs(&self.object, bootstrap, &self.scope),
            due: Due::At(at),
            ..self.remembered()
        });
        self.end(memory, Then::Look)
    }

    /// A wait begins that is written once it has lasted.
    fn defer_wait(self, ready: &Condition, bootstrap: &Bootstrap) -> Ended {
        let deferred = DeferredStatus::of_wait(self.deferred(), ready.reason.clone(), None, Instant::now());
        let memory = Memory {
            inputs: self.view.inputs(&self.object, bootstrap, &self.scope),
            due: Due::At(deferred.due()),
            deferred: Some(deferred),
            ..self.remembered()
        };
        self.end(Some(memory), Then::Look)
    }

    /// The status of this object that is not written yet.
    fn deferred(&self) -> Option<&DeferredStatus> {
        self.view.memory.as_ref()?.deferred_of(&self.object)
    }

    /// What steps have recorded that is not written yet.
    fn deferred_record(&self) -> Option<&Record<Value>> {
        self.deferred()?.record.as_ref()
    }

    /// What is remembered of this object, or nothing.
    fn remembered(&self) -> Memory {
        self.view.memory.as_ref().filter(|memory| memory.is_of(&self.object)).cloned().unwrap_or_default()
    }

    fn end(self, memory: Option<Memory>, then: Then) -> Ended {
        Ended { version: self.version, memory, then }
    }

    async fn read_bootstrap(&self) -> Result<Bootstrap, WriteError> {
        match &self.view.bootstrap_secret {
            Some(name) => self.shared.writer.bootstrap(self.object.namespace(), name).await,
            None => Ok(Bootstrap::Missing),
        }
    }

    /// Says that it is paused, with what steps have recorded that is not written yet. It may move from now
    /// on.
    async fn say_paused(&mut self) -> Result<(), NotWritten> {
        let status = self.deferred_record().and_then(|record| with_record(&self.object, record));
        if let Some(status) = status {
            self.write_status(&status).await?;
        }
        if let Some(body) = unblock(&self.object) {
            self.patch(&body).await?;
        }
        self.say(&[paused()]).await
    }

    /// Its kind.
    fn own_kind(&self) -> Kind {
        self.view.object_key.kind.own_kind(&self.shared.kinds)
    }

    /// Says these conditions in the status, and what `Ready` says also where the kind has another condition
    /// for that. An event tells of a new reason of `Ready`.
    async fn say(&mut self, wanted: &[Condition]) -> Result<(), NotWritten> {
        let kind = self.own_kind();
        let all = with_twin(wanted, kind.ready_twin);
        let status = with_conditions(&self.object, &all, kind.v1beta1_conditions, Timestamp::now());
        let Some(status) = status else { return Ok(()) };
        let news: Vec<_> = wanted.iter().filter(|one| is_worth_an_event(&self.object, one)).collect();
        let before = Arc::clone(&self.object);
        self.write_status(&status).await?;
        for one in news {
            let event = Event {
                event_type: EventType::Normal,
                reason: one.reason.to_string(),
                message: one.message.to_string(),
            };
            self.shared.record(&self.view.object_key, &before, event);
        }
        Ok(())
    }

    /// Writes metadata or spec. The object is the written one afterwards.
    pub(super) async fn patch(&mut self, body: &Value) -> Result<(), NotWritten> {
        let kind = self.view.object_key.kind;
        let answer = self.shared.writer.patch(kind, &self.object, body).await;
        self.take(answer, "object")
    }

    /// Writes the status. The object is the written one afterwards.
    pub(super) async fn write_status(&mut self, status: &Map<String, Value>) -> Result<(), NotWritten> {
        let kind = self.view.object_key.kind;
        let answer = self.shared.writer.write_status(kind, &self.object, status).await;
        self.take(answer, "status")
    }

    fn take(
        &mut self,
        answer: Result<InfraObject, WriteError>,
        what: &'static str,
    ) -> Result<(), NotWritten> {
        match answer {
            Ok(written) => {
                self.shared.count_write(&self.view.object_key, what);
                self.version.clone_from(&written.metadata.resource_version);
                self.object = Arc::new(written);
                Ok(())
            }
            Err(error) => Err(self.not_written(&format!("{what} not written"), error)),
        }
    }

    fn not_written(&self, what: &str, error: WriteError) -> NotWritten {
        match error {
            WriteError::Stale(_) => NotWritten::Stale,
            WriteError::Gone => NotWritten::Early(Then::Gone),
            WriteError::Failed(why) => {
                tracing::warn!(object = %self.view.object_key, error = why, "{what}");
                NotWritten::Early(Then::TryAgain)
            }
        }
    }

    /// Reads the object, which has changed meanwhile.
    pub(super) async fn read_again(&mut self) -> Result<(), NotWritten> {
        match self.shared.writer.read(self.view.object_key.kind, &self.object).await {
            Ok(found) => {
                // What the cache shows until then is older.
                self.version.clone_from(&found.metadata.resource_version);
                self.object = Arc::new(found);
                Ok(())
            }
            Err(error) => Err(self.not_written("object not read", error)),
        }
    }
}

/// An object that is not paused says nothing new about that.
fn is_worth_an_event(object: &InfraObject, condition: &Condition) -> bool {
    is_news(object, condition) && *condition != not_paused()
}

//! The loops that act on what [`step`] decides.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    LeaderElectionOptions,
    fence::Fence,
    lock::{Lock, LockError},
    releases::Releases,
    status::ElectionStatus,
    step::{Candidate, Observation, Op, Record, step},
};
use crate::{
    events::{EventObject, EventRecorder, EventType},
    metrics::Metrics,
};

/// client-go's: a standby waits for its retry period and up to this many more of them.
const JITTER: f64 = 1.2;

/// Longest pause between two looks of a standby that may not watch the Lease.
const LOOK_WITHOUT_WATCH: Duration = Duration::from_millis(500);

/// How long giving the Lease back may take in all.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two tries of that.
const RELEASE_RETRY: Duration = Duration::from_millis(200);

/// Leadership ended against our will: another one may lead now. As upstream, the process has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// That on the daemon's own Lease.
    #[error("leaderelection lost")]
    Main,
    /// That on the Lease of leader migration.
    #[error("migration leaderelection lost")]
    Migration,
}

/// A candidate that does not lead.
#[derive(Debug)]
pub struct Elector {
    lock: Lock,
    candidate: Candidate,
    options: LeaderElectionOptions,
    events: EventRecorder,
    metrics: Metrics,
    status: ElectionStatus,
    fence: Fence,
    observed: Option<Observed>,
    /// The holder that was logged last.
    reported: String,
    /// Whether the last look failed: one line for each outage.
    failing: bool,
    /// Whether the Lease may be ours: a write that makes it ours was sent, whatever was heard of it.
    may_hold: bool,
}

/// The Lease as it was last read or written.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    seen: Observation,
}

/// How one try ended.
enum Attempt {
    /// We hold the Lease; the write that says so was sent at that time.
    Held { sent: Instant },
    /// Somebody else holds it, until then at least.
    NotYet { until: Instant },
    /// We led, and somebody else holds it.
    Lost { holder: String },
    /// The API server refused or did not answer.
    Failed(LockError),
}

/// Leadership: work may be done while [`renew`](Self::renew) runs beside it.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    /// Until when nobody else can have taken over.
    valid_until: Instant,
}

impl Elector {
    /// A candidate on the Lease that `options` name. `client` should be one that nothing else keeps waiting.
    pub fn new(
        client: Client,
        options: LeaderElectionOptions,
        events: &EventRecorder,
        metrics: Metrics,
    ) -> Self {
        metrics.leader_election_master_status.with_label_values(&[&options.name]).set(0);
        Self {
            lock: Lock::new(client, &options.namespace, &options.name, options.request_timeout()),
            candidate: Candidate {
                identity: options.identity.clone(),
                lease_duration: options.lease_duration,
            },
            status: ElectionStatus::new(&options),
            fence: Fence::default(),
            options,
            events: events.clone(),
            metrics,
            observed: None,
            reported: String::new(),
            failing: false,
            may_hold: false,
        }
    }

    /// What is known of the election, now and later.
    pub fn status(&self) -> ElectionStatus {
        self.status.clone()
    }

    /// Waits until we lead. `None`: `stop` was cancelled first.
    pub async fn acquire(mut self, stop: &CancellationToken) -> Option<Leadership> {
        let mut releases = Releases::new(self.lock.clone());
        tracing::info!(lease = %self.describe(), identity = self.candidate.identity, "waiting for leadership");
        loop {
            let Some(attempt) = stop.run_until_cancelled(self.attempt(false)).await else { break };
            let pause = self.options.retry_period.mul_f64(fastrand::f64().mul_add(JITTER, 1.0));
            let pause = if releases.allowed { pause } else { pause.min(LOOK_WITHOUT_WATCH) };
            let mut look_at = Instant::now() + pause;
            match attempt {
                Attempt::Held { sent } => {
                    let valid_until = sent + self.options.leads_for();
                    // An answer that took this long is worth nothing any more.
                    if Instant::now() < valid_until {
                        return Some(self.lead(valid_until));
                    }
                }
                Attempt::NotYet { until } => look_at = look_at.min(until),
                Attempt::Lost { .. } => {}
                Attempt::Failed(error) => self.report_failure(&error),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep_until(look_at) => {}
                () = releases.next() => {}
            }
        }
        if self.may_hold {
            self.give_back().await;
        }
        None
    }

    fn lead(self, valid_until: Instant) -> Leadership {
        self.fence.open_until(valid_until);
        self.status.set_leads(true);
        self.metrics.leader_election_master_status.with_label_values(&[&self.options.name]).set(1);
        self.record_event("became leader");
        tracing::info!(lease = %self.describe(), identity = self.candidate.identity, "became leader");
        Leadership { elector: self, valid_until }
    }

    /// One try to get or to keep the Lease.
    async fn attempt(&mut self, leads: bool) -> Attempt {
        if leads && self.observed.as_ref().is_some_and(|o| o.seen.record.holder == self.candidate.identity) {
            // As a rule nobody else writes, and what we wrote last is still what is there.
            match self.act(true).await {
                Attempt::Failed(error) => tracing::debug!(%error, "renewal needs a look at the lease"),
                attempt => return attempt,
            }
        }
        match self.lock.get().await {
            Ok(lease) => self.observe(lease),
            Err(error) => return Attempt::Failed(error),
        }
        if self.observed.as_ref().is_some_and(|o| o.seen.record.holder == self.candidate.identity) {
            self.metrics.leader_election_slowpath.with_label_values(&[&self.options.name]).inc();
        }
        self.act(leads).await
    }

    /// Does what [`step`] says about the Lease as it was observed.
    async fn act(&mut self, leads: bool) -> Attempt {
        let seen = self.observed.as_ref().map(|observed| &observed.seen);
        let op = step(&self.candidate, leads, seen, Instant::now(), Timestamp::now());
        // Set before, since this future may be dropped while the request is on its way.
        self.may_hold |= matches!(op, Op::Create(_) | Op::Replace(_));
        let sent = Instant::now();
        let written = match op {
            Op::Wait { until } => return Attempt::NotYet { until },
            Op::Lost { holder } => return Attempt::Lost { holder },
            Op::Create(record) => self.lock.create(&record).await,
            Op::Replace(record) => match &self.observed {
                Some(observed) => self.lock.replace(&observed.lease, &record).await,
                None => self.lock.create(&record).await,
            },
        };
        match written {
            Ok(lease) => {
                self.observe(Some(lease));
                Attempt::Held { sent }
            }
            Err(error) => Attempt::Failed(error),
        }
    }

    fn observe(&mut self, lease: Option<Lease>) {
        if std::mem::take(&mut self.failing) {
            tracing::info!(lease = %self.describe(), "the lease can be read again");
        }
        let Some(lease) = lease else {
            self.observed = None;
            return;
        };
        let before = self.observed.take().map(|observed| observed.seen);
        let seen = Observation::of(Record::read(lease.spec.as_ref()), before.as_ref(), Instant::now());
        let holder = &seen.record.holder;
        if *holder != self.reported && *holder != self.candidate.identity && !holder.is_empty() {
            tracing::info!(lease = %self.describe(), leader = holder, "somebody else leads");
        }
        self.reported.clone_from(holder);
        self.status.observed(&seen.record, seen.changed);
        self.observed = Some(Observed { lease, seen });
    }

    fn report_failure(&mut self, error: &LockError) {
        // Of several candidates for a free Lease all but one end here.
        if matches!(error, LockError::Conflict(_)) {
            tracing::debug!(lease = %self.describe(), %error, "somebody else was faster");
        } else if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(lease = %self.describe(), %error, "cannot take part in the leader election, trying again");
        }
    }

    /// Writes that nobody holds the Lease, if it is ours.
    async fn give_back(&mut self) {
        let tries = async {
            loop {
                let error = match self.try_to_give_back().await {
                    Ok(()) => return,
                    Err(error) => error,
                };
                tracing::debug!(%error, "lease not given back yet");
                tokio::time::sleep(RELEASE_RETRY).await;
            }
        };
        if timeout(RELEASE_TIMEOUT, tries).await.is_err() {
            tracing::warn!(
                lease = %self.describe(),
                "the lease could not be given back: others wait until it expires"
            );
        }
    }

    async fn try_to_give_back(&mut self) -> Result<(), LockError> {
        // Read first: a renewal may have been written whose answer did not reach us.
        let Some(lease) = self.lock.get().await? else { return Ok(()) };
        let record = Record::read(lease.spec.as_ref());
        if record.holder == self.candidate.identity {
            self.lock.replace(&lease, &record.released(Timestamp::now())).await?;
            tracing::info!(lease = %self.describe(), "lease given back");
        }
        Ok(())
    }

    fn record_event(&self, what: &str) {
        let uid = self.observed.as_ref().and_then(|observed| observed.lease.metadata.uid.as_deref());
        let lease = EventObject::lease(&self.lock.namespace, &self.lock.name, uid.unwrap_or_default());
        let message = format!("{} {what}", self.candidate.identity);
        self.events.record(lease, EventType::Normal, "LeaderElection", message);
    }

    fn describe(&self) -> String {
        format!("{}/{}", self.lock.namespace, self.lock.name)
    }
}

impl Leadership {
    /// What the writes that only the leader may do have to pass.
    pub fn fence(&self) -> &Fence {
        &self.elector.fence
    }

    /// Renews the Lease until that fails for good; then nothing more may be written. May be dropped at any time, for
    /// [`release`](Self::release).
    pub async fn renew(&mut self) {
        let retry_period = self.elector.options.retry_period;
        let mut next = Instant::now() + retry_period;
        loop {
            sleep_until(next.min(self.valid_until)).await;
            if Instant::now() >= self.valid_until {
                return self.lose("it could not be renewed in time");
            }
            match timeout_at(self.valid_until, self.elector.attempt(true)).await {
                Ok(Attempt::Held { sent }) => {
                    self.valid_until = sent + self.elector.options.leads_for();
                    self.elector.fence.open_until(self.valid_until);
                }
                Ok(Attempt::Lost { holder }) => return self.lose(&format!("{holder} holds it")),
                Ok(Attempt::Failed(error)) => {
                    let left = self.valid_until.saturating_duration_since(Instant::now());
                    tracing::warn!(
                        lease = %self.elector.describe(),
                        %error,
                        "lease not renewed, leading for {left:.1?} more at most"
                    );
                }
                // Never, for one who leads; and should it be, the time is running. The other: the time is over.
                Ok(Attempt::NotYet { .. }) | Err(_) => {}
            }
            next = Instant::now() + retry_period;
        }
    }

    fn lose(&self, why: &str) {
        tracing::error!(lease = %self.elector.describe(), "leadership lost: {why}");
        self.stopped();
    }

    fn stopped(&self) {
        self.elector.fence.close();
        self.elector.status.set_leads(false);
        let name = &self.elector.options.name;
        self.elector.metrics.leader_election_master_status.with_label_values(&[name]).set(0);
        self.elector.record_event("stopped leading");
    }

    /// Gives the Lease back, so that the next one begins at once. Only for one whose work has ended: what is still on
    /// its way would meet the work of the next leader. Takes five seconds at most.
    pub async fn release(mut self) {
        self.elector.give_back().await;
        self.stopped();
    }
}

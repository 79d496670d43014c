//! The loops that carry out the decisions of [`step`].

use std::time::Duration;

use basics::LogOnce;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    LeaderElectionOptions,
    clock::{Clock, Moment},
    fence::{Fence, Term},
    lock::{Lock, LockError},
    metrics::ElectionMetrics,
    releases::Releases,
    status::ElectionStatus,
    step::{Candidate, Observation, Op, Record, step},
};
use crate::events::{EventObject, EventRecorder, EventType};

/// As in client-go, a standby waits for its retry period and for up to this many more of them.
const JITTER: f64 = 1.2;

/// Longest pause between two reads of a standby that may not watch the Lease.
const LOOK_WITHOUT_WATCH: Duration = Duration::from_millis(500);

/// Time limit for releasing the Lease, all tries included.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two tries to release it.
const RELEASE_RETRY: Duration = Duration::from_millis(200);

/// Leadership ended involuntarily, so another candidate may lead now. As in upstream, the process has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Leadership on the daemon's own Lease.
    #[error("leaderelection lost")]
    Main,
    /// Leadership on the Lease of leader migration.
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
    metrics: ElectionMetrics,
    clock: Clock,
    status: ElectionStatus,
    fence: Fence,
    observed: Option<Observed>,
    /// The holder that was logged last.
    reported: String,
    /// Whether the last read failed. Each outage has one line in the log.
    failing: LogOnce<()>,
    /// Whether this process may hold the Lease: a write that acquires it was sent, whatever the response.
    may_hold: bool,
}

/// The Lease as it was last read or written.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    seen: Observation,
}

/// The result of one try.
enum Attempt {
    /// This process holds the Lease. The write that acquired or renewed it was sent at that time.
    Held { sent: Moment },
    /// Another candidate holds the Lease, at least until then.
    NotYet { until: Instant },
    /// This process led, and another candidate holds the Lease now.
    Lost { holder: String },
    /// The API server refused or did not answer.
    Failed(LockError),
}

/// Leadership. The leader may work while [`renew`](Self::renew) runs at the same time.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    /// No other candidate can have taken over before this time on the elector's clock.
    valid_until: Instant,
}

impl Elector {
    /// A candidate for the Lease that `options` name. Other requests should not delay those of `client`.
    pub fn new(
        client: Client,
        options: LeaderElectionOptions,
        events: &EventRecorder,
        metrics: ElectionMetrics,
    ) -> Self {
        metrics.leader_election_master_status.with_label_values(&[&options.name]).set(0);
        Self {
            lock: Lock::new(client, &options.namespace, &options.name, options.request_timeout()),
            candidate: Candidate {
                identity: options.identity.clone(),
                lease_duration: options.lease_duration,
            },
            status: ElectionStatus::new(&options, Clock::system()),
            fence: Fence::default(),
            clock: Clock::system(),
            options,
            events: events.clone(),
            metrics,
            observed: None,
            reported: String::new(),
            failing: LogOnce::default(),
            may_hold: false,
        }
    }

    /// Uses this clock instead. Must be called before anything else.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self {
            status: ElectionStatus::new(&self.options, clock.clone()),
            fence: Fence::new(clock.clone()),
            clock,
            ..self
        }
    }

    /// The state of the election. It is updated continuously.
    pub fn status(&self) -> ElectionStatus {
        self.status.clone()
    }

    /// Waits until this process leads. `None` if `stop` was cancelled first.
    pub async fn acquire(mut self, stop: &CancellationToken) -> Option<Leadership> {
        let mut releases = Releases::new(self.lock.clone());
        tracing::info!(lease = %self.describe(), identity = self.candidate.identity, "waiting for leadership");
        loop {
            let Some(attempt) = stop.run_until_cancelled(self.attempt(false)).await else { break };
            let pause = self.options.retry_period.mul_f64(fastrand::f64().mul_add(JITTER, 1.0));
            let pause = if releases.allowed { pause } else { pause.min(LOOK_WITHOUT_WATCH) };
            let mut look_at = self.clock.now() + pause;
            // A Lease that can be read, and not written, as in a namespace that is being deleted, is still of no use.
            if !matches!(attempt, Attempt::Failed(_)) && self.failing.ends(&()) {
                tracing::info!(lease = %self.describe(), "takes part in the leader election again");
            }
            match attempt {
                Attempt::Held { sent } => {
                    // A response that took this long is of no use any more.
                    if self.clock.now() < sent.at + self.options.leads_for() {
                        return Some(self.lead(sent));
                    }
                }
                Attempt::NotYet { until } => look_at = look_at.min(until),
                Attempt::Lost { .. } => {}
                Attempt::Failed(error) => self.report_failure(&error),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.clock.sleep_until(look_at) => {}
                () = releases.next() => {}
            }
        }
        if self.may_hold {
            self.give_back().await;
        }
        None
    }

    fn lead(self, sent: Moment) -> Leadership {
        let term = self.term(sent);
        self.fence.open(term);
        self.status.set_leads(true);
        self.metrics.leader_election_master_status.with_label_values(&[&self.options.name]).set(1);
        self.record_event("became leader");
        tracing::info!(lease = %self.describe(), identity = self.candidate.identity, "became leader");
        Leadership { valid_until: sent.at + term.leads_for, elector: self }
    }

    /// The term after a renewal that was sent at this time.
    fn term(&self, sent: Moment) -> Term {
        Term { began: sent, leads_for: self.options.leads_for(), alone_for: self.options.alone_for() }
    }

    /// Tries once to acquire or to renew the Lease.
    async fn attempt(&mut self, leads: bool) -> Attempt {
        if leads && self.observed.as_ref().is_some_and(|o| o.seen.record.holder == self.candidate.identity) {
            // Usually no other candidate writes, so the Lease is still as this process last wrote it.
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

    /// Does what [`step`] decides for the observed Lease.
    async fn act(&mut self, leads: bool) -> Attempt {
        let seen = self.observed.as_ref().map(|observed| &observed.seen);
        let op = step(&self.candidate, leads, seen, self.clock.now(), Timestamp::now());
        // Set before the request, since this future may be dropped while the request is in flight.
        self.may_hold |= matches!(op, Op::Create(_) | Op::Replace(_));
        let sent = self.clock.moment();
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
        let Some(lease) = lease else {
            self.observed = None;
            return;
        };
        let before = self.observed.take().map(|observed| observed.seen);
        let seen = Observation::of(Record::read(lease.spec.as_ref()), before.as_ref(), self.clock.now());
        let holder = &seen.record.holder;
        if *holder != self.reported && *holder != self.candidate.identity && !holder.is_empty() {
            tracing::info!(lease = %self.describe(), leader = holder, "somebody else leads");
        }
        self.reported.clone_from(holder);
        self.status.observed(&seen.record, seen.changed);
        self.observed = Some(Observed { lease, seen });
    }

    fn report_failure(&mut self, error: &LockError) {
        // If several candidates want a free Lease, all but one end here.
        if matches!(error, LockError::Conflict(_)) {
            tracing::debug!(lease = %self.describe(), %error, "somebody else was faster");
        } else if self.failing.begins(&()) {
            tracing::warn!(lease = %self.describe(), %error, "cannot take part in the leader election, trying again");
        }
    }

    /// Releases the Lease if this process holds it.
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
        // Reads first: a renewal may have been written although its response was lost.
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
    /// The fence that the leader's writes have to pass.
    pub fn fence(&self) -> &Fence {
        &self.elector.fence
    }

    /// Renews the Lease until that fails for good. Nothing may be written after that. This future may be
    /// dropped at any time, in order to call [`release`](Self::release).
    pub async fn renew(&mut self) {
        let (retry_period, clock) = (self.elector.options.retry_period, self.elector.clock.clone());
        let fence = self.elector.fence.clone();
        let mut next = clock.now() + retry_period;
        // Writes fail while the fence is closed, so the renewal that opens it does not wait for the retry
        // period.
        let mut comes_early = true;
        loop {
            tokio::select! {
                () = clock.sleep_until(next.min(self.valid_until)) => {}
                () = fence.closed(), if comes_early => {}
            }
            if clock.now() >= self.valid_until {
                return self.lose("it could not be renewed in time");
            }
            if !fence.is_open() {
                tracing::warn!(
                    lease = %self.elector.describe(),
                    "the time of day leapt ahead: nothing is written until the lease is renewed"
                );
            }
            match timeout(clock.left(self.valid_until), self.elector.attempt(true)).await {
                Ok(Attempt::Held { sent }) => {
                    let term = self.elector.term(sent);
                    self.valid_until = sent.at + term.leads_for;
                    fence.open(term);
                    comes_early = true;
                }
                Ok(Attempt::Lost { holder }) => return self.lose(&format!("{holder} holds it")),
                Ok(Attempt::Failed(error)) => {
                    comes_early = false;
                    let left = clock.left(self.valid_until);
                    tracing::warn!(
                        lease = %self.elector.describe(),
                        %error,
                        "lease not renewed, leading for {left:.1?} more at most"
                    );
                }
                // `NotYet` cannot happen to a leader, and its deadline would end the term in any case. `Err`
                // means that the term is over.
                Ok(Attempt::NotYet { .. }) | Err(_) => {}
            }
            next = clock.now() + retry_period;
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

    /// Ends the leadership without releasing the Lease: nothing passes the fence any more, and other candidates wait until the
    /// Lease expires. For a leader whose work is interrupted, as a request of it may still be in flight. A candidate with the
    /// same identity takes the Lease at once.
    pub fn abandon(self) {
        self.stopped();
    }

    /// Releases the Lease, so that another candidate can lead at once. Call this only after the leader's work
    /// has ended: a request in flight would interfere with the next leader. Takes five seconds at most.
    pub async fn release(mut self) {
        self.elector.give_back().await;
        self.stopped();
    }
}

#[cfg(test)]
mod tests;

//! The state of one election, for health checks and `/debug/state`.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LeaderElectionOptions, clock::Clock, step::Record};

/// Upstream's tolerance. A leader should be gone by the end of its term, and gets this much more time.
const TOLERANCE: Duration = Duration::from_secs(20);

/// One election as its elector sees it. Clones share the state.
#[derive(Clone, Debug)]
pub struct ElectionStatus {
    lease: String,
    identity: String,
    lease_duration: Duration,
    clock: Clock,
    /// Not behind a lock, since a health check must never delay the elector.
    seen: Arc<ArcSwap<Seen>>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    record: Record,
    /// When the record last changed.
    changed: Option<Instant>,
    leads: bool,
}

impl ElectionStatus {
    /// Times are those of `clock`.
    pub(super) fn new(options: &LeaderElectionOptions, clock: Clock) -> Self {
        Self {
            lease: format!("{}/{}", options.namespace, options.name),
            identity: options.identity.clone(),
            lease_duration: options.lease_duration,
            clock,
            seen: Arc::default(),
        }
    }

    pub(super) fn observed(&self, record: &Record, changed: Instant) {
        self.seen.rcu(|seen| Seen { record: record.clone(), changed: Some(changed), leads: seen.leads });
    }

    pub(super) fn set_leads(&self, leads: bool) {
        self.seen.rcu(|seen| Seen { leads, ..Seen::clone(seen) });
    }

    /// The Lease: namespace and name.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Who holds the Lease, as it was last read. Empty if it has no holder, or was not read yet.
    pub fn holder(&self) -> String {
        self.seen.load().record.holder.clone()
    }

    /// Upstream's health check: a leader that has not renewed for a long time should have ended but has not.
    /// A standby is healthy.
    ///
    /// # Errors
    /// The failure in upstream's words.
    pub fn check(&self) -> Result<(), String> {
        let seen = self.seen.load();
        let limit = self.lease_duration + TOLERANCE;
        let since = |changed| self.clock.now().duration_since(changed);
        if seen.leads && seen.changed.is_some_and(|changed| since(changed) > limit) {
            return Err(format!("failed election to renew leadership on lease {}", self.lease));
        }
        Ok(())
    }

    /// The state for `/debug/state`.
    pub fn to_json(&self) -> Value {
        let seen = self.seen.load();
        json!({
            "lease": self.lease,
            "identity": self.identity,
            "leading": seen.leads,
            "holder": seen.record.holder,
            "renewTime": seen.record.renewed.map(|time| time.to_string()),
            "transitions": seen.record.transitions,
            "changedSecondsAgo": seen.changed.map(|changed| {
                (self.clock.now().duration_since(changed).as_secs_f64() * 1000.0).round() / 1000.0
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_does_not_renew_is_unhealthy() {
        let second = Duration::from_secs(1);
        let options = LeaderElectionOptions {
            identity: "me".into(),
            namespace: "kube-system".into(),
            name: "ccm".into(),
            lease_duration: 15 * second,
            renew_deadline: 10 * second,
            retry_period: 2 * second,
        };
        let status = ElectionStatus::new(&options, Clock::system());
        status.check().expect("nothing known yet");
        status.observed(&Record { holder: "other".into(), ..Record::default() }, Instant::now());
        tokio::time::advance(100 * second).await;
        status.check().expect("a standby");
        status.observed(&Record { holder: "me".into(), ..Record::default() }, Instant::now());
        status.set_leads(true);
        tokio::time::advance(35 * second).await;
        status.check().expect("within the tolerance");
        tokio::time::advance(second).await;
        assert_eq!(
            status.check(),
            Err("failed election to renew leadership on lease kube-system/ccm".to_owned())
        );
        status.observed(&Record { holder: "me".into(), ..Record::default() }, Instant::now());
        status.check().expect("renewed");
        assert_eq!(status.to_json()["leading"], true);
    }
}

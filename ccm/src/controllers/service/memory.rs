//! What the controller remembers of a Service. Losing it is harmless: what is needed is on the object or in the cloud.

use std::{sync::Arc, time::Duration};

use cloudprovider::LoadBalancerStatus;
use component::{backoff::Backoff, debug_state::seconds_from_now};
use controller_kit::{cache::CachedObject as _, services::Service, writes::WrittenVersion};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{action::Action, nodes::BackendKeys, status};

/// Upstream's waits between tries, with no spread.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(300) };

/// The shortest wait that a provider may ask for. Without one a provider that asks for none would be called without a pause.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(100);

/// The longest wait that a provider may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

/// Where a Service stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its load balancer is to be ensured, for the first time or again.
    Due,
    /// The load balancer is as the Service asks for. This was the cloud's answer.
    Ensured(LoadBalancerStatus),
    /// Another component makes its load balancer.
    Elsewhere,
    /// The cloud cannot do what the Service asks for. Only a change helps.
    Unsupported,
    /// `--dry-run`: what would be done has been said.
    Rehearsed,
    /// Its load balancer is deleted, and the finalizer removed.
    CleanedUp,
    /// It has our finalizer and is of another class, and there is no load balancer of ours.
    NotOurs,
}

/// When a failed action is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    pub(super) action: Action,
    pub(super) at: Instant,
    /// Whether the cloud asked for this time.
    pub(super) is_asked: bool,
}

/// When the cloud is told again of back ends of which it was told in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Untold {
    pub(super) at: Instant,
    failures: u32,
}

/// The wait that a provider asks for, within bounds.
pub(super) fn asked_wait(after: Duration) -> Duration {
    after.clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER)
}

/// What is remembered of one Service.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The Service as the cloud was told of it last. The cache keeps little of a Service that lost type and finalizer, so
    /// such a one does not take the place of a whole one.
    pub(super) told: Arc<Service>,
    /// Whether the cloud may have made a load balancer since then.
    pub(super) may_exist: bool,
    /// Whether there has been a load balancer, in this term or, as the finalizer says, in an earlier one.
    pub(super) was_ensured: bool,
    /// Whether the API server has said in this term that the Service wants a load balancer and has the finalizer. What the
    /// watch shows may be older than what another leader has done.
    pub(super) confirmed: bool,
    /// Whether the finalizer was put there in this term, so that no other component of another class has.
    pub(super) has_our_finalizer: bool,
    pub(super) standing: Standing,
    /// Which provider was told: how many had taken over until then.
    pub(super) provider: u64,
    /// How often the provider had asked for another try when the last one began.
    pub(super) retries: u64,
    /// Whether the load balancer that was ensured last lacks something that the provider may have later.
    pub(super) waits_for_more: bool,
    /// The back ends that the cloud was told of last, also in vain.
    pub(super) nodes: Option<Arc<BackendKeys>>,
    /// Set while the cloud was told of back ends in vain, and nothing has worked since.
    pub(super) untold: Option<Untold>,
    /// The version of our last write.
    pub(super) written: Option<WrittenVersion>,
    /// When finalizer or status were last brought back.
    pub(super) repaired: Option<Instant>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) retry: Option<Retry>,
    /// When the cloud is to be asked whether the load balancer is still there.
    pub(super) verify_at: Option<Instant>,
    /// Why the last try failed.
    pub(super) last_error: Option<String>,
}

impl Memory {
    pub(super) fn new(service: &Arc<Service>, provider: u64) -> Self {
        Self {
            told: Arc::clone(service),
            may_exist: false,
            was_ensured: service.has_finalizer(),
            confirmed: false,
            has_our_finalizer: false,
            standing: Standing::Due,
            provider,
            retries: 0,
            waits_for_more: false,
            nodes: None,
            untold: None,
            written: None,
            repaired: None,
            failures: 0,
            retry: None,
            verify_at: None,
            last_error: None,
        }
    }

    /// Whether the watch shows an older version than our last write. What it shows is no reason to act then.
    pub(super) fn is_ahead_of(&self, service: &Service) -> bool {
        self.written.as_ref().is_some_and(|written| service.is_older_than(written))
    }

    /// When this action may be tried again; `None` for at once.
    pub(super) fn retry_of(&self, action: Action) -> Option<Instant> {
        self.retry.filter(|retry| retry.action == action).map(|retry| retry.at)
    }

    /// Notes that an action worked.
    pub(super) fn succeed(&mut self, standing: Standing) {
        self.standing = standing;
        self.recover();
    }

    /// Notes that nothing fails any more.
    pub(super) fn recover(&mut self) {
        self.failures = 0;
        self.retry = None;
        self.last_error = None;
    }

    /// Notes that an action failed. A time that the cloud asks for is no failure of the Service, and kept to exactly.
    pub(super) fn fail(&mut self, action: Action, why: String, retry_after: Option<Duration>, now: Instant) {
        let wait = match retry_after {
            Some(after) => asked_wait(after),
            None => {
                self.failures = self.failures.saturating_add(1);
                BACKOFF.nominal(self.failures)
            }
        };
        self.retry = Some(Retry { action, at: now + wait, is_asked: retry_after.is_some() });
        if let (Some(_), Some(untold)) = (retry_after, &mut self.untold) {
            // The time is for the load balancer, so also for its back ends.
            untold.at = untold.at.max(now + wait);
        }
        self.last_error = Some(why);
    }

    /// Notes that the cloud was told of back ends in vain. `true`: for the first time.
    pub(super) fn tell_again(&mut self, retry_after: Option<Duration>, now: Instant) -> bool {
        let before = self.untold.map_or(0, |untold| untold.failures);
        let failures = before.saturating_add(1);
        let wait = retry_after.map_or_else(|| BACKOFF.nominal(failures), asked_wait);
        self.untold = Some(Untold { at: now + wait, failures });
        before == 0
    }

    /// For `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let standing = match &self.standing {
            Standing::Due => "due",
            Standing::Ensured(_) => "ensured",
            Standing::Elsewhere => "implementedElsewhere",
            Standing::Unsupported => "unsupported",
            Standing::Rehearsed => "dryRun",
            Standing::CleanedUp => "cleanedUp",
            Standing::NotOurs => "notOurs",
        };
        let address = match &self.standing {
            Standing::Ensured(status) => Some(status::shown(status)),
            _ => None,
        };
        json!({
            "uid": self.told.uid(),
            "standing": standing,
            "waitsForMore": self.waits_for_more,
            "address": address,
            "toldVersion": self.told.resource_version,
            "nodes": self.nodes.as_ref().map(|nodes| nodes.len()),
            "failures": self.failures,
            "lastError": self.last_error,
            "verifiedInSeconds": self.verify_at.map(seconds_from_now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_says_what_waits_for_more() {
        let service = Service::from_json(
            json!({"metadata": {"namespace": "a", "name": "b"}, "spec": {}, "status": {}}),
        );
        for waits_for_more in [false, true] {
            let memory = Memory { waits_for_more, ..Memory::new(&Arc::new(service.clone()), 0) };
            assert_eq!(memory.to_json()["waitsForMore"], waits_for_more);
        }
    }
}

//! Takes note of what came of the work on a Service.

use std::time::Duration;

use controller_kit::writes::GONE_FOR;
use tokio::time::Instant;

use super::{Done, ServiceController};
use crate::controllers::service::{
    action::Action,
    memory::{Memory, Standing, asked_wait},
    outcome::{Failure, Outcome},
    plan::Next,
};

/// What is remembered of a Service that the watch still shows. It is tried again after [`GONE_FOR`].
const DENIED: &str = "the API server does not have this Service any more";

/// How long nothing is done about a Service after a call that was given up since the term has ended. It may be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

impl ServiceController {
    pub(super) fn finish(&mut self, done: Done) {
        let Done { key, action, before, outcome, told } = done;
        let tells = action == Action::Ensure || (action == Action::CleanUp && told.is_whole());
        if let Some(memory) = self.memories.get_mut(&key).filter(|_| tells) {
            memory.told = told;
        }
        let is_stopped = matches!(outcome, Outcome::Stopped);
        let is_failure = self.note(&key, action, &before, outcome);
        self.queue.done(&key);
        if is_stopped {
            // Without a pause it would be tried all the time until the controller is stopped.
            self.queue.add_after(&key, STOPPED_FOR);
            return;
        }
        let retry = match self.next_for(&key).1 {
            Next::At(at, _) | Next::LookAt(at) if is_failure => {
                Some(at.saturating_duration_since(Instant::now()))
            }
            _ => None,
        };
        match retry {
            Some(wait) => self.queue.retry_after(&key, wait),
            None => self.look_at(&key),
        }
        self.leave_pass_if_settled(&key);
    }

    /// Returns whether the work is to be tried again after a wait.
    fn note(&mut self, key: &str, action: Action, before: &Memory, outcome: Outcome) -> bool {
        let now = Instant::now();
        let verify_at = self.verify_at(now);
        let Some(memory) = self.memories.get_mut(key) else { return false };
        if let Some(version) = outcome.version() {
            memory.written = Some(version.clone());
        }
        match outcome {
            Outcome::Ensured { status, waits_for_more, .. } => {
                memory.untold = None;
                memory.succeed(Standing::Ensured(status));
                memory.waits_for_more = waits_for_more;
                (memory.was_ensured, memory.confirmed) = (true, true);
                memory.verify_at = verify_at;
            }
            // A cloud whose addresses change all the time must not be called without a pause.
            Outcome::Moving { .. } => {
                (memory.was_ensured, memory.confirmed) = (true, true);
                let why = "the cloud gave another address each time that it was called".to_owned();
                memory.fail(action, why, None, now);
                return true;
            }
            // What the watch shows next decides.
            Outcome::Outdated { cloud_called: false, .. } => memory.may_exist = before.may_exist,
            Outcome::NotOurs => {
                memory.succeed(Standing::NotOurs);
                memory.may_exist = false;
            }
            Outcome::Elsewhere { waits_for_more, .. } => {
                memory.succeed(Standing::Elsewhere);
                memory.waits_for_more = waits_for_more;
            }
            Outcome::Rehearsed { .. } => memory.succeed(Standing::Rehearsed),
            Outcome::Updated => memory.untold = None,
            Outcome::NothingToUpdate
                if matches!(memory.standing, Standing::Elsewhere | Standing::Unsupported) =>
            {
                (memory.was_ensured, memory.untold) = (false, None);
            }
            Outcome::NothingToUpdate | Outcome::Differs => ensure_again(memory, now),
            Outcome::Repaired { .. } => {
                memory.repaired = Some(now);
                memory.recover();
            }
            Outcome::Verified => memory.verify_at = verify_at,
            Outcome::NotVerified { retry_after } => {
                memory.verify_at = retry_after.map(|after| now + asked_wait(after)).or(verify_at);
            }
            Outcome::CleanedUp { is_denied, .. } => {
                memory.succeed(Standing::CleanedUp);
                if is_denied {
                    memory.fail(action, DENIED.to_owned(), Some(GONE_FOR), now);
                }
                (memory.may_exist, memory.was_ensured, memory.confirmed) = (false, false, false);
                (memory.has_our_finalizer, memory.untold) = (false, None);
            }
            Outcome::OldDeleted => self.forget(key),
            Outcome::Gone => {
                memory.may_exist = before.may_exist;
                memory.fail(action, DENIED.to_owned(), Some(GONE_FOR), now);
            }
            // The back ends were noted before the call.
            Outcome::Stopped if action == Action::UpdateNodes => memory.nodes.clone_from(&before.nodes),
            Outcome::Outdated { .. } | Outcome::Stopped => {}
            Outcome::Failed(failure) => {
                note_failure(memory, action, before, failure, now);
                return true;
            }
        }
        false
    }

    /// Half of the period at least, so that the load balancers that were ensured together are verified one after the other.
    fn verify_at(&self, now: Instant) -> Option<Instant> {
        let period = self.options.verification_period?;
        Some(now + period.mul_f64(fastrand::f64().mul_add(0.5, 0.5)))
    }
}

/// Notes that the load balancer is to be ensured: at once, or when a failed try is due again.
fn ensure_again(memory: &mut Memory, now: Instant) {
    (memory.standing, memory.confirmed, memory.untold) = (Standing::Due, false, None);
    memory.retry = memory.retry.filter(|retry| retry.action == Action::Ensure && retry.at > now);
}

fn note_failure(memory: &mut Memory, action: Action, before: &Memory, failure: Failure, now: Instant) {
    let Failure { why, retry_after, unsupported, cloud_called, .. } = failure;
    if action == Action::Ensure {
        if !cloud_called {
            memory.may_exist = before.may_exist;
            // The write that failed may have had its effect.
            memory.has_our_finalizer |= !memory.told.has_finalizer();
        }
        // The load balancer that there was may still have the back ends of before.
        if before.nodes.is_some() {
            memory.nodes.clone_from(&before.nodes);
        }
    }
    match action {
        Action::UpdateNodes if matches!(memory.standing, Standing::Elsewhere | Standing::Unsupported) => {
            memory.nodes.clone_from(&before.nodes);
            memory.fail(action, why, retry_after, now);
        }
        // A load balancer that could not be told of its Nodes is ensured, at once unless the cloud says when, and also while it
        // waits after a failure. If that fails too, it is told again: a Node that left must not stay a back end.
        Action::UpdateNodes => {
            let is_first = memory.tell_again(retry_after, now);
            memory.standing = Standing::Due;
            if let Some(after) = retry_after {
                memory.fail(Action::Ensure, why, Some(after), now);
            } else {
                memory.last_error = Some(why);
                let waits_as_asked = memory.retry.is_some_and(|retry| retry.is_asked && retry.at > now);
                if is_first && !waits_as_asked {
                    memory.retry = None;
                }
            }
        }
        Action::Ensure if unsupported => {
            memory.succeed(Standing::Unsupported);
            memory.last_error = Some(why);
        }
        _ => memory.fail(action, why, retry_after, now),
    }
}

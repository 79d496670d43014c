//! What to do next about a Service: from the object, from what is remembered, and the time.

use std::{sync::Arc, time::Duration};

use controller_kit::{cache::CachedObject as _, services::Service};
use tokio::time::Instant;

use super::{
    action::Action,
    memory::{Memory, Standing},
    needs_update::needs_update,
    nodes::{BackendKeys, same_backends},
    status::{lacks_address_of, same_status},
};

/// A finalizer or status that somebody removed or changed is brought back at once, but a second time only after this long.
/// Two controllers that disagree must not write in turns.
pub(super) const REPAIR_INTERVAL: Duration = Duration::from_secs(15);

/// When a Service of which the watch does not show our last write is looked at again.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// When to do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Now(Action),
    At(Instant, Action),
    /// Nothing before the watch shows our last write. That may come without a notification, so it is looked at again then.
    LookAt(Instant),
    /// Nothing, until something changes.
    Wait,
    /// Nothing, and nothing has to be remembered.
    Forget,
}

/// What is the same for all Services.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// The back ends now.
    pub(super) nodes: Arc<BackendKeys>,
    /// How many providers have taken over so far.
    pub(super) provider: u64,
    /// How often the provider has asked for another try for Services that wait.
    pub(super) retries: u64,
    pub(super) now: Instant,
}

impl World {
    fn due(&self, at: Option<Instant>, action: Action) -> Next {
        match at {
            Some(at) if at > self.now => Next::At(at, action),
            _ => Next::Now(action),
        }
    }
}

/// Decides about one Service: `service` is what the watch shows, `memory` what is remembered under its key.
pub(super) fn next(service: Option<&Service>, memory: Option<&Memory>, world: &World) -> Next {
    let is_other = |memory: &Memory| service.is_none_or(|service| service.uid() != memory.told.uid());
    let memory = match memory {
        // The old load balancer goes first, as long as the object is known.
        Some(memory) if is_other(memory) && memory.may_exist => {
            let retry = memory.retry_of(Action::DeleteOld).filter(|_| memory.provider == world.provider);
            return world.due(retry, Action::DeleteOld);
        }
        memory => memory.filter(|memory| !is_other(memory)),
    };
    let Some(service) = service else { return Next::Forget };
    let wants = service.wants_load_balancer();
    let Some(memory) = memory else {
        return if service.needs_cleanup() || (service.has_finalizer() && !wants) {
            Next::Now(Action::CleanUp)
        } else if wants && !service.deleting {
            Next::Now(Action::Ensure)
        } else {
            Next::Forget
        };
    };
    if memory.is_ahead_of(service) {
        return Next::LookAt(world.now + LOOK_INTERVAL);
    }
    let is_new = memory.provider != world.provider || needs_update(&memory.told, service);
    // With our finalizer and a class it may have been ours before, as long as the cloud has not been asked.
    let is_unclear = service.has_finalizer() && !wants && memory.standing != Standing::NotOurs;
    if service.needs_cleanup() || is_unclear || (memory.may_exist && (service.deleting || !wants)) {
        if memory.standing == Standing::CleanedUp && memory.told.resource_version == service.resource_version
        {
            return memory
                .retry_of(Action::CleanUp)
                .map_or(Next::Wait, |at| world.due(Some(at), Action::CleanUp));
        }
        // A change may be what it takes. Of a Service that is not whole nothing is kept that could help.
        let has_changed = service.is_whole() && !memory.told.same_content(service);
        let retry = memory.retry_of(Action::CleanUp);
        let retry = retry.filter(|_| memory.provider == world.provider && !has_changed);
        return world.due(retry, Action::CleanUp);
    }
    if !wants || service.deleting {
        return if memory.standing == Standing::NotOurs { Next::Wait } else { Next::Forget };
    }
    if is_new || matches!(memory.standing, Standing::CleanedUp | Standing::NotOurs) {
        return Next::Now(Action::Ensure);
    }
    let is_told = memory.nodes.as_ref().is_none_or(|nodes| same_backends(nodes, &world.nodes));
    let is_to_retry = memory.retries != world.retries;
    match &memory.standing {
        Standing::Due | Standing::Unsupported if is_to_retry => Next::Now(Action::Ensure),
        Standing::Ensured(_) | Standing::Elsewhere if is_to_retry && memory.waits_for_more => {
            Next::Now(Action::Ensure)
        }
        // The other component shows an address no longer, so the provider can let go of it.
        Standing::Elsewhere if lacks_address_of(&service.content.status, &memory.told.content.status) => {
            Next::Now(Action::Ensure)
        }
        // Without a retry it is ensured at once, and the back ends come with that.
        Standing::Due => match memory.retry_of(Action::Ensure) {
            Some(at) if at > world.now && memory.may_exist && !is_told => Next::Now(Action::UpdateNodes),
            Some(at) if at > world.now && memory.may_exist => match memory.untold {
                Some(untold) if untold.at < at => world.due(Some(untold.at), Action::UpdateNodes),
                _ => Next::At(at, Action::Ensure),
            },
            at => world.due(at, Action::Ensure),
        },
        Standing::Ensured(_) | Standing::Rehearsed if !is_told => Next::Now(Action::UpdateNodes),
        // Whatever the Service asks for now, the load balancer that there was must not send anything to Nodes that leave.
        Standing::Elsewhere | Standing::Unsupported
            if memory.was_ensured && (!is_told || memory.untold.is_some()) =>
        {
            let untold = memory.untold.filter(|_| is_told).map(|untold| untold.at);
            world.due(memory.retry_of(Action::UpdateNodes).or(untold), Action::UpdateNodes)
        }
        Standing::Elsewhere
        | Standing::Unsupported
        | Standing::Rehearsed
        | Standing::CleanedUp
        | Standing::NotOurs => Next::Wait,
        Standing::Ensured(status) => {
            let verify = memory.verify_at.map(|at| world.due(Some(at), Action::Verify));
            if service.has_finalizer() && same_status(status, &service.content.status) {
                return verify.unwrap_or(Next::Wait);
            }
            let earliest = memory.repaired.map(|repaired| repaired + REPAIR_INTERVAL);
            let repair = world.due(earliest.max(memory.retry_of(Action::Repair)), Action::Repair);
            match (repair, verify) {
                (Next::At(repair_at, _), Some(verify @ Next::At(at, _))) if at < repair_at => verify,
                (Next::At(..), Some(verify @ Next::Now(_))) => verify,
                _ => repair,
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Whether the machine of an object may be reset.

use super::{
    MachineContext, Scope, about_another_cluster, finalizer, is_another_programs, is_to_be_adopted,
    is_without_identity,
};
use crate::reboot::Target;

impl MachineContext<'_> {
    /// What is known of the machine in the cloud, for a reset. The same decides as for a step: what is not this controller's
    /// own, or may be a copy of another object, is not touched.
    pub fn reset_target(&self, scope: &Scope<'_>) -> Target {
        let Self { object, machine, cluster, .. } = self;
        if !object.passes(scope.watch_filter) || object.is_deleting() {
            return Target::Held;
        }
        if object.is_paused() || cluster.is_some_and(|cluster| cluster.is_paused) {
            return Target::Paused;
        }
        if object.provider_id().is_none() {
            return Target::Unprovisioned;
        }
        let finalizer = finalizer(scope.kinds, &scope.kinds.machine);
        let owner = machine.and_then(|machine| machine.cluster.as_deref());
        let is_in_order = machine.is_some()
            && cluster.is_some()
            && self.infra_cluster.is_some()
            && self.rival.is_none()
            && object.marked_cluster(scope.kinds).is_some()
            && !is_another_programs(object, &finalizer, scope.kinds)
            && !is_without_identity(object, &finalizer, scope.kinds)
            && !is_to_be_adopted(object, &finalizer, scope.kinds)
            && about_another_cluster(object, owner, &finalizer, scope.kinds).is_none();
        if is_in_order { Target::Ready } else { Target::Held }
    }
}

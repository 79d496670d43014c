//! What the permissions of several controllers have in common.

use controller_kit::rbac::Permission;

use crate::flags::Flags;

/// What the machine controller and the lifecycle controllers do only in the namespace that they work on.
pub(super) fn of_namespace(flags: &Flags, permission: Permission) -> Permission {
    match flags.controllers.machine.namespace() {
        Some(namespace) => permission.in_namespace(namespace),
        None => permission,
    }
}

pub(super) fn events() -> [Permission; 2] {
    [("create", "events"), ("patch", "events that repeat")]
        .map(|(verb, needed_for)| Permission::new("", "events", verb, needed_for).optional())
}

/// Whether each controller writes with its own account. A dry run does not write, so it needs no other
/// accounts.
pub(super) fn has_accounts(flags: &Flags) -> bool {
    flags.generic.use_service_account_credentials && !flags.misc.dry_run
}

//! Which failed calls may be repeated.

use crate::vim::CallError;

/// Whether the same call may succeed if it is repeated soon.
pub(super) fn is_momentary(error: &CallError, method: &str) -> bool {
    match error {
        CallError::Fault { .. } => !is_final(error),
        CallError::Status { status, .. } => method != "WaitForUpdatesEx" && *status >= 500,
        CallError::Unreachable { .. } => method != "WaitForUpdatesEx",
        _ => false,
    }
}

/// Whether vCenter refuses the call however often it is made.
pub(super) fn is_final(error: &CallError) -> bool {
    let faults = [
        "NotAuthenticated",
        "NoPermission",
        "InvalidLogin",
        "InvalidArgument",
        "InvalidProperty",
        "InvalidRequest",
        "InvalidType",
        "ManagedObjectNotFound",
        "MethodNotFound",
        "NotImplemented",
        "NotSupported",
        "InvalidCollectorVersion",
        "RequestCanceled",
    ];
    faults.iter().any(|kind| error.is_fault(kind))
}

//! A machine that starts anew, since it does not work.

use crate::{Error, ErrorKind};

/// What came of the request to reset a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// The cloud has accepted it: the guest starts anew, now or in a moment.
    Done,
    /// The cloud confirmed that there is no such machine.
    Absent,
}

impl Reset {
    /// Whether a machine may have been reset although the call ended with this error. Only
    /// [`ErrorKind::Timeout`], [`ErrorKind::InProgress`] and [`ErrorKind::Internal`] leave that open.
    pub fn may_have_happened(error: &Error) -> bool {
        match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::Ambiguous
            | ErrorKind::Unauthenticated
            | ErrorKind::PermissionDenied
            | ErrorKind::Conflict
            | ErrorKind::InvalidConfiguration
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::ImplementedElsewhere
            | ErrorKind::RateLimited
            | ErrorKind::Unavailable => false,
            ErrorKind::InProgress | ErrorKind::Timeout | ErrorKind::Internal => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_open_whether_a_machine_was_reset() {
        let open = ErrorKind::ALL.iter().filter(|kind| Reset::may_have_happened(&Error::new(**kind, "no")));
        let open: Vec<_> = open.map(|kind| kind.as_str()).collect();
        assert_eq!(open, ["in_progress", "timeout", "internal"]);
    }
}

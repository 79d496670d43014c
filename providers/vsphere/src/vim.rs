//! vCenter's API (`vim25`), independent of the wire format.
//!
//! A [`Call`] is a method of a managed object with its arguments, and the response is an [`Element`]. A
//! [`Transport`] carries both. The only one is SOAP ([`crate::soap`]), which every vCenter and the simulator
//! support. The names are those of the WSDL, which VI/JSON uses as well.

#[cfg(feature = "machines")]
pub(crate) mod clusters;
pub(crate) mod element;
pub(crate) mod encode;
#[cfg(feature = "machines")]
pub(crate) mod machines;
pub(crate) mod objects;
pub(crate) mod policies;
pub(crate) mod property_collector;
#[cfg(feature = "machines")]
pub(crate) mod storage_drs;

use std::{fmt, time::Duration};

use cloudprovider::{Error, ErrorKind, async_trait};
use secrecy::SecretString;

use crate::{moref::MoRef, vim::element::Element};

/// A value of an argument or of a field of a data object.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A string, number or boolean, as its text.
    Text(String),
    /// A string that is never shown.
    Secret(String),
    /// A reference to a managed object.
    Ref(MoRef),
    /// A string where any type may stand, so that the type is sent with it (`xsd:string`).
    AnyString(String),
    /// The same, never shown.
    AnySecret(String),
    /// A data object: its type, if it differs from the declared one, and its fields in the order of the WSDL.
    Object(Option<&'static str>, Vec<Field>),
}

/// A field with its name. A list repeats the name.
pub(crate) type Field = (&'static str, Value);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::AnyString(text) => fmt::Debug::fmt(text, f),
            Self::Secret(_) | Self::AnySecret(_) => f.write_str("***"),
            Self::Ref(object) => fmt::Debug::fmt(object, f),
            Self::Object(kind, fields) => write!(f, "{} {fields:?}", kind.unwrap_or_default()),
        }
    }
}

/// A method call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The object whose method is called.
    pub(crate) this: MoRef,
    /// The method's name in the WSDL.
    pub(crate) method: &'static str,
    /// The arguments, in the order of the WSDL: a real vCenter refuses any other order.
    pub(crate) arguments: Vec<Field>,
    /// The version of the API that the call needs, if that of the oldest supported vCenter does not know all of it.
    pub(crate) since: Option<&'static str>,
}

impl Call {
    /// Sets the version of the API that the call needs. A vCenter that is older refuses it.
    #[must_use]
    pub(crate) fn since(mut self, version: Option<&'static str>) -> Self {
        self.since = version;
        self
    }
}

/// Carries calls to one vCenter, together with the session of a login.
#[async_trait]
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Makes a call and returns `returnval`, or an empty element if there is none.
    async fn call(&self, call: &Call, deadline: Duration) -> Result<Element, CallError>;

    /// Forgets the session, so that the next call is sent without one. A login in a live session is refused.
    fn forget_session(&self);

    /// Whether there is a session, valid or not.
    fn has_session(&self) -> bool;

    /// The session's ID, for other interfaces of the same vCenter. As secret as a password.
    fn session_id(&self) -> Option<SecretString>;
}

/// Why a call brought no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// vCenter answered with a fault. Code decides by its type; its message is for people, and differs
    /// between servers.
    #[error("{method}: vCenter answers {kind}{}", words(.message))]
    Fault {
        /// The method called.
        method: &'static str,
        /// The `xsi:type` of the fault.
        kind: Box<str>,
        /// vCenter's words, shortened.
        message: Box<str>,
    },
    /// vCenter, or a proxy in front of it, answered with this HTTP status and no fault.
    #[error("{method}: HTTP status {status}")]
    Status {
        /// The method called.
        method: &'static str,
        /// The status.
        status: u16,
    },
    /// No response in time.
    #[error("{method}: no answer within {} s", .after.as_secs())]
    Timeout {
        /// The method called.
        method: &'static str,
        /// How long the client waited.
        after: Duration,
    },
    /// There is no connection: refused, reset, name not resolved, or certificate not trusted.
    #[error("{method}: {reason}")]
    Unreachable {
        /// The method called.
        method: &'static str,
        /// The causes.
        reason: Box<str>,
    },
    /// The response is larger than allowed.
    #[error("{method}: the answer has more than {limit_mib} MiB")]
    TooLarge {
        /// The method called.
        method: &'static str,
        /// The limit for responses.
        limit_mib: usize,
    },
    /// The response cannot be understood.
    #[error("{method}: {reason}")]
    Malformed {
        /// The method called.
        method: &'static str,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The configured datacenters are no longer those that are watched.
    #[error("{method}: the datacenters of the configuration are others by now")]
    Outdated {
        /// The method called.
        method: &'static str,
    },
    /// vCenter refused these credentials. They are tried again rarely, so that the account is not locked.
    #[error(
        "vCenter refused the credentials of user {user:?}; they are tried again when they change, and \
             else rarely, so that the account is not locked"
    )]
    Refused {
        /// The user.
        user: Box<str>,
    },
    /// vCenter is not asked about this password, since others in Secrets were refused for the same user.
    #[error(
        "too many other passwords of user {user:?} were refused, so vCenter is not asked about this one yet; it is tried by \
             itself later, so that the account is not locked"
    )]
    Held {
        /// The user.
        user: Box<str>,
    },
    /// A session manager gives no ticket, or its ticket or session is not accepted.
    #[error("{manager}: {reason}")]
    NotShared {
        /// The session manager, by its host.
        manager: Box<str>,
        /// What is wrong. Contains neither ticket nor token.
        reason: Box<str>,
        /// Whether access was denied.
        is_denied: bool,
    },
    /// There are no credentials.
    #[error("{0}")]
    NoCredentials(Box<str>),
    /// There are credentials, but using them as configured would not be safe.
    #[error("{0}")]
    Misconfigured(Box<str>),
}

fn words(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

impl CallError {
    /// Whether vCenter answered with a fault of this type.
    pub(crate) fn is_fault(&self, wanted: &str) -> bool {
        matches!(self, Self::Fault { kind, .. } if **kind == *wanted)
    }

    /// Whether the session is gone.
    pub(crate) fn is_session_lost(&self) -> bool {
        self.is_fault("NotAuthenticated")
    }

    /// Whether objects that were created on the server are gone. The watch has to be set up again, on the
    /// same connection.
    pub(crate) fn is_watch_lost(&self) -> bool {
        let faults = ["InvalidCollectorVersion", "ManagedObjectNotFound", "RequestCanceled"];
        matches!(self, Self::Outdated { .. }) || faults.iter().any(|kind| self.is_fault(kind))
    }

    /// Whether only new credentials may help, and not waiting.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::Held { .. } | Self::NoCredentials(_) | Self::Misconfigured(_)
        ) || self.is_fault("InvalidLogin")
    }

    /// Whether other credentials, if there are some, may be accepted at once.
    pub(crate) fn wants_others(&self) -> bool {
        self.is_refused()
            || self.is_fault("PasswordExpired")
            || matches!(self, Self::NotShared { is_denied: true, .. })
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. }
            | Self::Held { .. }
            | Self::NoCredentials(_)
            | Self::NotShared { is_denied: true, .. }
            | Self::Status { status: 401, .. } => ErrorKind::Unauthenticated,
            Self::Fault { kind, .. } => match &**kind {
                "InvalidLogin" | "NotAuthenticated" | "PasswordExpired" => ErrorKind::Unauthenticated,
                "NoPermission" => ErrorKind::PermissionDenied,
                _ => ErrorKind::Unavailable,
            },
            Self::Misconfigured(_) => ErrorKind::InvalidConfiguration,
            Self::Status { status: 403, .. } => ErrorKind::PermissionDenied,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::NotShared { .. }
            | Self::Status { .. }
            | Self::Unreachable { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::Outdated { .. } => ErrorKind::Unavailable,
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_decide_by_their_type() {
        let fault = |kind: &str| CallError::Fault { method: "Login", kind: kind.into(), message: "x".into() };
        assert!(fault("NotAuthenticated").is_session_lost());
        assert!(fault("InvalidCollectorVersion").is_watch_lost());
        assert!(fault("InvalidLogin").is_refused());
        assert_eq!(Error::from(fault("NoPermission")).kind(), ErrorKind::PermissionDenied);
        assert_eq!(Error::from(fault("InvalidLogin")).kind(), ErrorKind::Unauthenticated);
        for (status, expected) in [
            (401, ErrorKind::Unauthenticated),
            (403, ErrorKind::PermissionDenied),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(Error::from(CallError::Status { method: "POST", status }).kind(), expected);
        }
        assert_eq!(fault("HostNotConnected").to_string(), "Login: vCenter answers HostNotConnected (x)");
    }

    #[test]
    fn a_secret_is_not_shown() {
        for value in [Value::Secret("hunter2".to_owned()), Value::AnySecret("hunter2".to_owned())] {
            assert_eq!(format!("{value:?}"), "***");
        }
    }
}

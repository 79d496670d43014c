//! Why a request has no answer.

use std::io;

use crate::TIMEOUT;

/// Why a request has no answer, or a refusal for one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No socket could be opened.
    #[error("no netlink socket can be opened: {reason}")]
    NotOpened {
        /// The operating system's words.
        reason: String,
    },
    /// The kernel refused the request.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// The number of the error, as in `errno.h`.
        errno: i32,
    },
    /// There was no answer, or no further one.
    #[error("the kernel did not answer within {} s", TIMEOUT.as_secs())]
    Silent,
    /// The connection ended before the answer did.
    #[error("the connection to the kernel ended before the answer")]
    CutOff,
    /// What was to be listed changed in each of several listings.
    #[error("it changes all the time, so no listing is whole")]
    Unsteady,
}

impl Error {
    /// The number of the kernel's refusal, as in `errno.h`.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the connection may have lost an answer, so that it must not be used again.
    pub(crate) fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Silent | Self::CutOff)
    }
}

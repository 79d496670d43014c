//! The error about a value that a spec may not have.

use cloudprovider::{Error, ErrorKind};

/// An [`ErrorKind::InvalidInput`]. `words` begin with the field.
pub(super) fn invalid(words: String) -> Error {
    Error::new(ErrorKind::InvalidInput, words)
}

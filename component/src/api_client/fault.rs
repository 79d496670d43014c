//! Describes the failure of a request.

use anyhow::anyhow;
use basics::error_chain;

/// Describes an error. The text contains no credentials: a plugin's output, the content of a token file and
/// the user in a URL are checked before a client is created from them.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => error_chain(error),
    }
}

/// The error for a client that cannot be created.
pub(super) fn fault(error: kube::Error) -> anyhow::Error {
    anyhow!("no client for the API server: {}", describe(&error))
}

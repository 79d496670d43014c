//! What went wrong with a request, in words.

use anyhow::anyhow;
use basics::error_chain;

/// What went wrong. No credentials are in it: what a plugin printed, a token's file held or a URL had before its host is
/// looked at before a client is made of it.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => error_chain(error),
    }
}

/// Why there is no client.
pub(super) fn fault(error: kube::Error) -> anyhow::Error {
    anyhow!("no client for the API server: {}", describe(&error))
}

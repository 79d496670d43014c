//! What went wrong with a request, in words that hold no secret.

use std::error::Error as StdError;

use cloudprovider::error_chain;
use kube::client::AuthError;

/// What went wrong, without what a credential plugin was told and printed: that may be the credentials.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => plugin_fault(error).unwrap_or_else(|| error_chain(error)),
    }
}

/// The error, which may be logged in any way afterwards.
pub(super) fn without_secrets(error: kube::Error) -> kube::Error {
    match plugin_fault(&error) {
        Some(fault) => kube::Error::Service(fault.into()),
        None => error,
    }
}

/// The fault of a credential plugin, wherever it stands in the chain: one that runs again when its credentials
/// expire fails in the middle of a request.
fn plugin_fault(error: &kube::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(AuthError::AuthExecRun { out, .. }) => {
                return Some(format!("the kubeconfig's credential plugin failed with {}", out.status));
            }
            Some(AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_)) => {
                return Some(
                    "what the kubeconfig's credential plugin printed is not an ExecCredential".to_owned(),
                );
            }
            _ => cause = error.source(),
        }
    }
    None
}

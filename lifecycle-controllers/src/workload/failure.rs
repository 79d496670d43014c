//! Why there is no connection to a workload cluster: for the operator, and for the users of the Cluster, whose kubeconfig may name any
//! address.

use std::{error::Error, io};

use component::api_client::describe;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionFailure {
    /// For the operator.
    pub(super) reason: String,
    /// For the users of the Cluster.
    pub(super) shown: String,
}

impl From<String> for ConnectionFailure {
    /// A reason that concerns what users of the Cluster wrote, or what its API server says.
    fn from(reason: String) -> Self {
        Self { shown: reason.clone(), reason }
    }
}

impl From<&str> for ConnectionFailure {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl ConnectionFailure {
    /// The error of a request. Of an address that a kubeconfig names, users learn whether it may be used and whether an API server can be
    /// reached there, and not what else answers.
    pub(super) fn of_request(error: &kube::Error) -> Self {
        let reason = describe(error);
        if let kube::Error::Api(status) = error {
            return Self::of_answer(reason, status.code);
        }
        let mut source: Option<&(dyn Error + 'static)> = Some(error);
        let mut shown = "the API server cannot be reached";
        while let Some(error) = source {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::PermissionDenied) => shown = "the server's address is not permitted",
                // An error of TLS.
                Some(io::ErrorKind::InvalidData) => {
                    shown = "the certificate of the API server is not accepted";
                }
                _ => {}
            }
            source = error.source();
        }
        Self { reason, shown: shown.to_owned() }
    }

    /// An answer that refuses a request. Its words may be those of any server, so users see its code alone.
    pub(super) fn of_answer(reason: String, code: u16) -> Self {
        Self { reason, shown: format!("the API server refuses the request ({code})") }
    }

    /// The same with what it prevents before it.
    pub(super) fn after(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), shown: format!("{what}: {}", self.shown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_learn_whether_an_address_may_be_used_and_not_what_answers_there() {
        let shown = |kind: io::ErrorKind| {
            let error = io::Error::new(kind, "what 10.1.2.3 says");
            let why = ConnectionFailure::of_request(&kube::Error::Service(error.into()));
            assert!(why.reason.contains("what 10.1.2.3 says"), "{why:?}");
            why.after("Nodes cannot be listed").shown
        };
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, "the API server cannot be reached"),
            (io::ErrorKind::TimedOut, "the API server cannot be reached"),
            (io::ErrorKind::InvalidData, "the certificate of the API server is not accepted"),
            (io::ErrorKind::PermissionDenied, "the server's address is not permitted"),
        ] {
            assert_eq!(shown(kind), format!("Nodes cannot be listed: {expected}"));
        }
        // Whatever answers at the address may be no API server.
        let page = kube::core::Status::failure("<html>a page of the intranet", "Failed to parse error data");
        let why = ConnectionFailure::of_request(&kube::Error::Api(page.with_code(404).boxed()));
        assert!(why.reason.contains("a page of the intranet"), "{why:?}");
        assert_eq!(why.shown, "the API server refuses the request (404)");
    }
}

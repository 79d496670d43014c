//! The Lease on the API server. It is read and written as a whole, and each write requires the version that
//! was read.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::step::Record;
use basics::error_chain;

/// Why a request failed, named for what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    /// Another candidate wrote (or created) it first.
    #[error("somebody else wrote the lease meanwhile: {0}")]
    Conflict(String),
    /// The API server refused the request, so nothing was written.
    #[error("{0}")]
    Refused(String),
    /// No response, or one that does not say whether the Lease was written.
    #[error("{0}")]
    Unknown(String),
}

/// One Lease.
#[derive(Clone)]
pub(super) struct Lock {
    pub(super) api: Api<Lease>,
    pub(super) namespace: String,
    pub(super) name: String,
    timeout: Duration,
}

impl Lock {
    pub(super) fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), timeout }
    }

    pub(super) async fn get(&self) -> Result<Option<Lease>, LockError> {
        self.in_time(self.api.get_opt(&self.name)).await
    }

    pub(super) async fn create(&self, record: &Record) -> Result<Lease, LockError> {
        let metadata = ObjectMeta {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(record.write()) };
        self.in_time(self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the record in `read` by `record`. The metadata stays unchanged, in particular the version.
    pub(super) async fn replace(&self, read: &Lease, record: &Record) -> Result<Lease, LockError> {
        let lease = Lease { metadata: read.metadata.clone(), spec: Some(record.write()) };
        self.in_time(self.api.replace(&self.name, &PostParams::default(), &lease)).await
    }

    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, LockError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let text = format!("{} ({})", status.message, status.code);
                Err(match status.code {
                    409 => LockError::Conflict(text),
                    400..500 => LockError::Refused(text),
                    _ => LockError::Unknown(text),
                })
            }
            Ok(Err(error)) => Err(LockError::Unknown(error_chain(&error))),
            Err(_) => {
                Err(LockError::Unknown(format!("no answer from the API server within {:?}", self.timeout)))
            }
        }
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

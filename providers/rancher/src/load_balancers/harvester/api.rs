//! The calls of Harvester's API server.

use std::{fmt, time::Duration};

use cloudprovider::{Error, ErrorKind, Result, error_chain};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::Value;

use super::object::{GROUP, LoadBalancer, PLURAL, resource};

/// The wait after "too many requests" that names no time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A longer wait is not obeyed: it is a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10 * 60);

/// More of the server's own words is not shown.
const MAX_WORDS: usize = 300;

/// The load balancers in one namespace of Harvester.
#[derive(Clone)]
pub(super) struct HarvesterApi {
    objects: Api<LoadBalancer>,
    namespace: String,
    timeout: Duration,
}

/// What became of a call that creates an object.
#[derive(Debug)]
pub(super) enum Created {
    /// It was created.
    New(Box<LoadBalancer>),
    /// There is one already.
    Exists,
}

impl HarvesterApi {
    /// Calls with this client, each with this time.
    pub(super) fn new(client: kube::Client, namespace: &str, timeout: Duration) -> Self {
        let objects = Api::namespaced_with(client, namespace, &resource());
        Self { objects, namespace: namespace.to_owned(), timeout }
    }

    /// The namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The object with this name. `None` only if the API server says that this very object does not exist.
    pub(super) async fn get(&self, name: &str) -> Result<Option<LoadBalancer>> {
        self.call("read", name, async {
            match self.objects.get(name).await {
                Ok(found) => Ok(Some(found)),
                Err(error) if is_absent(&error, name) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Creates an object.
    pub(super) async fn create(&self, name: &str, object: &Value) -> Result<Created> {
        let object: LoadBalancer = serde_json::from_value(object.clone())
            .map_err(|error| Error::new(ErrorKind::Internal, error_chain(&error)))?;
        self.call("create", name, async {
            match self.objects.create(&PostParams::default(), &object).await {
                Ok(made) => Ok(Created::New(Box::new(made))),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Created::Exists),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Sends a merge patch.
    pub(super) async fn change(&self, name: &str, patch: &Value) -> Result<LoadBalancer> {
        self.call("change", name, self.objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)))
            .await
    }

    /// Asks for the deletion of the object with this UID. It succeeds if there is none, or another one.
    pub(super) async fn delete(&self, name: &str, uid: &str) -> Result<()> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        self.call("delete", name, async {
            match self.objects.delete(name, &parameters).await {
                Ok(_) => Ok(()),
                Err(error) if is_absent(&error, name) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn call<T>(
        &self,
        verb: &str,
        name: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        let outcome = match tokio::time::timeout(self.timeout, call).await {
            Ok(outcome) => outcome.map_err(|error| error_of(&error)),
            Err(_) => {
                let words = format!("Harvester does not answer within {:?}", self.timeout);
                Err(Error::new(ErrorKind::Timeout, words))
            }
        };
        outcome.map_err(|error| {
            error.with_operation(format!("{verb} LoadBalancer {}/{name} in Harvester", self.namespace))
        })
    }
}

impl fmt::Debug for HarvesterApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HarvesterApi").field(&self.namespace).finish()
    }
}

/// Whether the API server itself says that this object does not exist. A 404 of a proxy, of Rancher or of a
/// server without this kind of object says nothing about it.
fn is_absent(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let details = status.details.as_ref();
    status.code == 404
        && status.reason == "NotFound"
        && details
            .is_some_and(|details| details.name == name && details.group == GROUP && details.kind == PLURAL)
}

/// What an error of a call means.
fn error_of(error: &kube::Error) -> Error {
    let unavailable = |words: String| Error::new(ErrorKind::Unavailable, words);
    match error {
        kube::Error::Api(status) => of_status(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => unavailable(
            "the answer is no object of Kubernetes: perhaps a login page or a proxy; check the server of the kubeconfig"
                .to_owned(),
        ),
        kube::Error::Service(error) => {
            unavailable(format!("Harvester cannot be reached: {}", plain(&error_chain(&**error))))
        }
        error => unavailable(format!("Harvester cannot be reached: {}", plain(&error_chain(error)))),
    }
}

fn of_status(status: &Status) -> Error {
    let said = plain(&status.message);
    let words = if said.is_empty() { String::new() } else { format!(": {said}") };
    let code = status.code;
    let after = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|after| *after > 0);
    let after = after.map(|seconds| Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER));
    let error = match (code, status.reason.as_str()) {
        (401, _) => Error::new(
            ErrorKind::Unauthenticated,
            format!("Harvester refuses the credentials of the kubeconfig (401){words}"),
        ),
        (403, _) => {
            Error::new(ErrorKind::PermissionDenied, format!("Harvester does not allow this (403){words}"))
        }
        (404, _) => Error::new(
            ErrorKind::Unavailable,
            format!(
                "Harvester does not have what the call needs (404){words}; check the server and the namespace, and that \
                 Harvester has the kind LoadBalancer of {GROUP}"
            ),
        ),
        (409, _) => {
            Error::new(ErrorKind::Conflict, format!("somebody else changed it at the same time (409){words}"))
        }
        (429, _) => Error::new(ErrorKind::RateLimited, format!("too many requests (429){words}"))
            .with_retry_after(after.unwrap_or(RETRY_AFTER)),
        // The server gave up. Whether the call had its effect is not known.
        (_, "Timeout" | "ServerTimeout") => {
            Error::new(ErrorKind::Timeout, format!("Harvester was too slow ({code}){words}"))
        }
        (400..=499, _) => Error::new(
            ErrorKind::InvalidInput,
            format!("Harvester refuses the load balancer ({code}){words}"),
        ),
        _ => Error::new(ErrorKind::Unavailable, format!("Harvester fails ({code}){words}")),
    };
    match after {
        Some(after) if code >= 500 => error.with_retry_after(after),
        _ => error,
    }
}

/// Foreign words for a message: short, on one line.
fn plain(text: &str) -> String {
    let text = if text.trim_start().starts_with('<') { "an HTML page" } else { text };
    let one_line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect();
    one_line.trim().to_owned()
}

#[cfg(test)]
mod tests;

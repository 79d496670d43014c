//! Keeps a leader whose term is over from writing, also when it did not notice: a process that was frozen, or whose
//! threads were busy, goes on where it stood.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use tokio::time::Instant;
use tower::{BoxError, Service};

/// Until when the holder of one Lease may write. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not lead any more")]
pub struct NotLeading;

impl Fence {
    pub(super) fn open_until(&self, end: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is_open(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| Instant::now() < end)
    }

    /// The same client, whose writes fail with [`NotLeading`] once the term is over. Reads go on.
    pub fn guard(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Fenced { client, fence: self.clone() }, namespace)
    }
}

#[derive(Clone)]
struct Fenced {
    client: Client,
    fence: Fence,
}

impl Service<Request<Body>> for Fenced {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, fence } = self.clone();
        let writes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        let mut response = Box::pin(async move { Ok(client.send(request).await?) });
        // Looked at whenever there is something to do: below, a request may wait for its turn or be sent again.
        Box::pin(poll_fn(move |cx| {
            if writes && !fence.is_open() {
                return Poll::Ready(Err(NotLeading.into()));
            }
            response.as_mut().poll(cx)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Namespace;
    use kube::{Api, api::DeleteParams};
    use sandbox::Sandbox;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_term_reads_do_not() {
        let sandbox = Sandbox::new();
        let fence = Fence::default();
        let api: Api<Namespace> = Api::all(fence.guard(sandbox.client()));
        let delete =
            || async { api.delete("nobody", &DeleteParams::default()).await.expect_err("either way") };
        let refused = |error: &kube::Error| matches!(error, kube::Error::Service(inner) if inner.downcast_ref::<NotLeading>().is_some());
        assert!(refused(&delete().await), "never led");
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert!(matches!(delete().await, kube::Error::Api(_)), "leads");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(refused(&delete().await), "nobody said that the term is over, but it is");
        api.list(&kube::api::ListParams::default()).await.expect("reads go on");
        fence.open_until(Instant::now() + Duration::from_secs(10));
        fence.close();
        assert!(refused(&delete().await));
    }
}

//! The path of a request from a controller to the connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as _;
use kube::{
    Client,
    client::{Body, ClientBuilder},
};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service};

use super::metrics::ClientMetrics;
use super::{
    account::Account,
    answer::AnswerBody,
    connection::{Connection, is_watch},
    dry_run::{self, DryRun},
    request_log::RequestLog,
    retry::{MOST_RETRIES, wait_before_retry},
    throttle::Throttle,
};

/// Sends the requests of one client.
#[derive(Clone)]
pub(super) struct Sender {
    pub connection: Connection,
    pub user_agent: HeaderValue,
    pub throttle: Throttle,
    /// The service account whose token is sent, if not the connection's own credentials.
    pub account: Option<Arc<Account>>,
    /// Whether requests are retried when the API server asks for it. A watch never is: its caller starts it
    /// again after seconds. Pauses in here grow during an outage and would keep the watch away long after its
    /// end.
    pub retries: bool,
    pub metrics: ClientMetrics,
    pub dry_run: Option<Arc<DryRun>>,
}

impl Sender {
    pub(super) fn into_client(self) -> Client {
        let namespace = "default";
        ClientBuilder::new(self, namespace).build()
    }

    async fn handle(self, mut request: Request<Body>) -> Result<Response<AnswerBody>, kube::Error> {
        request.headers_mut().insert(header::USER_AGENT, self.user_agent.clone());
        match &self.dry_run {
            Some(dry_run) if dry_run::is_write(&request) => {
                dry_run.answer(request, |read| self.exchange(read)).await
            }
            _ => self.exchange(request).await,
        }
    }

    /// Waits for the throttle, sends the request, and retries it if the API server asks for it.
    async fn exchange(&self, request: Request<Body>) -> Result<Response<AnswerBody>, kube::Error> {
        let (method, is_watch) = (request.method().clone(), is_watch(&request));
        let host = self.connection.current().host.clone();
        let (verb, host) = (method.as_str(), host.as_str());
        let start = Instant::now();
        if self.throttle.is_limited() {
            self.throttle.wait().await;
            self.metrics.rate_limited(verb, host, start.elapsed());
        }
        let size = request.body().size_hint().exact().unwrap_or_default();
        let most_retries = if self.retries && !is_watch { MOST_RETRIES } else { 0 };
        let outcome = self.with_retries(request, most_retries, |outcome, is_retry| {
            if size > 0 {
                self.metrics.request_size(verb, host, size);
            }
            self.metrics.answered(verb, host, outcome, is_retry);
        });
        let outcome = outcome.await;
        if is_watch {
            return outcome;
        }
        self.metrics.took(verb, host, start.elapsed());
        let response = outcome?;
        let status = response.status();
        Ok(response.map(|body| body.measured(status, self.metrics.response_size(verb, host))))
    }

    /// Calls `tell` for each response, with its status, or `None` if there was none, and whether it answers a
    /// retry.
    async fn with_retries(
        &self,
        request: Request<Body>,
        most_retries: u32,
        tell: impl Fn(Option<StatusCode>, bool),
    ) -> Result<Response<AnswerBody>, kube::Error> {
        let mut next = Some(request);
        let mut retries = 0;
        let mut another_token = false;
        while let Some(mut request) = next.take() {
            let again = copy_of(&request);
            let token = match &self.account {
                Some(account) => Some(account.header().await?),
                None => None,
            };
            if let Some(token) = &token {
                request.headers_mut().insert(header::AUTHORIZATION, token.clone());
            }
            let log = RequestLog::of(&request);
            let outcome = self.connection.send(request, token.is_some()).await;
            if let Some(log) = log {
                log.answered(&outcome);
            }
            tell(outcome.as_ref().ok().map(Response::status), retries > 0);
            let response = outcome?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let (Some(account), Some(token)) = (&self.account, &token)
            {
                account.refused(token).await;
                if !another_token && again.is_some() {
                    another_token = true;
                    retries += 1;
                    next = again;
                    continue;
                }
            }
            let wait = wait_before_retry(response.status(), response.headers(), retries);
            match (wait, again) {
                (Some(wait), Some(again)) if retries < most_retries => {
                    tracing::debug!(
                        status = response.status().as_u16(),
                        uri = %again.uri(),
                        "the API server asks to come again in {wait:.1?}"
                    );
                    retries += 1;
                    drop(response);
                    sleep(wait).await;
                    next = Some(again);
                }
                _ => return Ok(response),
            }
        }
        Err(kube::Error::Service("the request could not be sent again".into()))
    }
}

/// A copy of the request, if its body can be cloned.
pub(super) fn copy_of(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

impl Service<Request<Body>> for Sender {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The connections have their own queue.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sender = self.clone();
        Box::pin(async move { Ok(sender.handle(request).await?) })
    }
}

//! Prevents a leader from writing after its term, even if it has not noticed the end: a process that was
//! frozen, or whose threads were busy, continues where it stopped.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use tokio::time::sleep;
use tower::{BoxError, Service};

use super::clock::{Clock, Moment};

/// Pause between two checks of the clocks.
const LOOK: Duration = Duration::from_millis(200);

/// Until when the holder of one Lease may write. Clones share it.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    /// The beginning and the length of the term.
    term: Arc<Mutex<Option<(Moment, Duration)>>>,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not lead any more")]
pub struct NotLeading;

impl Default for Fence {
    /// A closed fence, on the clock of this machine.
    fn default() -> Self {
        Self::new(Clock::system())
    }
}

impl Fence {
    /// A closed fence.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, term: Arc::default() }
    }

    /// Opens the fence for a term of this length.
    pub(super) fn open(&self, began: Moment, length: Duration) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some((began, length));
    }

    pub(super) fn close(&self) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn is_open(&self) -> bool {
        let term = *self.term.lock().unwrap_or_else(PoisonError::into_inner);
        term.is_some_and(|(began, length)| !began.is_over(length, self.clock.moment()))
    }

    /// Waits until the fence is closed. The fence is polled, since a leap of the time of day sends no
    /// notification.
    pub(super) async fn closed(&self) {
        while self.is_open() {
            sleep(LOOK).await;
        }
    }

    /// Makes `call` while the fence is open. It is checked at each poll, since the call may take long. So a call that
    /// changes something outside of the cluster does not begin after the term.
    ///
    /// # Errors
    /// The fence is closed. The call was dropped, wherever it was.
    pub async fn pass<T>(&self, call: impl Future<Output = T>) -> Result<T, NotLeading> {
        let mut call = pin!(call);
        let poll = |cx: &mut Context<'_>| {
            if !self.is_open() {
                return Poll::Ready(Err(NotLeading));
            }
            call.as_mut().poll(cx).map(Ok)
        };
        poll_fn(poll).await
    }

    /// The same client, but its writes fail with [`NotLeading`] once the term is over. Reads still work.
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
        let response = async move { Ok(client.send(request).await?) };
        // The request may wait for the throttle or be retried below: the fence is checked all the time.
        Box::pin(async move { if writes { fence.pass(response).await? } else { response.await } })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{Api, api::DeleteParams};
    use sandbox::Sandbox;

    use super::{super::clock::tests::Machine, *};

    const TERM: Duration = Duration::from_secs(10);

    async fn is_refused(api: &Api<Namespace>) -> bool {
        match api.delete("nobody", &DeleteParams::default()).await.expect_err("either way") {
            kube::Error::Api(_) => false,
            kube::Error::Service(inner) => inner.downcast_ref::<NotLeading>().is_some(),
            other => panic!("{other}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_term_reads_do_not() {
        let sandbox = Sandbox::new();
        let clock = Clock::system();
        let fence = Fence::new(clock.clone());
        let api: Api<Namespace> = Api::all(fence.guard(sandbox.client()));
        assert!(is_refused(&api).await, "never led");
        fence.open(clock.moment(), TERM);
        assert!(!is_refused(&api).await, "leads");
        tokio::time::advance(TERM).await;
        assert!(is_refused(&api).await, "nobody said that the term is over, but it is");
        api.list(&kube::api::ListParams::default()).await.expect("reads go on");
        fence.open(clock.moment(), TERM);
        fence.close();
        assert!(is_refused(&api).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_the_term() {
        let fence = Fence::default();
        assert_eq!(fence.pass(std::future::ready(1)).await, Err(NotLeading), "never led");
        fence.open(fence.clock.moment(), TERM);
        assert_eq!(fence.pass(std::future::ready(1)).await, Ok(1));
        let slow = async {
            for _ in 0..20 {
                sleep(TERM / 10).await;
            }
        };
        let began = tokio::time::Instant::now();
        assert_eq!(fence.pass(slow).await, Err(NotLeading));
        assert_eq!(began.elapsed(), TERM, "the end comes in the middle");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_through_the_term_writes_nothing() {
        let sandbox = Sandbox::new();
        let machine = Arc::new(Machine::default());
        let clock = Clock::of(machine.clone());
        let fence = Fence::new(clock.clone());
        let api: Api<Namespace> = Api::all(fence.guard(sandbox.client()));
        fence.open(clock.moment(), TERM);
        machine.suspend(TERM);
        assert!(is_refused(&api).await, "the monotonic clock stood still");
        fence.open(clock.moment(), TERM);
        assert!(!is_refused(&api).await);
        // The hypervisor paused the machine. Only the time of day shows it, once that is corrected.
        machine.set_wall(60);
        assert!(is_refused(&api).await);
        fence.open(clock.moment(), TERM);
        assert!(!is_refused(&api).await, "renewed");
        machine.set_wall(-3600);
        assert!(!is_refused(&api).await, "a time of day that was wrong");
    }
}

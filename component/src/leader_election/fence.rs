//! Prevents a leader from writing after its term, even if it has not noticed the end: a process that was
//! frozen, or whose threads were busy, continues where it stopped.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::time::sleep;
use tower::{BoxError, Service};

use super::clock::{Clock, Moment};

/// Pause between two checks of the clocks.
const LOOK: Duration = Duration::from_millis(200);

/// Until when the holder of one Lease may write. Clones share it.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    term: Arc<Mutex<Option<Term>>>,
}

/// The term as it is known from the last renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// When the renewal was sent.
    pub(super) began: Moment,
    /// How long after that this process leads.
    pub(super) leads_for: Duration,
    /// How long after that no other candidate leads. That is longer.
    pub(super) alone_for: Duration,
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

    /// Opens the fence for this term.
    pub(super) fn open(&self, term: Term) {
        *self.term.lock() = Some(term);
    }

    pub(super) fn close(&self) {
        *self.term.lock() = None;
    }

    pub(super) fn is_open(&self) -> bool {
        !self.alone_for().is_zero()
    }

    /// How long from now no other candidate can lead, whatever becomes of this process. Zero while the fence is closed.
    pub fn alone_for(&self) -> Duration {
        let term = *self.term.lock();
        let Some(Term { began, leads_for, alone_for }) = term else { return Duration::ZERO };
        let now = self.clock.moment();
        if began.is_over(leads_for, now) { Duration::ZERO } else { began.left_of(alone_for, now) }
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

    /// A term that begins now. Others wait half as long again.
    fn term(clock: &Clock) -> Term {
        Term { began: clock.moment(), leads_for: TERM, alone_for: TERM + TERM / 2 }
    }

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
        fence.open(term(&clock));
        assert!(!is_refused(&api).await, "leads");
        tokio::time::advance(TERM).await;
        assert!(is_refused(&api).await, "nobody said that the term is over, but it is");
        api.list(&kube::api::ListParams::default()).await.expect("reads go on");
        fence.open(term(&clock));
        fence.close();
        assert!(is_refused(&api).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_the_term() {
        let fence = Fence::default();
        assert_eq!(fence.pass(std::future::ready(1)).await, Err(NotLeading), "never led");
        fence.open(term(&fence.clock));
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
    async fn others_wait_longer_than_the_term() {
        let machine = Arc::new(Machine::default());
        let fence = Fence::new(Clock::of(machine.clone()));
        let second = Duration::from_secs(1);
        assert_eq!(fence.alone_for(), Duration::ZERO, "never led");
        fence.open(term(&fence.clock));
        assert_eq!(fence.alone_for(), 15 * second);
        tokio::time::advance(6 * second).await;
        assert_eq!(fence.alone_for(), 9 * second, "not renewed");
        machine.suspend(2 * second);
        assert_eq!(fence.alone_for(), 7 * second);
        machine.set_wall(9);
        assert_eq!(fence.alone_for(), 6 * second, "the time of day is ahead");
        tokio::time::advance(2 * second).await;
        assert_eq!(
            fence.alone_for(),
            Duration::ZERO,
            "it does not lead any more, though nobody else does yet"
        );
        fence.open(term(&fence.clock));
        assert_eq!(fence.alone_for(), 15 * second);
        fence.close();
        assert_eq!(fence.alone_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_through_the_term_writes_nothing() {
        let sandbox = Sandbox::new();
        let machine = Arc::new(Machine::default());
        let clock = Clock::of(machine.clone());
        let fence = Fence::new(clock.clone());
        let api: Api<Namespace> = Api::all(fence.guard(sandbox.client()));
        fence.open(term(&clock));
        machine.suspend(TERM);
        assert!(is_refused(&api).await, "the monotonic clock stood still");
        fence.open(term(&clock));
        assert!(!is_refused(&api).await);
        // The hypervisor paused the machine. Only the time of day shows it, once that is corrected.
        machine.set_wall(60);
        assert!(is_refused(&api).await);
        fence.open(term(&clock));
        assert!(!is_refused(&api).await, "renewed");
        machine.set_wall(-3600);
        assert!(!is_refused(&api).await, "a time of day that was wrong");
    }
}

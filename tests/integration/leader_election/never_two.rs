//! Candidates on a bad network for hours: two never lead at the same time.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::ensure;
use ccm::leader_election::LeaderElectionOptions;
use http::Request;
use kube::client::{Body, ClientBuilder};
use sandbox::{Action, Fault, Matcher, Sandbox};
use tokio::{
    task::LocalSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use super::{elector, options};
use crate::{
    scenarios::Trials,
    trial::{Outcome, runtime},
};

const CANDIDATES: usize = 3;
const RUNS: u64 = 15;
const TIME: Duration = Duration::from_secs(1800);

pub(crate) fn trials() -> Trials {
    Trials::new().trial("sandbox::leader_election::never_two_whatever_happens", never_two)
}

/// The times from and until which a candidate led.
type Terms = Rc<RefCell<Vec<(Instant, Instant, String)>>>;

fn never_two() -> Outcome {
    let mut leaderships = 0;
    for seed in 0..RUNS {
        leaderships += runtime(true)?.block_on(LocalSet::new().run_until(run(seed)))?;
    }
    println!("{leaderships} leaderships in {RUNS} runs, no two at once");
    Ok(())
}

async fn run(seed: u64) -> anyhow::Result<usize> {
    // Jitter and faults come from the thread's generator, so a failing seed is reproducible.
    fastrand::seed(seed);
    let sandbox = Sandbox::new();
    sandbox.faults().seed(seed);
    for action in [Action::Conflict, Action::InternalError, Action::LoseResponse, Action::ResetConnection] {
        sandbox.faults().inject(Fault::new(Matcher::any().resource("leases"), action).probability(0.04));
    }
    let terms = Terms::default();
    let stop = CancellationToken::new();
    let candidates: Vec<_> = (0..CANDIDATES)
        .map(|number| {
            tokio::task::spawn_local(candidate(sandbox.clone(), number, stop.clone(), terms.clone()))
        })
        .collect();
    sleep(TIME).await;
    stop.cancel();
    for candidate in candidates {
        candidate.await??;
    }
    let mut terms = terms.take();
    terms.sort();
    for pair in terms.windows(2) {
        let [(_, end, first), (start, _, second)] = pair else { continue };
        ensure!(end <= start, "seed {seed}: {second} began {:?} before {first} ended", *end - *start);
    }
    ensure!(terms.len() > 20, "seed {seed}: only {} leaderships in {TIME:?}", terms.len());
    Ok(terms.len())
}

/// Starts, leads, works, and ends in all ways, repeatedly.
async fn candidate(
    sandbox: Sandbox,
    number: usize,
    stop: CancellationToken,
    terms: Terms,
) -> anyhow::Result<()> {
    let client = ClientBuilder::new(sandbox.service(), "default").with_layer(&BadNetwork).build();
    let mut life = 0;
    while !stop.is_cancelled() {
        life += 1;
        // Different timings, as with different flags: a candidate must respect those of the holder.
        let lease = Duration::from_millis(fastrand::u64(4_000..16_000));
        let identity = format!("candidate-{number}-life-{life}");
        let options = LeaderElectionOptions {
            lease_duration: lease,
            renew_deadline: lease.mul_f64(fastrand::f64().mul_add(0.3, 0.6)),
            retry_period: Duration::from_millis(fastrand::u64(300..1_500)),
            ..options(&identity)
        };
        let Some(mut leadership) = elector(&client, options)?.acquire(&stop).await else { break };
        let begin = Instant::now();
        let work = Duration::from_millis(fastrand::u64(0..90_000));
        let lost = timeout(work, leadership.renew()).await.is_ok();
        terms.borrow_mut().push((begin, Instant::now(), identity));
        if !lost && fastrand::bool() {
            leadership.release().await;
        } else {
            // A crash, or an end that is equivalent.
            drop(leadership);
        }
        sleep(Duration::from_millis(fastrand::u64(0..5_000))).await;
    }
    Ok(())
}

/// Delays requests, which are served even if the client has given up, and delays or loses responses.
#[derive(Clone, Copy)]
struct BadNetwork;

impl<S> Layer<S> for BadNetwork {
    type Service = Late<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Late { inner }
    }
}

struct Late<S> {
    inner: S,
}

fn delay() -> Duration {
    match fastrand::u8(0..20) {
        0 => Duration::from_millis(fastrand::u64(1_000..20_000)),
        1..=4 => Duration::from_millis(fastrand::u64(0..1_000)),
        _ => Duration::from_millis(fastrand::u64(0..20)),
    }
}

impl<S> Service<Request<Body>> for Late<S>
where
    S: Service<Request<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Drawn here, so that a seed gives the same order.
        let (there, back) = (delay(), delay());
        let mut inner = self.inner.clone();
        // A separate task, so that the request is served even if the client has gone.
        let served = tokio::spawn(async move {
            sleep(there).await;
            inner.call(request).await
        });
        Box::pin(async move {
            let Ok(answer) = served.await else { std::future::pending().await };
            sleep(back).await;
            answer
        })
    }
}

//! `--kube-api-qps` and `--kube-api-burst`.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::Mutex;

/// Limits the rate of requests, which wait in the order of their arrival. Clones share the limit.
#[derive(Clone)]
pub(super) struct Throttle(Option<Arc<(Mutex<()>, DefaultDirectRateLimiter)>>);

impl Throttle {
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// `limit` is the average rate per second and the burst.
    pub(super) fn new(limit: Option<(f64, u32)>) -> Self {
        let quota = limit.and_then(|(qps, burst)| quota(qps, burst));
        Self(quota.map(|quota| Arc::new((Mutex::new(()), RateLimiter::direct(quota)))))
    }

    /// Whether there is a limit, so that requests may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the request may be sent.
    pub(super) async fn wait(&self) {
        if let Some(shared) = &self.0 {
            // The limiter itself serves waiting requests in no particular order. This lock queues them in
            // order.
            let _turn = shared.0.lock().await;
            shared.1.until_ready().await;
        }
    }
}

fn quota(qps: f64, burst: u32) -> Option<Quota> {
    let burst = NonZeroU32::new(burst)?;
    Some(Quota::with_period(Duration::try_from_secs_f64(1.0 / qps).ok()?)?.allow_burst(burst))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_burst_passes_and_the_rest_waits_in_order() {
        assert!(!Throttle::new(None).is_limited());
        assert!(Throttle::none().wait().now_or_never().is_some());
        // One request per 1,000 s: in this test, only requests within the burst are sent.
        let throttle = Throttle::new(Some((0.001, 2)));
        assert!(throttle.wait().now_or_never().is_some());
        assert!(throttle.wait().now_or_never().is_some());
        assert!(throttle.wait().now_or_never().is_none());
        let first = throttle.clone();
        let mut first = Box::pin(async move { first.wait().await });
        assert!(first.as_mut().now_or_never().is_none());
        // A later request cannot overtake the first one.
        assert!(throttle.0.as_ref().expect("limited").0.try_lock().is_err());
    }
}

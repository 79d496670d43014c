//! The sandbox's conformance cases on the real API server, so that the sandbox behaves like it.

use anyhow::anyhow;
use futures::{FutureExt, StreamExt, stream};
use libtest_mimic::Trial;
use sandbox::conformance::CASES;

use crate::{
    api::{Api, Target},
    trial::{runtime, trial},
};

/// How many cases run at the same time. Each has objects of its own.
const CONCURRENT_CASES: usize = 8;

pub(crate) fn trials() -> Vec<Trial> {
    // The sandbox's own tests run the same cases against the sandbox.
    vec![trial("apiserver::answers_as_the_sandbox_does", || {
        runtime(false)?.block_on(async {
            let api = Api::connect(Target::ApiServer).await?;
            let failed: Vec<String> = stream::iter(CASES)
                .map(|case| (case.run)(api.client.clone()).map(|outcome| (case.name, outcome)))
                .buffer_unordered(CONCURRENT_CASES)
                .filter_map(async |(name, outcome)| Some(format!("{name}: {}", outcome.err()?)))
                .collect()
                .await;
            if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("; ")).into()) }
        })
    })]
}

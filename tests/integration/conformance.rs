//! The sandbox's conformance cases on the real API server, so that the sandbox behaves like it.

use anyhow::ensure;
use futures::{FutureExt, StreamExt, stream};
use sandbox::conformance::CASES;

use crate::{api::Api, scenarios::Trials};

/// How many cases run at the same time. Each has objects of its own.
const CONCURRENT_CASES: usize = 8;

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("answers_as_the_sandbox_does", conforms)
}

/// The sandbox's own tests run the same cases against the sandbox.
async fn conforms(api: &Api) -> anyhow::Result<()> {
    let failed: Vec<String> = stream::iter(CASES)
        .map(|case| (case.run)(api.client.clone()).map(|outcome| (case.name, outcome)))
        .buffer_unordered(CONCURRENT_CASES)
        .filter_map(async |(name, outcome)| Some(format!("{name}: {}", outcome.err()?)))
        .collect()
        .await;
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

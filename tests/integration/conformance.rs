//! What keeps the sandbox honest: its own cases against the real API server.

use anyhow::anyhow;
use libtest_mimic::Trial;
use sandbox::conformance::CASES;

use crate::{
    api::{Api, Target},
    trial::{runtime, trial},
};

pub(crate) fn trials() -> Vec<Trial> {
    // The sandbox's own tests run the same cases against the sandbox.
    vec![trial("apiserver::answers_as_the_sandbox_does", || {
        runtime(false)?.block_on(async {
            let api = Api::connect(Target::ApiServer).await?;
            let mut failed = Vec::new();
            for case in CASES {
                if let Err(error) = (case.run)(api.client.clone()).await {
                    failed.push(format!("{}: {error}", case.name));
                }
            }
            if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("; ")).into()) }
        })
    })]
}

//! The rules of the contract, for any provider: see [the module above](super).
//!
//! A rule passes, fails with a reason, or is not checked because a [hook](Hooks) or a part of the provider is
//! missing. The [`Report`] says which. Each rule uses a provider of its own, which is started and stopped for
//! it, so rules do not affect each other. If the provider panics, the rule in which it happens fails. A rule
//! that takes longer than five minutes fails too.
//!
//! The suites check only what can be seen from outside. They cannot see, for example, whether a factory calls
//! the cloud.

mod changes;
mod check;
mod configuration;
mod hooks;
mod lifecycle;
mod load_balancers;
mod lookups;
mod machines;
mod provider_ids;
mod report;
mod routes;
mod run;
mod strange;

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};

use self::{
    check::{Check, panic_words},
    run::{Checked, Run, Stop},
};
pub use self::{
    hooks::{BadConfiguration, ConfigurationCases, Hook, HookError, Hooks, MachineCases},
    report::{Outcome, Report, Rule, RuleResult, Suite},
};

/// Time limit for one rule, whatever hangs in it.
const RULE_TIMEOUT: Duration = Duration::from_secs(300);

fn checks(suite: Suite) -> &'static [Check] {
    match suite {
        Suite::Lookups => lookups::CHECKS,
        Suite::Changes => changes::CHECKS,
        Suite::ProviderIds => provider_ids::CHECKS,
        Suite::LoadBalancers => load_balancers::CHECKS,
        Suite::Routes => routes::CHECKS,
        Suite::Machines => machines::CHECKS,
        Suite::Configuration => configuration::CHECKS,
        Suite::Lifecycle => lifecycle::CHECKS,
    }
}

/// Checks every rule.
pub async fn run(hooks: &dyn Hooks) -> Report {
    run_suites(hooks, Suite::ALL).await
}

/// Checks the rules of these suites, one after the other.
pub async fn run_suites(hooks: &dyn Hooks, suites: &[Suite]) -> Report {
    let run = Run::new(hooks);
    let mut results = Vec::new();
    for suite in suites {
        for Check { name, says, look } in checks(*suite) {
            let outcome = outcome(look(&run)).await;
            run.clean_up().await;
            results.push(RuleResult { rule: Rule { suite: *suite, name, says }, outcome });
        }
    }
    Report { provider: run.provider_name(), results }
}

async fn outcome(look: BoxFuture<'_, Checked>) -> Outcome {
    match AssertUnwindSafe(tokio::time::timeout(RULE_TIMEOUT, look)).catch_unwind().await {
        Ok(Ok(Ok(checked))) => Outcome::Passed { checked },
        Ok(Ok(Err(Stop::Failed(reason)))) => Outcome::Failed { reason },
        Ok(Ok(Err(Stop::NotChecked(reason)))) => Outcome::NotChecked { reason },
        Ok(Err(_)) => Outcome::Failed { reason: format!("not done within {} s", RULE_TIMEOUT.as_secs()) },
        Err(panic) => Outcome::Failed { reason: format!("a panic: {}", panic_words(&*panic)) },
    }
}

#[cfg(test)]
mod tests;

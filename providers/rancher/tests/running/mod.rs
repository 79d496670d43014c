//! A provider that runs on one of the fakes, and what the tests of both ask of it.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, InstanceLookup, Instances, NodeIdentity, StartContext,
    testing::conformance::{Report, Suite},
};
use cloudprovider_rancher::RancherProvider;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How often an answer is asked for that is to become another one.
const INTERVAL: Duration = Duration::from_millis(50);

/// A provider that is started. It ends with this value.
pub(crate) struct Running {
    pub(crate) provider: Arc<RancherProvider>,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    /// Starts a provider.
    pub(crate) async fn start(provider: RancherProvider) -> Self {
        let (provider, stop) = (Arc::new(provider), CancellationToken::new());
        provider.start(StartContext::new(stop.clone(), "test")).await.expect("it starts");
        Self { provider, stop }
    }

    pub(crate) async fn look_up(&self, nodes: &[NodeIdentity]) -> Vec<InstanceLookup> {
        self.provider.lookup(&nodes.iter().collect::<Vec<_>>()).await
    }

    /// The answer for a Node, in a word.
    pub(crate) async fn answer(&self, node: &NodeIdentity) -> String {
        in_a_word(&self.look_up(std::slice::from_ref(node)).await[0])
    }

    /// Waits until the answer for a Node begins so.
    pub(crate) async fn until(&self, node: &NodeIdentity, expected: &str) -> String {
        let began = Instant::now();
        loop {
            let answer = self.answer(node).await;
            if answer.starts_with(expected) {
                return answer;
            }
            assert!(
                began.elapsed() < test_env::PATIENCE,
                "{} is {answer:?} and does not become {expected:?}",
                node.name
            );
            sleep(INTERVAL).await;
        }
    }
}

/// An answer in a word, for comparisons.
pub(crate) fn in_a_word(lookup: &InstanceLookup) -> String {
    match lookup {
        InstanceLookup::Present(instance) => format!("present {}", instance.power_state),
        InstanceLookup::Absent => "absent".to_owned(),
        InstanceLookup::Unknown(error) => format!("unknown {}: {}", error.kind(), error.report()),
    }
}

/// Asserts that a provider keeps the rules, and that each was checked but for those of `others` and these.
/// Another one would be a rule that no test checks.
pub(crate) fn assert_checked(report: &Report, others: &[Suite], not_checked: &[&str]) {
    report.print_and_assert();
    let found: Vec<_> = report
        .not_checked()
        .filter(|(rule, _)| !others.contains(&rule.suite))
        .map(|(rule, _)| rule.to_string())
        .collect();
    assert_eq!(found, not_checked);
}

//! Providers on the fake.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, FactoryInput, Instance, InstanceLookup, Instances, LoadBalancer, NodeIdentity,
    StartContext,
};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::testing::FakeCattle;

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

/// A provider with this configuration, not started.
pub(crate) fn provider(config: &str) -> cloudprovider::Result<RancherProvider> {
    RancherProvider::new(&Config::read(&FactoryInput::new(config), &Environment::default())?)
}

/// A provider on this server, with further lines of configuration.
pub(crate) async fn start(server: &FakeCattle, more: &str) -> Running {
    start_with(&server.config(more)).await
}

/// A provider with this configuration, started.
pub(crate) async fn start_with(config: &str) -> Running {
    let provider = Arc::new(provider(config).expect("a good configuration"));
    let stop = CancellationToken::new();
    provider.start(StartContext::new(stop.clone(), "test")).await.expect("it starts");
    Running { provider, stop }
}

impl Running {
    pub(crate) async fn look_up(&self, nodes: &[NodeIdentity]) -> Vec<InstanceLookup> {
        self.provider.lookup(&nodes.iter().collect::<Vec<_>>()).await
    }

    /// The answer for a new Node with this name, in a word.
    pub(crate) async fn answer(&self, name: &str) -> String {
        in_a_word(&self.look_up(&[node(name)]).await[0])
    }

    /// Waits until the answer for a Node with this name begins so.
    pub(crate) async fn until(&self, name: &str, expected: &str) -> String {
        for _ in 0..200 {
            let answer = self.answer(name).await;
            if answer.starts_with(expected) {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} is {:?} and does not become {expected:?}", self.answer(name).await);
    }

    pub(crate) fn balancers(&self) -> &dyn LoadBalancer {
        self.provider.load_balancer().expect("load balancers")
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

/// The instance of an answer.
pub(crate) fn present(lookup: InstanceLookup) -> Instance {
    match lookup {
        InstanceLookup::Present(instance) => *instance,
        other => panic!("not present: {other:?}"),
    }
}

/// A Node as its kubelet registers it.
pub(crate) fn node(name: &str) -> NodeIdentity {
    NodeIdentity { name: name.to_owned(), uid: format!("uid-of-{name}"), ..NodeIdentity::default() }
}

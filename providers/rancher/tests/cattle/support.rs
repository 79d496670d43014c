//! Providers on the fake.

use cloudprovider::{CloudProvider, FactoryInput, Instance, InstanceLookup, LoadBalancer, NodeIdentity};
use cloudprovider_rancher::{Config, Environment, RancherProvider};

pub(crate) use crate::running::{Running, in_a_word};
use crate::testing::FakeCattle;

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
    Running::start(provider(config).expect("a good configuration")).await
}

impl Running {
    pub(crate) fn balancers(&self) -> &dyn LoadBalancer {
        self.provider.load_balancer().expect("load balancers")
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

//! Providers on the server.

use std::{
    fmt::{Debug, Write as _},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use cloudprovider::{FactoryInput, Instance, InstanceLookup, NodeAddress, NodeIdentity};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use parking_lot::Mutex;
use test_env::{ControlPlane, StartError};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

pub(crate) use crate::running::{Running, in_a_word};
use crate::{
    kinds::ClusterApi,
    management_cluster::{ManagementCluster, options},
};

/// A provider with this configuration, not started. It lists more often than an operator may ask for, unless
/// the configuration says how often.
pub(crate) fn provider(text: &str) -> cloudprovider::Result<RancherProvider> {
    let mut config = Config::read(&FactoryInput::new(text), &Environment::default())?;
    if !text.contains("pollInterval") {
        config.poll_interval = Duration::from_millis(100);
    }
    RancherProvider::new(&config)
}

/// A provider with this configuration, started.
pub(crate) async fn start(config: &str) -> Running {
    Running::start(provider(config).expect("a good configuration")).await
}

/// The API server of all tests with this version. It ends with the process.
fn control_plane(cluster_api: ClusterApi) -> Option<&'static ControlPlane> {
    static V1BETA1: OnceLock<Option<ControlPlane>> = OnceLock::new();
    static V1BETA2: OnceLock<Option<ControlPlane>> = OnceLock::new();
    let started = match cluster_api {
        ClusterApi::V1Beta1 => &V1BETA1,
        ClusterApi::V1Beta2 => &V1BETA2,
    };
    let start = || match ControlPlane::start(&options()) {
        Ok(started) => Some(started),
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    };
    started.get_or_init(start).as_ref()
}

async fn api_server(cluster_api: ClusterApi) -> Option<&'static ControlPlane> {
    tokio::task::spawn_blocking(move || control_plane(cluster_api)).await.expect("no panic")
}

impl ManagementCluster {
    /// A server with a cluster of this name. `None`, with a message, if this machine cannot run an API
    /// server.
    pub(crate) async fn start(name: &str) -> Option<Self> {
        Some(Self::on(api_server(ClusterApi::V1Beta1).await?, name).await)
    }

    /// The same, with a version of Cluster API.
    pub(crate) async fn start_with(name: &str, cluster_api: ClusterApi) -> Option<Self> {
        Some(Self::with(api_server(cluster_api).await?, name, cluster_api).await)
    }

    /// The same with an imported cluster.
    pub(crate) async fn start_imported(name: &str) -> Option<Self> {
        Some(Self::imported(api_server(ClusterApi::V1Beta1).await?, name).await)
    }

    /// A provider for the cluster, with further lines of configuration.
    pub(crate) async fn provider(&self, more: &str) -> Running {
        start(&self.rancher.config(&self.id, more)).await
    }
}

impl Running {
    /// The instance of a Node that is there.
    pub(crate) async fn instance(&self, node: &NodeIdentity) -> Instance {
        self.until(node, "present").await;
        match self.look_up(std::slice::from_ref(node)).await.remove(0) {
            InstanceLookup::Present(instance) => *instance,
            other => panic!("not present: {other:?}"),
        }
    }
}

/// What the log warns of, on this thread.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// How many of them contain these words.
    pub(crate) fn with(&self, words: &str) -> usize {
        self.0.lock().iter().filter(|one| one.contains(words)).count()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        self.0.lock().push(words.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The fields of a record, as text.
#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a text does not fail.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

/// The provider ID of an instance.
pub(crate) fn id_of(instance: &Instance) -> String {
    instance.provider_id.as_ref().expect("a provider ID").as_str().to_owned()
}

/// The addresses of an instance.
pub(crate) fn addresses_of(instance: &Instance) -> Vec<String> {
    let shown = |address: &NodeAddress| format!("{} {}", address.address_type, address.address);
    instance.metadata.addresses.iter().map(shown).collect()
}

/// A Node as its kubelet registers it.
pub(crate) fn node(name: &str) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        annotations: [("alpha.kubernetes.io/provided-node-ip".to_owned(), "10.9.9.9".to_owned())].into(),
        ..NodeIdentity::default()
    }
}

/// A Node that has been initialised with this provider ID.
pub(crate) fn node_with_id(name: &str, id: &str) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id.to_owned()), created: Some(SystemTime::now()), ..node(name) }
}

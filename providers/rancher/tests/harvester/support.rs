//! Providers on Harvester.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, ErrorKind, FactoryInput, LoadBalancer, LoadBalancerService, LoadBalancerStatus,
    NodeIdentity, Result, ServicePort, ServiceRef, StartContext, testing::FakeServiceAccess,
};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    front::Front,
    harvester::{Harvester, USER},
    testing::FakeCattle,
};

/// The name of the cluster whose Services these are.
pub(crate) const CLUSTER: &str = "guest";

/// A time limit that is longer than any test takes on a busy machine.
const LIMIT: Duration = test_env::PATIENCE;

/// How soon a load balancer is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Harvester, the way to it, Rancher, and the Services of the cluster.
pub(crate) struct World {
    pub(crate) harvester: Harvester,
    pub(crate) front: Front,
    pub(crate) rancher: FakeCattle,
    pub(crate) services: FakeServiceAccess,
    pub(crate) folder: TempDir,
}

impl World {
    /// `None`, with a message, if this machine cannot run an API server.
    pub(crate) async fn start() -> Option<Self> {
        let harvester = Harvester::start().await?;
        let front = Front::start(harvester.control_plane.url()).await;
        let rancher = FakeCattle::start().await;
        for n in 1..=3 {
            rancher.add_host(&format!("node-{n}"), &format!("10.0.0.{n}"));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let world = Self { harvester, front, rancher, services: FakeServiceAccess::new(), folder };
        world.write_kubeconfig(world.harvester.token(USER));
        Some(world)
    }

    /// Writes the kubeconfig anew, with this token.
    pub(crate) fn write_kubeconfig(&self, token: &str) {
        self.harvester.kubeconfig(self.folder.path(), &self.front.url, &self.front.ca, token);
    }

    /// The configuration, with further keys of Harvester.
    pub(crate) fn config(&self, more: &str) -> String {
        let file = self.folder.path().join("harvester.kubeconfig");
        self.rancher.config(&format!(
            "timeout: 20s\nloadBalancer: {{mode: harvester, harvester: {{kubeconfig: '{}'{more}}}}}\n",
            file.display()
        ))
    }

    /// A provider, not started.
    pub(crate) fn provider(&self, more: &str) -> Result<RancherProvider> {
        let mut config = Config::read(&FactoryInput::new(self.config(more)), &Environment::default())?;
        config.load_balancer.retry_interval = RETRY_INTERVAL;
        RancherProvider::new(&config)
    }

    /// The context of a provider.
    pub(crate) fn context(&self, stop: CancellationToken) -> StartContext {
        StartContext::new(stop, CLUSTER).with_services(Arc::new(self.services.clone()))
    }

    /// A provider, started, with further keys of Harvester.
    pub(crate) async fn running(&self, more: &str) -> Running {
        let provider = self.provider(more).expect("a good configuration");
        let stop = CancellationToken::new();
        provider.start(self.context(stop.clone())).await.expect("it starts");
        Running { provider, stop }
    }

    /// A Service of the cluster.
    pub(crate) fn service(&self, name: &str) -> LoadBalancerService {
        let service = service(name);
        self.services.add_service(service_ref(&service));
        service
    }
}

/// A Service that the cluster does not know.
pub(crate) fn service(name: &str) -> LoadBalancerService {
    LoadBalancerService {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        ports: vec![ServicePort { port: 80, node_port: Some(30080), ..ServicePort::default() }],
        ..LoadBalancerService::default()
    }
}

pub(crate) fn service_ref(service: &LoadBalancerService) -> ServiceRef {
    ServiceRef { namespace: service.namespace.clone(), name: service.name.clone(), uid: service.uid.clone() }
}

/// A Node as its kubelet registers it.
pub(crate) fn node(name: &str) -> NodeIdentity {
    NodeIdentity { name: name.to_owned(), uid: format!("uid-of-{name}"), ..NodeIdentity::default() }
}

/// A provider that is started. It ends with this value.
pub(crate) struct Running {
    provider: RancherProvider,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    pub(crate) fn balancers(&self) -> &dyn LoadBalancer {
        self.provider.load_balancer().expect("load balancers")
    }

    /// Ensures, and asks again while Harvester works, as the controller does.
    pub(crate) async fn ensure(&self, service: &LoadBalancerService) -> Result<LoadBalancerStatus> {
        settled(|| self.balancers().ensure(CLUSTER, service, &[])).await
    }

    /// Deletes, in the same way.
    pub(crate) async fn delete(&self, service: &LoadBalancerService) -> Result<()> {
        settled(|| self.balancers().delete(CLUSTER, service)).await
    }

    /// Looks.
    pub(crate) async fn get(&self, service: &LoadBalancerService) -> Result<Option<LoadBalancerStatus>> {
        self.balancers().get(CLUSTER, service).await
    }
}

async fn settled<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<T> {
    let began = Instant::now();
    loop {
        match call().await {
            Err(error) if error.kind() == ErrorKind::InProgress && began.elapsed() < LIMIT => {
                sleep(error.retry_after().expect("a time")).await;
            }
            outcome => return outcome,
        }
    }
}

/// The first address of a status.
pub(crate) fn ip(status: &LoadBalancerStatus) -> &str {
    status.ingress.first().and_then(|ingress| ingress.ip.as_deref()).unwrap_or_default()
}

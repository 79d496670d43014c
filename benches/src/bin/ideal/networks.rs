//! Load balancers and routes of the ideal cloud, and how often they were called.

use std::{
    collections::{BTreeMap, HashMap, hash_map::DefaultHasher},
    fs,
    hash::{Hash as _, Hasher as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use cloudprovider::{
    LoadBalancer, LoadBalancerIngress, LoadBalancerService, LoadBalancerStatus, NodeIdentity, Result, Route,
    Routes, async_trait, default_load_balancer_name,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How often the calls are written into the file.
const INTERVAL: Duration = Duration::from_millis(100);

/// Makes load balancers and routes. A load balancer's address comes from the UID of its Service.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    delay: Duration,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    routes: Mutex<HashMap<String, Route>>,
}

impl Networks {
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    async fn call(&self, operation: &'static str) {
        *self.calls.lock().entry(operation).or_default() += 1;
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    /// Writes the number of calls of each operation into the file, until `stop` is cancelled.
    pub(crate) async fn write_counts(&self, path: PathBuf, stop: CancellationToken) {
        let mut written = BTreeMap::new();
        while stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
            let calls = self.calls.lock().clone();
            if calls != written && write(&path, &calls).is_ok() {
                written = calls;
            }
        }
    }
}

/// The reader never sees half a file.
fn write(path: &Path, calls: &BTreeMap<&'static str, u64>) -> std::io::Result<()> {
    let next = path.with_extension("next");
    fs::write(&next, serde_json::to_vec(calls)?)?;
    fs::rename(next, path)
}

fn status(service: &LoadBalancerService) -> LoadBalancerStatus {
    let mut hasher = DefaultHasher::new();
    service.uid.hash(&mut hasher);
    let [.., b, c, d] = hasher.finish().to_be_bytes();
    let ip = Some(Ipv4Addr::new(100, b, c, d).to_string());
    LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
}

#[async_trait]
impl LoadBalancer for Networks {
    fn name(&self, _: &str, service: &LoadBalancerService) -> String {
        default_load_balancer_name(&service.uid)
    }

    async fn get(&self, _: &str, service: &LoadBalancerService) -> Result<Option<LoadBalancerStatus>> {
        self.call("GetLoadBalancer").await;
        Ok(Some(status(service)))
    }

    async fn ensure(
        &self,
        _: &str,
        service: &LoadBalancerService,
        _: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        self.call("EnsureLoadBalancer").await;
        Ok(status(service))
    }

    async fn update(&self, _: &str, _: &LoadBalancerService, _: &[&NodeIdentity]) -> Result<()> {
        self.call("UpdateLoadBalancer").await;
        Ok(())
    }

    async fn delete(&self, _: &str, _: &LoadBalancerService) -> Result<()> {
        self.call("EnsureLoadBalancerDeleted").await;
        Ok(())
    }
}

#[async_trait]
impl Routes for Networks {
    async fn list(&self, _: &str) -> Result<Vec<Route>> {
        self.call("ListRoutes").await;
        Ok(self.routes.lock().values().cloned().collect())
    }

    async fn create(&self, _: &str, name_hint: &str, route: &Route) -> Result<()> {
        self.call("CreateRoute").await;
        let made = Route { name: name_hint.to_owned(), ..route.clone() };
        self.routes.lock().insert(route.destination_cidr.clone(), made);
        Ok(())
    }

    async fn delete(&self, _: &str, route: &Route) -> Result<()> {
        self.call("DeleteRoute").await;
        self.routes.lock().remove(&route.destination_cidr);
        Ok(())
    }
}

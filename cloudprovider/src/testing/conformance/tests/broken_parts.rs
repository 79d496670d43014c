//! For each rule about load balancers and routes, a provider that breaks it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::subject::Subject;
use crate::{
    CloudProvider, Clusters, DynMachines, Error, ErrorKind, Instances, LoadBalancer, LoadBalancerService,
    LoadBalancerStatus, NodeIdentity, Result, Route, Routes, StartContext, Zones, async_trait,
};

/// A fault of a provider's load balancers or routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// The name depends on the ports.
    NamesChange,
    /// Each `ensure` creates another load balancer.
    MakesAnother,
    /// An empty list of backends is an error.
    NeedsNodes,
    /// Some backends are left to another component.
    LeavesSomeNodes,
    /// Resources that another process created are unknown.
    KnowsItsOwnOnly,
    /// Deleting a missing resource is an error.
    DeletesOnce,
    /// A cancelled call keeps its lock.
    KeepsItsLock,
    /// A second call at the same time is an error.
    OneCallAtATime,
    /// Errors are reported as an empty result.
    ErrorsAreNothing,
    /// An error means that the Service asks for something that the cloud cannot do.
    ErrorsAreUnsupported,
    /// Routes are listed without their Nodes.
    ForgetsTargets,
    /// Creating an existing route is an error.
    CreatesOnce,
    /// The cluster is ignored.
    SharesCidrs,
    MixesClusters,
}

struct Broken {
    inner: Arc<dyn CloudProvider>,
    wrong: Wrong,
    is_busy: AtomicBool,
    /// The resources that this provider created itself.
    made: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.wrong.fmt(f)
    }
}

impl Broken {
    fn balancers(&self) -> &dyn LoadBalancer {
        self.inner.load_balancer().expect("the fake has load balancers")
    }

    fn table(&self) -> &dyn Routes {
        self.inner.routes().expect("the fake has routes")
    }

    /// Whether this provider does not know a resource, since it forgot the resource or never created it.
    fn is_unknown(&self, name: &str) -> bool {
        self.wrong == Wrong::KnowsItsOwnOnly && !self.made.lock().contains(name)
    }

    fn note(&self, name: &str) {
        self.made.lock().insert(name.to_owned());
    }

    /// Pauses in the middle of a call while holding a lock.
    async fn begin(&self) -> Result<()> {
        if !matches!(self.wrong, Wrong::KeepsItsLock | Wrong::OneCallAtATime) {
            return Ok(());
        }
        if self.is_busy.swap(true, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Conflict, "a call is under way"));
        }
        let _given_back = (self.wrong == Wrong::OneCallAtATime).then(|| GivenBack(&self.is_busy));
        tokio::task::yield_now().await;
        self.is_busy.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// A lock that is released when the call is cancelled.
struct GivenBack<'a>(&'a AtomicBool);

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[async_trait]
impl LoadBalancer for Broken {
    fn name(&self, cluster_name: &str, service: &LoadBalancerService) -> String {
        let name = self.balancers().name(cluster_name, service);
        match self.wrong {
            Wrong::NamesChange => format!("{name}-{}", service.ports.len()),
            _ => name,
        }
    }

    async fn get(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>> {
        match self.balancers().get(cluster_name, service).await {
            Ok(_) if self.is_unknown(&service.uid) => Ok(None),
            Err(_) if self.wrong == Wrong::ErrorsAreNothing => Ok(None),
            Err(_) if self.wrong == Wrong::ErrorsAreUnsupported => Err(Error::unsupported("no")),
            answer => answer,
        }
    }

    async fn ensure(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        self.begin().await?;
        if self.wrong == Wrong::MakesAnother {
            self.balancers().delete(cluster_name, service).await?;
        }
        if self.wrong == Wrong::NeedsNodes && nodes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "there are no nodes"));
        }
        self.note(&service.uid);
        self.balancers().ensure(cluster_name, service, nodes).await
    }

    async fn update(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<()> {
        if self.wrong == Wrong::LeavesSomeNodes && nodes.len() == 1 {
            return Err(Error::implemented_elsewhere("one node is no list"));
        }
        self.balancers().update(cluster_name, service, nodes).await
    }

    async fn delete(&self, cluster_name: &str, service: &LoadBalancerService) -> Result<()> {
        if self.wrong == Wrong::DeletesOnce && self.get(cluster_name, service).await?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "there is no load balancer"));
        }
        if self.is_unknown(&service.uid) {
            return Ok(());
        }
        self.balancers().delete(cluster_name, service).await
    }
}

#[async_trait]
impl Routes for Broken {
    async fn list(&self, cluster_name: &str) -> Result<Vec<Route>> {
        let cluster_name = self.cluster(cluster_name);
        let mut routes = match self.table().list(cluster_name).await {
            Err(_) if self.wrong == Wrong::ErrorsAreNothing => Vec::new(),
            answer => answer?,
        };
        routes.retain(|route| !self.is_unknown(&route.destination_cidr));
        if self.wrong == Wrong::ForgetsTargets {
            for route in &mut routes {
                route.target_node.clear();
            }
        }
        Ok(routes)
    }

    async fn create(&self, cluster_name: &str, name_hint: &str, route: &Route) -> Result<()> {
        self.begin().await?;
        let cluster_name = self.cluster(cluster_name);
        if self.wrong == Wrong::CreatesOnce {
            let known = self.table().list(cluster_name).await?;
            if known.iter().any(|known| known.destination_cidr == route.destination_cidr) {
                return Err(Error::new(ErrorKind::Conflict, "there is one"));
            }
        }
        self.note(&route.destination_cidr);
        match self.table().create(cluster_name, name_hint, route).await {
            Err(error) if self.wrong == Wrong::SharesCidrs && error.kind() == ErrorKind::Conflict => Ok(()),
            answer => answer,
        }
    }

    async fn delete(&self, cluster_name: &str, route: &Route) -> Result<()> {
        let cluster_name = self.cluster(cluster_name);
        if self.wrong == Wrong::DeletesOnce {
            let known = self.table().list(cluster_name).await?;
            if !known.iter().any(|known| known.name == route.name) {
                return Err(Error::new(ErrorKind::NotFound, "there is no such route"));
            }
        }
        self.table().delete(cluster_name, route).await
    }
}

impl Broken {
    fn cluster<'a>(&self, name: &'a str) -> &'a str {
        if self.wrong == Wrong::MixesClusters { "all" } else { name }
    }
}

#[async_trait]
impl CloudProvider for Broken {
    fn name(&self) -> &str {
        self.inner.name()
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.inner.start(context).await
    }
    async fn ended(&self) {
        self.inner.ended().await;
    }
    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }
    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }
    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }
    fn clusters(&self) -> Option<&dyn Clusters> {
        self.inner.clusters()
    }
    fn machines(&self) -> Option<&dyn DynMachines> {
        self.inner.machines()
    }
}

/// Each rule, with a subject that breaks it.
pub(super) fn broken() -> Vec<(&'static str, Subject)> {
    let of = |rule, wrong| {
        let mut subject = Subject::new();
        subject.wrap = Box::new(move |inner| {
            Arc::new(Broken { inner, wrong, is_busy: AtomicBool::new(false), made: Mutex::default() })
        });
        (rule, subject)
    };
    vec![
        of("load-balancers/name", Wrong::NamesChange),
        of("load-balancers/ensured", Wrong::MakesAnother),
        of("load-balancers/nodes", Wrong::NeedsNodes),
        of("load-balancers/nodes", Wrong::LeavesSomeNodes),
        of("load-balancers/restart", Wrong::KnowsItsOwnOnly),
        of("load-balancers/deleted", Wrong::DeletesOnce),
        of("load-balancers/cancelled", Wrong::KeepsItsLock),
        of("load-balancers/concurrent", Wrong::OneCallAtATime),
        of("load-balancers/disconnected", Wrong::ErrorsAreNothing),
        of("load-balancers/disconnected", Wrong::ErrorsAreUnsupported),
        of("routes/created", Wrong::ForgetsTargets),
        of("routes/again", Wrong::CreatesOnce),
        of("routes/again", Wrong::SharesCidrs),
        of("routes/deleted", Wrong::DeletesOnce),
        of("routes/cluster", Wrong::MixesClusters),
        of("routes/restart", Wrong::KnowsItsOwnOnly),
        of("routes/cancelled", Wrong::KeepsItsLock),
        of("routes/concurrent", Wrong::OneCallAtATime),
        of("routes/disconnected", Wrong::ErrorsAreNothing),
    ]
}

//! The cluster and the cloud of a scenario, and a daemon that runs the service controller.

use std::{collections::BTreeSet, fmt::Write, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use cloudprovider::testing::{FakeCloud, FakeLoadBalancer};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use sandbox::{Action, Fault, Matcher, kubelet};
use serde_json::{Value, json};
use tokio::time::sleep;

pub(super) use super::objects::*;
use super::tape::{Tape, TapedProvider};
use crate::{
    api::Api,
    stage::{self, Life, Replica, eventually_or},
    support::*,
};

/// How long a scenario waits for what should happen at once.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// The default of `--service-verification-period`.
pub(super) const VERIFICATION_PERIOD: Duration = Duration::from_secs(600);

/// A flag for scenarios in which every call counts.
pub(super) const NO_VERIFICATION: &str = "--service-verification-period=24h";

const ONLY: &str = "--controllers=service-lb-controller";

/// An API server and a cloud with load balancers.
pub(super) struct World<'a> {
    pub(super) api: &'a Api,
    pub(super) cloud: FakeCloud,
    pub(super) tape: Tape,
}

/// A daemon of a [`World`].
pub(super) type Daemon = Replica;

impl<'a> World<'a> {
    pub(super) fn new(api: &'a Api) -> Self {
        let cloud = FakeCloud::new().without_instances().with_load_balancers();
        Self { api, cloud, tape: Tape::default() }
    }

    /// With these Nodes, which have the provider IDs `fake:///<name>`.
    pub(super) async fn with_nodes(api: &'a Api, nodes: &[&str]) -> anyhow::Result<Self> {
        let world = Self::new(api);
        for name in nodes {
            world.add_node(name).await?;
        }
        Ok(world)
    }

    pub(super) fn start(&self, flags: &[&str]) -> anyhow::Result<Daemon> {
        self.run(flags, false)
    }

    /// Starts one of several candidates for the lease.
    pub(super) fn start_elected(&self, flags: &[&str]) -> anyhow::Result<Daemon> {
        self.run(flags, true)
    }

    fn run(&self, flags: &[&str], elected: bool) -> anyhow::Result<Daemon> {
        let life = Life::new();
        let client = life.client(&self.tape.client(&self.api.daemon_client, &self.api.client));
        let provider = TapedProvider {
            inner: self.cloud.provider(),
            observer: self.api.client.clone(),
            tape: self.tape.clone(),
            life: life.clone(),
        };
        let flags: Vec<&str> = [ONLY].iter().chain(flags).copied().collect();
        stage::start(&client, Arc::new(provider), &flags, life, elected)
    }

    /// Time in which a controller would do what it should not do.
    pub(super) async fn pause(&self) {
        stage::pause(self.api, Duration::from_secs(60)).await;
    }
}

impl World<'_> {
    /// Waits until the controller has handled all that was written so far: a Service that is made now has its load balancer. On the
    /// sandbox, where it costs nothing, also for a time in which it would do what it should not do.
    pub(super) async fn has_settled(&self) -> anyhow::Result<()> {
        const FENCE: &str = "fence";
        self.balanced(FENCE).await?;
        self.is_balanced(FENCE).await?;
        self.delete(FENCE).await?;
        self.vanishes(FENCE, SOON).await?;
        if self.api.sandbox.is_some() {
            sleep(Duration::from_secs(40)).await;
        }
        Ok(())
    }
}

/// Nodes.
impl World<'_> {
    pub(super) async fn add_node(&self, name: &str) -> anyhow::Result<()> {
        let mut node = kubelet::node(name, &uuid(1));
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some(format!("fake:///{name}"));
        spec.taints = None;
        nodes(&self.api.client).create(&PostParams::default(), &node).await?;
        Ok(())
    }

    pub(super) async fn change_node(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        merge(&self.api.client, name, patch).await.map(drop)
    }

    pub(super) async fn delete_node(&self, name: &str) -> anyhow::Result<()> {
        crate::api::delete_node(&self.api.client, name).await
    }
}

/// Services.
impl World<'_> {
    pub(super) fn services(&self) -> kube::Api<Service> {
        kube::Api::default_namespaced(self.api.client.clone())
    }

    /// Creates a Service with port 80, if `spec` has no other.
    pub(super) async fn create(&self, name: &str, spec: Value) -> anyhow::Result<Service> {
        self.create_with(name, json!({}), spec).await
    }

    /// Creates a Service of type `LoadBalancer`.
    pub(super) async fn balanced(&self, name: &str) -> anyhow::Result<Service> {
        self.create(name, json!({"type": "LoadBalancer"})).await
    }

    pub(super) async fn create_with(
        &self,
        name: &str,
        mut metadata: Value,
        mut spec: Value,
    ) -> anyhow::Result<Service> {
        metadata["name"] = name.into();
        if spec["ports"].is_null() {
            spec["ports"] = json!([{"port": 80}]);
        }
        let service = serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?;
        self.services()
            .create(&PostParams::default(), &service)
            .await
            .with_context(|| format!("Service {name}"))
    }

    pub(super) async fn change(&self, name: &str, patch: Value) -> anyhow::Result<Service> {
        let changed = self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        changed.with_context(|| format!("Service {name}: {patch}"))
    }

    pub(super) async fn change_status(&self, name: &str, patch: Value) -> anyhow::Result<Service> {
        let params = PatchParams::default();
        Ok(self.services().patch_status(name, &params, &Patch::Strategic(patch)).await?)
    }

    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Lets something happen while the daemons have no watch. `act` may not list Services. Only on the sandbox.
    pub(super) async fn unseen(&self, act: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let faults = crate::faults::faults(self.api)?;
        for verb in ["list", "watch"] {
            let services = Matcher::any().verb(verb).resource("services");
            faults.inject(Fault::new(services, Action::ServiceUnavailable));
        }
        faults.drop_watches();
        sleep(Duration::from_secs(1)).await;
        act.await?;
        faults.clear();
        Ok(())
    }

    /// Removes all finalizers and deletes it.
    pub(super) async fn force_delete(&self, name: &str) -> anyhow::Result<()> {
        let free = json!({"metadata": {"finalizers": null}});
        self.change(name, free.clone()).await?;
        self.delete(name).await?;
        // The daemon may have added its finalizer again before the deletion. Afterwards it adds none.
        if self.services().get_opt(name).await?.is_some()
            && let Err(error) = self.change(name, free).await
            && self.services().get_opt(name).await?.is_some()
        {
            return Err(error);
        }
        Ok(())
    }

    pub(super) async fn get(&self, name: &str) -> anyhow::Result<Service> {
        Ok(self.services().get(name).await?)
    }

    /// The load balancer in the cloud.
    pub(super) fn load_balancer(&self, service: &Service) -> Option<FakeLoadBalancer> {
        self.cloud.load_balancers().get(&load_balancer_name(service)).cloned()
    }

    /// Waits until `check` accepts the Service.
    pub(super) async fn becomes(
        &self,
        name: &str,
        limit: Duration,
        what: &str,
        check: impl Fn(&Service) -> bool,
    ) -> anyhow::Result<Service> {
        let api = self.services();
        let look = || async { Ok(api.get_opt(name).await?.filter(|service| check(service))) };
        let what = format!("Service {name}: {what}");
        let service = eventually_or(limit, &what, look, self.describe(name)).await?;
        self.tape.has_writes_of(name).await;
        Ok(service)
    }

    /// Waits until the Service has a load balancer with an address.
    pub(super) async fn is_balanced(&self, name: &str) -> anyhow::Result<Service> {
        self.becomes(name, SOON, "has an address", |service| !ingress(service).is_empty()).await
    }

    /// Creates a Service of type `LoadBalancer` and waits for its address.
    pub(super) async fn with_load_balancer(&self, name: &str) -> anyhow::Result<Service> {
        self.balanced(name).await?;
        self.is_balanced(name).await
    }

    /// Waits until the Service is gone.
    pub(super) async fn vanishes(&self, name: &str, limit: Duration) -> anyhow::Result<()> {
        let api = self.services();
        let look = || async { Ok(api.get_opt(name).await?.is_none().then_some(())) };
        let what = format!("Service {name} is deleted");
        eventually_or(limit, &what, look, self.describe(name)).await?;
        self.tape.has_writes_of(name).await;
        Ok(())
    }

    /// Waits until the tape has this many steps of a Service that begin with `what`.
    pub(super) async fn steps(&self, name: &str, what: &str, count: usize) -> anyhow::Result<()> {
        let look = || async { Ok((self.tape.count(name, what) >= count).then_some(())) };
        let what = format!("Service {name}: {count} times {what:?}");
        eventually_or(SOON, &what, look, self.describe(name)).await
    }

    /// Waits until the load balancer of this Service has these Nodes behind it.
    pub(super) async fn has_backends(
        &self,
        service: &Service,
        wanted: &[&str],
        limit: Duration,
    ) -> anyhow::Result<()> {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        let is_right =
            |one: &FakeLoadBalancer| one.nodes.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted;
        let look = || async { Ok(self.load_balancer(service).filter(is_right).map(drop)) };
        let (what, name) = (format!("the back ends are {wanted:?}"), name_of(service));
        eventually_or(limit, &what, look, self.describe(&name)).await
    }

    /// Everything about a Service, for the message of a failure.
    pub(super) async fn describe(&self, name: &str) -> String {
        let mut text = match self.services().get_opt(name).await {
            Ok(None) => "it does not exist".to_owned(),
            Ok(Some(service)) => format!(
                "it has finalizers {:?}, ingress {:?}, type {:?}, load balancer {:?}",
                service.metadata.finalizers.clone().unwrap_or_default(),
                ingress(&service),
                service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_default(),
                self.load_balancer(&service).map(|one| one.nodes),
            ),
            Err(error) => format!("it cannot be read: {error}"),
        };
        let _ = write!(text, "; steps: {:?}", self.tape.of(name));
        match self.events(name).await {
            Ok(events) => drop(write!(text, "; events: {events:?}")),
            Err(error) => drop(write!(text, "; events: {error}")),
        }
        text
    }
}

/// An event about a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) source: String,
    pub(super) count: i32,
}

impl World<'_> {
    /// The controller's events about a Service, in the order in which they first happened. The API server tells of
    /// cluster IPs too.
    pub(super) async fn events(&self, name: &str) -> anyhow::Result<Vec<Told>> {
        let about = format!("involvedObject.kind=Service,involvedObject.name={name}");
        let events = stage::events(&self.api.client, "default", &about, "service-controller").await?;
        let text = |text: Option<String>| text.unwrap_or_default();
        let told = events.into_iter().map(|event| Told {
            kind: text(event.type_),
            reason: text(event.reason),
            message: text(event.message),
            source: text(event.source.and_then(|source| source.component)),
            count: event.count.unwrap_or(1),
        });
        Ok(told.collect())
    }

    /// Waits for an event with this reason, and returns it.
    pub(super) async fn event(&self, name: &str, reason: &str) -> anyhow::Result<Told> {
        let look = || async { Ok(self.events(name).await?.into_iter().find(|event| event.reason == reason)) };
        let what = format!("event {reason} about Service {name}");
        eventually_or(SOON, &what, look, self.describe(name)).await
    }

    /// Fails if there is such an event.
    pub(super) async fn no_event(&self, name: &str, reason: &str) -> anyhow::Result<()> {
        let events = self.events(name).await?;
        if let Some(event) = events.iter().find(|event| event.reason == reason) {
            bail!("{event:?}");
        }
        Ok(())
    }
}

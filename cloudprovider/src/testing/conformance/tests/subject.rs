//! The fake cloud with every hook.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use crate::{
    CloudProvider, ConfigProblem, ControlPlaneEndpoint, Error, ErrorKind, FactoryInput, LoadBalancerService,
    NodeIdentity, PowerState, Result, Route, ServicePort, async_trait,
    testing::{
        FakeCloud, FakeInstance, Operation,
        conformance::{ConfigurationCases, Hook, HookError, Hooks, MachineCases},
    },
};

pub(super) const SECRET: &str = "correct-horse";

type Wrap = Box<dyn Fn(Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> + Send + Sync>;
type Factory = fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>>;

pub(super) struct Subject {
    pub(super) cloud: FakeCloud,
    /// Applied to each provider before it is checked.
    pub(super) wrap: Wrap,
    pub(super) factory: Factory,
    /// The message of the cloud while it fails.
    pub(super) fault: &'static str,
    pub(super) other_ids: fn(&str) -> Vec<String>,
    pub(super) created: AtomicUsize,
    /// How many machines are made at once.
    pub(super) many: usize,
}

impl Subject {
    pub(super) fn new() -> Self {
        let cloud =
            FakeCloud::new().with_zones().with_load_balancers().with_routes().with_clusters().with_machines();
        cloud.set_task_time(Duration::from_millis(200));
        cloud.set_address_time(Duration::from_millis(100));
        for (number, zone) in [(1, "a"), (2, "b"), (3, "c")] {
            let mut instance = FakeInstance::running(format!("10.0.0.{number}"));
            instance.metadata.zone = Some(zone.to_owned());
            cloud.put(&format!("u{number}"), instance.named(format!("node-{number}")));
        }
        cloud.put_cluster("a", None);
        cloud.put_cluster("b", Some(ControlPlaneEndpoint { host: "10.0.0.1".into(), port: 6443 }));
        Self {
            cloud,
            wrap: Box::new(|provider| provider),
            factory,
            fault: "the cloud is on fire",
            other_ids: |id| vec![format!("fake:///{id}")],
            created: AtomicUsize::new(4),
            many: 20,
        }
    }
}

fn node(number: usize) -> NodeIdentity {
    NodeIdentity {
        name: format!("node-{number}"),
        system_uuid: Some(format!("U{number}")),
        ..NodeIdentity::default()
    }
}

fn id(node: &NodeIdentity) -> Hook<String> {
    let uuid = node.system_uuid.as_ref().ok_or_else(|| HookError::failed("no UUID"))?;
    Ok(uuid.to_ascii_lowercase())
}

/// Reads lines of the form `key: value`. The keys are `user` and `password`, and both are required.
pub(super) fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let text = input.config.as_deref().unwrap_or_default();
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if !["user: ", "password: "].iter().any(|key| line.starts_with(key)) {
            problems.push(ConfigProblem::new(format!("line {number}"), "expected user: or password:"));
        }
    }
    for key in ["user", "password"] {
        if !text.contains(&format!("{key}: ")) {
            problems.push(ConfigProblem::new(key, "missing"));
        }
    }
    if problems.is_empty() {
        Ok(FakeCloud::new().provider())
    } else {
        Err(Error::invalid_configuration(problems))
    }
}

#[async_trait]
impl Hooks for Subject {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        Ok((self.wrap)(self.cloud.provider()))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((1..4).map(node).collect())
    }

    async fn create(&self) -> Hook<NodeIdentity> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        self.cloud
            .put(&format!("u{number}"), FakeInstance::running("10.0.1.1").named(format!("node-{number}")));
        Ok(node(number))
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        self.cloud.remove(&id(node)?);
        Ok(())
    }

    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        self.cloud.change(&id(node)?, |instance| instance.power_state = PowerState::Off);
        Ok(())
    }

    async fn power_on(&self, node: &NodeIdentity) -> Hook {
        self.cloud.change(&id(node)?, |instance| instance.power_state = PowerState::Running);
        Ok(())
    }

    async fn inject_fault(&self) -> Hook {
        let fault = Error::new(ErrorKind::Unavailable, self.fault);
        self.cloud.fail(Operation::Lookup, crate::testing::Fault::Error(fault));
        Ok(())
    }

    async fn clear_fault(&self) -> Hook {
        self.cloud.fail(Operation::Lookup, None);
        Ok(())
    }

    async fn disconnect(&self) -> Hook {
        self.cloud.disconnect();
        Ok(())
    }

    async fn reconnect(&self) -> Hook {
        self.cloud.reconnect();
        Ok(())
    }

    fn other_provider_ids(&self, node: &NodeIdentity) -> Hook<Vec<String>> {
        Ok((self.other_ids)(&id(node)?))
    }

    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        let service = |number: u16| LoadBalancerService {
            namespace: "shop".to_owned(),
            name: format!("web-{number}"),
            uid: format!("uid-{number}"),
            ports: vec![ServicePort { port: 80, node_port: Some(30_000 + number), ..ServicePort::default() }],
            ..LoadBalancerService::default()
        };
        Ok((1..4).map(service).collect())
    }

    async fn routes(&self) -> Hook<Vec<Route>> {
        let route = |number: usize, destination_cidr: String| Route {
            target_node: node(number).name,
            destination_cidr,
            ..Route::default()
        };
        let of_node = |number| {
            [format!("10.244.{number}.0/24"), format!("fd00:{number}::/64")].map(|cidr| route(number, cidr))
        };
        Ok((1..4).flat_map(of_node).collect())
    }

    async fn machines(&self) -> Hook<MachineCases> {
        let cluster = json!({ "failureDomains": ["rack-a", "rack-b"], "endpoint": true });
        Ok(MachineCases::new(json!({ "cpus": 4 }), cluster).with_many(self.many))
    }

    async fn machine_objects(&self) -> Hook<Vec<String>> {
        Ok(self.cloud.objects())
    }

    async fn machine_node(&self, provider_id: &str) -> Hook<NodeIdentity> {
        let id = provider_id.strip_prefix("fake:///").ok_or_else(|| HookError::failed(provider_id))?;
        Ok(NodeIdentity { system_uuid: Some(id.to_uppercase()), ..NodeIdentity::default() })
    }

    async fn foreign_machine(&self, name: &str) -> Hook {
        self.cloud.put(&format!("foreign-{name}"), FakeInstance::running("10.0.2.1").named(name));
        Ok(())
    }

    async fn remove_foreign_machine(&self, name: &str) -> Hook {
        self.cloud.remove(&format!("foreign-{name}"));
        Ok(())
    }

    async fn fail_next_task(&self) -> Hook<String> {
        self.cloud.fail_next_task(Error::new(ErrorKind::Unavailable, "no space left on datastore 1"));
        Ok("no space left on datastore 1".to_owned())
    }

    fn secrets(&self) -> Hook<Vec<String>> {
        Ok(vec![SECRET.to_owned()])
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let cases = ConfigurationCases::new(self.factory)
            .with_good(format!("user: me\npassword: {SECRET}\n"))
            .with_bad(format!("usr: me\npasword: {SECRET}"), ["line 1", "line 2", "user", "password"])
            .with_secret(SECRET);
        Ok(cases)
    }
}

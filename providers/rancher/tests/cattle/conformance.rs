//! The rules of the contract, on the fake.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cloudprovider::{
    CloudProvider, FactoryInput, LoadBalancerService, NodeIdentity, Result, ServicePort, async_trait,
    testing::conformance::{self, ConfigurationCases, Hook, HookError, Hooks, Suite},
};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use serde_json::json;

use crate::{
    running::assert_checked,
    support::node,
    testing::{FakeCattle, Fault, SECRET_KEY},
};

/// Shorter than a configuration may say.
const SHORT: Duration = Duration::from_millis(20);

struct OnTheFake {
    server: FakeCattle,
    created: AtomicU32,
}

impl OnTheFake {
    fn id_of(&self, node: &NodeIdentity) -> Hook<String> {
        let cloud = self.server.cloud();
        let mut hosts =
            cloud.objects.iter().filter(|((kind, _), host)| *kind == "host" && host["removed"].is_null());
        let found = hosts.find(|(_, host)| host["hostname"] == node.name);
        found.map(|((_, id), _)| id.clone()).ok_or_else(|| HookError::failed("no such host"))
    }
}

#[async_trait]
impl Hooks for OnTheFake {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let input = FactoryInput::new(self.server.config("timeout: 2s\n"));
        let mut config = Config::read(&input, &Environment::default())?;
        config.load_balancer.retry_interval = SHORT;
        // No pause between two listings is longer.
        config.poll_interval = SHORT;
        Ok(Arc::new(RancherProvider::new(&config)?))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((1..=3).map(|n| node(&format!("node-{n}"))).collect())
    }

    async fn create(&self) -> Hook<NodeIdentity> {
        let n = self.created.fetch_add(1, Ordering::Relaxed);
        self.server.add_host(&format!("created-{n}"), &format!("10.1.0.{}", n % 250 + 1));
        Ok(node(&format!("created-{n}")))
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        self.server.remove_host(&self.id_of(node)?);
        Ok(())
    }

    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        self.server.change_host(&self.id_of(node)?, json!({"state": "inactive"}));
        Ok(())
    }

    async fn power_on(&self, node: &NodeIdentity) -> Hook {
        self.server.change_host(&self.id_of(node)?, json!({"state": "active"}));
        Ok(())
    }

    async fn inject_fault(&self) -> Hook {
        self.server.set_fault(Some(Fault::error(500, "ServerError")));
        Ok(())
    }

    async fn clear_fault(&self) -> Hook {
        self.server.set_fault(None);
        Ok(())
    }

    async fn disconnect(&self) -> Hook {
        self.server.go_away();
        Ok(())
    }

    async fn reconnect(&self) -> Hook {
        self.server.come_back();
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn other_provider_ids(&self, node: &NodeIdentity) -> Hook<Vec<String>> {
        let id = self.id_of(node)?;
        let uuid = self.server.cloud().objects[&("host", id)]["uuid"].as_str().unwrap_or_default().to_owned();
        Ok(vec![format!("rancher:///{uuid}"), format!("rancher://{}", uuid.to_uppercase())])
    }

    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        let service = |n: u16| LoadBalancerService {
            namespace: "default".to_owned(),
            name: format!("web-{n}"),
            uid: format!("2f5a1b3{n}-6c1e-4d2b-8f43-9d3f0e6a7b11"),
            ports: vec![ServicePort { port: 80 + n, node_port: Some(30080 + n), ..ServicePort::default() }],
            ..LoadBalancerService::default()
        };
        Ok((1..=3).map(service).collect())
    }

    fn secrets(&self) -> Hook<Vec<String>> {
        Ok(vec![SECRET_KEY.to_owned()])
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let yaml = "url: https://rancher.example.org\naccessKey: ABCDEF\nsecretKey: correct-horse-battery\n\
                    projectID: 1a5\ntimeout: 20s\naddresses:\n  types: both\nzones:\n  legacyZones: true\n\
                    loadBalancer:\n  stackName: balancers\n";
        let gcfg = "[Global]\ncattle-url = https://rancher.example.org\ncattle-access-key = ABCDEF\n\
                    cattle-secret-key = correct-horse-battery\n[Zones]\nlegacy-zones = true\n";
        let bad = "url: rancher.example.org\nsecretKey: correct-horse-battery\npageSize: many\ntimeout: fast\n\
                   zones: {zon: a}\naddresses: {types: inner}\n";
        let keys = ["url", "accessKey", "pageSize", "timeout", "zones.zon", "addresses.types"];
        let cases = ConfigurationCases::new(cloudprovider_rancher::factory)
            .with_good(yaml)
            .with_good(gcfg)
            .with_bad(bad, keys)
            .with_secret("correct-horse-battery");
        Ok(cases)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_contract() {
    let server = FakeCattle::start().await;
    for n in 1..=3 {
        server.add_host(&format!("node-{n}"), &format!("10.0.0.{n}"));
    }
    let hooks = OnTheFake { server, created: AtomicU32::new(1) };
    let report = conformance::run(&hooks).await;
    assert_checked(&report, &[Suite::Routes, Suite::Machines], &["lookups/zones", "lookups/clusters"]);
}

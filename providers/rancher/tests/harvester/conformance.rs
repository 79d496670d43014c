//! The rules of the contract, in the modes `harvester` and `pool`.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, FactoryInput, LoadBalancerService, NodeIdentity, Result, ServicePort, ServiceRef,
    StartContext, async_trait,
    testing::{
        FakeServiceAccess,
        conformance::{self, Hook, Hooks, Suite},
    },
};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use tokio_util::sync::CancellationToken;

use crate::{
    support::{World, node},
    testing::FakeCattle,
};

const TOKEN_LENGTH: usize = 16;

fn services() -> Vec<LoadBalancerService> {
    let service = |n: u16| LoadBalancerService {
        namespace: "shop".to_owned(),
        name: format!("web-{n}"),
        uid: format!("2f5a1b3{n}-6c1e-4d2b-8f43-9d3f0e6a7b11"),
        ports: vec![ServicePort { port: 80 + n, node_port: Some(30080 + n), ..ServicePort::default() }],
        ..LoadBalancerService::default()
    };
    (1..=3).map(service).collect()
}

fn nodes() -> Vec<NodeIdentity> {
    (1..=3).map(|n| node(&format!("node-{n}"))).collect()
}

struct OnHarvester(World);

#[async_trait]
impl Hooks for OnHarvester {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        Ok(Arc::new(self.0.provider(", announcedBy: none")?))
    }

    fn context(&self, stop: CancellationToken) -> StartContext {
        self.0.context(stop)
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok(nodes())
    }

    async fn disconnect(&self) -> Hook {
        self.0.front.go_away();
        Ok(())
    }

    async fn reconnect(&self) -> Hook {
        self.0.front.come_back();
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        Ok(services())
    }

    fn secrets(&self) -> Hook<Vec<String>> {
        let token = self.0.harvester.token(crate::harvester::USER).to_owned();
        assert!(token.len() >= TOKEN_LENGTH, "a token that nothing else looks like");
        Ok(vec![token])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_contract_with_harvester() {
    let Some(world) = World::start().await else { return };
    let hooks = OnHarvester(world);
    let report = conformance::run_suites(&hooks, &[Suite::LoadBalancers]).await;
    report.print_and_assert();
    assert_eq!(report.not_checked().count(), 0, "every rule was checked");
    assert_eq!(hooks.0.harvester.only().await, None);
}

struct OnPools {
    rancher: FakeCattle,
    services: FakeServiceAccess,
}

#[async_trait]
impl Hooks for OnPools {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let pools =
            "loadBalancer: {mode: pool}\naddressPools: {pools: [{name: main, addresses: [192.0.2.0/28]}]}\n";
        let config = Config::read(&FactoryInput::new(self.rancher.config(pools)), &Environment::default())?;
        Ok(Arc::new(RancherProvider::new(&config)?))
    }

    fn context(&self, stop: CancellationToken) -> StartContext {
        StartContext::new(stop, "guest").with_services(Arc::new(self.services.clone()))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok(nodes())
    }

    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        Ok(services())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_contract_with_pools() {
    let rancher = FakeCattle::start().await;
    for n in 1..=3 {
        rancher.add_host(&format!("node-{n}"), &format!("10.0.0.{n}"));
    }
    let known = FakeServiceAccess::new();
    for service in services() {
        known.add_service(ServiceRef { namespace: service.namespace, name: service.name, uid: service.uid });
    }
    let hooks = OnPools { rancher, services: known };
    let report = conformance::run_suites(&hooks, &[Suite::LoadBalancers]).await;
    report.print_and_assert();
    let not_checked: Vec<_> = report.not_checked().map(|(rule, _)| rule.to_string()).collect();
    // The cloud has no part in it: the claims are objects of the cluster.
    assert_eq!(not_checked, ["load-balancers/disconnected"]);
    assert!(hooks.services.stored_claims().is_empty(), "every address was given back");
}

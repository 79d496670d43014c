//! The rules of the contract for load balancers.

use cloudprovider::{
    CloudProvider, IpFamilyPolicy, LoadBalancer,
    testing::conformance::{self, Hook, Hooks, Suite},
};

use super::*;

/// A provider that has nothing but the load balancer.
#[derive(Debug)]
struct OnlyPools {
    balancer: PooledLoadBalancer,
    tasks: TaskTracker,
}

#[async_trait]
impl CloudProvider for OnlyPools {
    fn name(&self) -> &'static str {
        "pools"
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.balancer.start(&context, &self.tasks)
    }
    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(&self.balancer)
    }
}

struct Pools {
    cluster: FakeServiceAccess,
    announcer: Arc<FakeAnnouncer>,
    json: &'static str,
}

#[async_trait]
impl Hooks for Pools {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let announcer = Arc::clone(&self.announcer) as Arc<dyn Announce>;
        let balancer = PooledLoadBalancer::with_parts(config(self.json), announcer, Box::new(KubeProxy));
        Ok(Arc::new(OnlyPools { balancer, tasks: TaskTracker::new() }))
    }

    fn context(&self, stop: CancellationToken) -> StartContext {
        StartContext::new(stop, "conformance").with_services(Arc::new(self.cluster.clone()))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok(["n1", "n2"]
            .map(|name| NodeIdentity { name: name.to_owned(), ..NodeIdentity::default() })
            .to_vec())
    }

    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        Ok(vec![
            service("a"),
            dual_stack("b", IpFamilyPolicy::RequireDualStack),
            annotated(service("c"), &[(KUBE_VIP_IPS, "10.0.0.3")]),
        ])
    }
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_the_contract() {
    for json in [SMALL, SMALL_ANNOUNCED] {
        let pools = Pools { cluster: cluster(&["a", "b", "c"]), announcer: FakeAnnouncer::new(), json };
        let report = conformance::run(&pools).await;
        report.print_and_assert();
        let of_balancers = report.not_checked().filter(|(rule, _)| rule.suite == Suite::LoadBalancers);
        // While the API server is away, what is known is still known.
        assert_eq!(
            of_balancers.map(|(rule, _)| rule.to_string()).collect::<Vec<_>>(),
            ["load-balancers/disconnected"]
        );
        assert!(pools.cluster.stored_claims().is_empty());
        assert_eq!(pools.announcer.addresses(), []);
    }
}

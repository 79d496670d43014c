//! The rules of the contract, on a cluster that Rancher provisions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cloudprovider::{
    CloudProvider, NodeIdentity, Result, async_trait,
    testing::conformance::{self, ConfigurationCases, Hook, HookError, Hooks, Suite},
};

use crate::{
    management_cluster::ManagementCluster,
    rancher::{Fault, TOKEN},
    running::assert_checked,
    support::{node, provider},
};

struct OnTheApiServer {
    cluster: ManagementCluster,
    created: AtomicU32,
}

#[async_trait]
impl Hooks for OnTheApiServer {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        Ok(Arc::new(provider(&self.cluster.rancher.config(&self.cluster.id, "timeout: 2s\n"))?))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((1..=3).map(|n| node(&format!("node-{n}"))).collect())
    }

    async fn create(&self) -> Hook<NodeIdentity> {
        let n = self.created.fetch_add(1, Ordering::Relaxed);
        let name = format!("created-{n}");
        self.cluster
            .add_custom_machine(&format!("of-{name}"), &name, &format!("10.1.0.{}", n % 250 + 1))
            .await;
        Ok(node(&name))
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        self.cluster.delete_custom_machine(&format!("of-{}", node.name)).await;
        Ok(())
    }

    async fn inject_fault(&self) -> Hook {
        self.cluster.rancher.set_fault(Some(("/", Fault::error(500, "ServerError"))));
        Ok(())
    }

    async fn clear_fault(&self) -> Hook {
        self.cluster.rancher.set_fault(None);
        Ok(())
    }

    async fn disconnect(&self) -> Hook {
        self.cluster.rancher.go_away();
        Ok(())
    }

    async fn reconnect(&self) -> Hook {
        self.cluster.rancher.come_back();
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn other_provider_ids(&self, _: &NodeIdentity) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("other_provider_ids"))
    }

    fn secrets(&self) -> Hook<Vec<String>> {
        Ok(vec![TOKEN.to_owned(), "correct-horse-battery".to_owned()])
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let yaml = "url: https://rancher.example.org/v3\ntoken: token-abcde:correct-horse-battery\nclusterName: prod\n\
                    namespace: fleet-default\ntimeout: 20s\nzones:\n  zoneLabel: example.org/rack\n";
        let gcfg = "[Global]\ncattle-url = https://rancher.example.org\ncattle-access-key = token-abcde\n\
                    cattle-secret-key = correct-horse-battery\ncluster-id = c-m-abcdefgh\n";
        let bad = "url: https://rancher.example.org/v3\ntoken: token-abcde:correct-horse-battery\nclusterID: a b\n\
                   projectID: 1a5\nsecretKey: correct-horse-battery\nloadBalancer: {mode: cattle}\n";
        let keys = ["clusterID", "projectID", "secretKey", "loadBalancer.mode"];
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
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    for n in 1..=3 {
        cluster
            .add_custom_machine(&format!("custom-{n}"), &format!("node-{n}"), &format!("10.0.0.{n}"))
            .await;
    }
    let report = conformance::run(&OnTheApiServer { cluster, created: AtomicU32::new(1) }).await;
    // Rancher 2.x knows no power state, and this provider makes no machines.
    assert_checked(
        &report,
        &[Suite::LoadBalancers, Suite::Machines, Suite::Routes],
        &["lookups/powered-off", "lookups/zones", "changes/unread", "provider-ids/other-forms"],
    );
}

//! The rules of the contract. libvirt's test driver keeps domains in the connection, so they are changed
//! through the provider that was made last, and the connection cannot be cut.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use cloudprovider::{
    CloudProvider, NodeIdentity, Result, async_trait,
    testing::conformance::{self, ConfigurationCases, Hook, HookError, Hooks, Rule, Suite},
};
use cloudprovider_libvirt::{
    Config, LibvirtProvider,
    virt::{connect::Connect, error},
};
use parking_lot::Mutex;
use tempfile::NamedTempFile;

use crate::support::{RUNNING, domain, host, new_node, uuid};

struct TestDriver {
    file: NamedTempFile,
    latest: Mutex<Option<Arc<LibvirtProvider>>>,
    created: AtomicU32,
}

fn node(n: u32) -> NodeIdentity {
    new_node(&format!("node-{n}"), &uuid(n))
}

impl TestDriver {
    fn latest(&self) -> Hook<Arc<LibvirtProvider>> {
        let latest = self.latest.lock().clone();
        latest.ok_or_else(|| HookError::failed("no provider was made"))
    }

    async fn act<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connect) -> std::result::Result<T, error::Error> + Send + 'static,
    ) -> Hook<T> {
        let host =
            self.latest()?.hypervisor("kvm0").ok_or_else(|| HookError::failed("no such hypervisor"))?;
        Ok(host.with_connection(work).await??)
    }
}

#[async_trait]
impl Hooks for TestDriver {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let config = format!("hypervisors: [{{name: kvm0, uri: 'test://{}'}}]", self.file.path().display());
        let provider = Arc::new(LibvirtProvider::new(Config::parse(&config, None)?));
        *self.latest.lock() = Some(provider.clone());
        Ok(provider)
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        Ok((1..4).map(node).collect())
    }

    async fn create(&self) -> Hook<NodeIdentity> {
        let n = self.created.fetch_add(1, Ordering::Relaxed);
        let xml = domain(n, &format!("node-{n}"), RUNNING);
        self.act(move |connect| connect.define_domain_xml(&xml)?.create().map(drop)).await?;
        Ok(node(n))
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        let name = node.name.clone();
        self.act(move |connect| {
            let domain = connect.lookup_domain_by_name(&name)?;
            if domain.is_active()? {
                domain.destroy()?;
            }
            domain.undefine()
        })
        .await
    }

    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        let name = node.name.clone();
        self.act(move |connect| connect.lookup_domain_by_name(&name)?.destroy()).await
    }

    async fn power_on(&self, node: &NodeIdentity) -> Hook {
        let name = node.name.clone();
        self.act(move |connect| connect.lookup_domain_by_name(&name)?.create().map(drop)).await
    }

    fn other_provider_ids(&self, node: &NodeIdentity) -> Hook<Vec<String>> {
        let uuid = node.system_uuid.clone().ok_or_else(|| HookError::failed("no UUID"))?;
        Ok(vec![
            format!("libvirt:///{}", uuid.to_uppercase()),
            format!("libvirt:///{}", uuid.replace('-', "")),
            format!("libvirt://kvm7/{uuid}"),
            format!("libvirt:///{}", node.name),
        ])
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let good = "hypervisors:\n\
                    - name: kvm1\n  uri: qemu+tcp://kvm1.example.org/system\n  zone: rack-1\n  \
                    auth:\n    username: ccm\n    password: correct-horse-battery\n\
                    - name: kvm2\n  uri: qemu:///system\n\
                    addresses:\n  internal: [10.0.0.0/8]\n  families: [ipv4]\n\
                    callTimeout: 10s\n";
        let bad = "hypervisors:\n- uri: nonsense\n  zon: a\n\
                   - name: kvm2\n  uri: qemu+tls://root:correct-horse-battery@h/system\n  \
                   auth: { passwordFil: /p, username: 5 }\n- 7\n\
                   addresses: { internal: [10.0.0.300], families: [ipv5] }\ncallTimeout: fast\n";
        let keys = [
            "hypervisors[0].name",
            "hypervisors[0].uri",
            "hypervisors[0].zon",
            "hypervisors[1].uri",
            "hypervisors[1].auth.username",
            "hypervisors[1].auth.passwordFil",
            "hypervisors[2]",
            "addresses.internal[0]",
            "addresses.families[0]",
            "callTimeout",
        ];
        let cases = ConfigurationCases::new(cloudprovider_libvirt::factory)
            .with_good(good)
            .with_bad(bad, keys)
            .with_secret("correct-horse-battery");
        Ok(cases)
    }
}

#[tokio::test]
async fn the_rules_of_the_contract() {
    let file = host(&(1..4).map(|n| domain(n, &format!("node-{n}"), RUNNING)).collect::<Vec<_>>());
    let driver = TestDriver { file, latest: Mutex::default(), created: AtomicU32::new(4) };
    let report = conformance::run(&driver).await;
    report.print_and_assert();
    // The rules that this driver cannot test, or that do not apply to this provider. Another one here would
    // be a rule that no test checks.
    let is_there =
        |rule: &Rule| !matches!(rule.suite, Suite::LoadBalancers | Suite::Routes | Suite::Machines);
    let not_checked: Vec<_> =
        report.not_checked().filter(|(rule, _)| is_there(rule)).map(|(rule, _)| rule.to_string()).collect();
    assert_eq!(
        not_checked,
        [
            "lookups/fault",
            "lookups/disconnected",
            "lookups/zones",
            "changes/reconnect",
            "lifecycle/cloud-away",
            "lifecycle/no-secret"
        ]
    );
}

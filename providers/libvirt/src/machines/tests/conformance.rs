//! The rules of the contract for machines. The domains are those of `test:///default`, which all connections
//! of a process share, and which lives as long as one of them is open.

use std::sync::Arc;

use cloudprovider::{
    CloudProvider, NodeIdentity, Result, async_trait,
    machines::Mark,
    testing::conformance::{self, Hook, HookError, Hooks, MachineCases, Suite},
};
use serde_json::json;
use uuid::Uuid;
use virt::{connect::Connect, domain::Domain as Handle};

use crate::{
    Config, LibvirtProvider,
    domain::Domain,
    machines::{
        HostCalls, names,
        storage::testing::{FakeCalls, FakeHypervisor, POOL},
    },
    provider_id::{DomainId, parse_provider_id},
    sys,
};

/// What the names of all machines of the suite begin with.
const PREFIX: &str = "conformance-";

/// The image of all machines.
const IMAGE: &str = "debian-12.raw";

struct TestDriver {
    connect: Connect,
    storage: FakeHypervisor,
}

impl TestDriver {
    fn new() -> Self {
        sys::initialize().expect("libvirt's events");
        let storage = FakeHypervisor::new();
        storage.put(POOL, IMAGE, &[7; 4096]);
        Self { connect: sys::open("test:///default", None).expect("the test driver"), storage }
    }

    fn domain(&self, node: &NodeIdentity) -> Hook<Handle> {
        let uuid = node.system_uuid.as_deref().and_then(|text| Uuid::parse_str(text).ok());
        let uuid = uuid.ok_or_else(|| HookError::failed("no UUID"))?;
        Ok(self.connect.lookup_domain_by_uuid(uuid)?)
    }
}

#[async_trait]
impl Hooks for TestDriver {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        let config = "hypervisors: [{name: kvm1, uri: 'test:///default', zone: rack-1}]\n\
            machines: {memoryOvercommit: 10, cpuOvercommit: 100, reservedMemoryMiB: 0, allow: [{imageVolumes: [{pool: default}]}]}\n";
        let storage = self.storage.clone();
        let provider = LibvirtProvider::with_calls(Config::parse(config, None)?, &move |workers| HostCalls {
            storage: Arc::new(FakeCalls::new(&storage)),
            ..HostCalls::of_libvirt(workers)
        });
        Ok(Arc::new(provider))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        let system_uuid = Some(self.connect.lookup_domain_by_name("test")?.uuid()?.to_string());
        Ok(vec![NodeIdentity { name: "test".to_owned(), system_uuid, ..NodeIdentity::default() }])
    }

    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        Ok(self.domain(node)?.destroy()?)
    }

    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        let domain = self.domain(node)?;
        if domain.is_active()? {
            domain.destroy()?;
        }
        Ok(domain.undefine()?)
    }

    async fn machines(&self) -> Hook<MachineCases> {
        let machine = json!({
            "vcpus": 1, "memoryMiB": 64,
            "image": { "volume": { "name": IMAGE }, "format": "raw" },
            "disks": [{ "sizeGiB": 2 }, { "sizeGiB": 1 }],
        });
        Ok(MachineCases::new(machine, json!({})).with_many(100))
    }

    async fn machine_objects(&self) -> Hook<Vec<String>> {
        let mut all = Vec::new();
        for domain in self.connect.list_all_domains(0)? {
            // Other tests of this process have domains too. One may go meanwhile.
            if let (Ok(name), Ok(uuid)) = (domain.name(), domain.uuid())
                && name.starts_with(PREFIX)
            {
                all.push(format!("domain {name} {uuid}"));
            }
        }
        all.extend(self.storage.names(POOL).into_iter().map(|name| format!("volume {name}")));
        Ok(all)
    }

    async fn machine_node(&self, provider_id: &str) -> Hook<NodeIdentity> {
        let Ok(DomainId::Uuid(uuid)) = parse_provider_id(provider_id) else {
            return Err(HookError::failed("not a UUID"));
        };
        let xml = self.connect.lookup_domain_by_uuid(uuid)?.xml_desc(0)?;
        let name = Domain::parse(&xml, Err(String::new())).map_err(HookError::failed)?.node_name().to_owned();
        Ok(NodeIdentity { name, system_uuid: Some(uuid.to_string()), ..NodeIdentity::default() })
    }

    async fn foreign_thing(&self, mark: &Mark) -> Hook {
        let name = names::domain(mark);
        let xml = format!(
            "<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>"
        );
        Ok(self.connect.define_domain_xml(&xml).map(drop)?)
    }

    async fn remove_foreign_thing(&self, mark: &Mark) -> Hook {
        Ok(self.connect.lookup_domain_by_name(&names::domain(mark))?.undefine()?)
    }
}

#[tokio::test]
async fn the_rules_of_the_contract() {
    let suites = [Suite::Machines];
    let report = conformance::run_suites(&TestDriver::new(), &suites).await;
    report.print_and_assert();
    let not_checked: Vec<_> = report.not_checked().map(|(rule, _)| rule.to_string()).collect();
    // An image in the storage needs no work, and the test driver is always there.
    assert_eq!(not_checked, ["machines/failed-task", "machines/disconnected"]);
}

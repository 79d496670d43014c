use cloudprovider::testing::conformance::{self, Hook, HookError, Hooks, MachineCases, Suite};

use super::*;

/// The UUID of a machine that was there before.
const UUID: &str = "4c4c4544-0001-4000-8000-000000000001";

/// The hooks of the conformance suites, with all that the lab can do.
struct LabHooks(Arc<Lab>);

impl LabHooks {
    fn new() -> Self {
        let lab = Lab::new();
        lab.create(vm(UUID, "node-1"));
        Self(lab)
    }
}

/// A machine that nobody made for us.
fn vm(uuid: &str, name: &str) -> Vm {
    let (uuid, name) = (uuid.to_owned(), name.to_owned());
    Vm { uuid, name, rack: None, cpus: 1, is_running: true, mark: None, address: None }
}

fn uuid(node: &NodeIdentity) -> Hook<&str> {
    node.system_uuid.as_deref().ok_or_else(|| HookError::failed("no UUID"))
}

#[async_trait]
impl Hooks for LabHooks {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        Ok(Arc::new(LabProvider::new(self.0.clone())))
    }
    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        let system_uuid = Some(UUID.to_owned());
        Ok(vec![NodeIdentity { name: "node-1".to_owned(), system_uuid, ..NodeIdentity::default() }])
    }
    async fn power_off(&self, node: &NodeIdentity) -> Hook {
        self.0.change(uuid(node)?, |vm| vm.is_running = false);
        Ok(())
    }
    async fn destroy(&self, node: &NodeIdentity) -> Hook {
        self.0.destroy(uuid(node)?);
        Ok(())
    }
    async fn machines(&self) -> Hook<MachineCases> {
        Ok(MachineCases::new(json!({ "cpus": 2 }), json!({ "racks": ["rack-a", "rack-b"] })))
    }
    async fn machine_objects(&self) -> Hook<Vec<String>> {
        Ok(self.0.all().iter().map(|vm| format!("{} {}", vm.name, vm.uuid)).collect())
    }
    async fn machine_node(&self, provider_id: &str) -> Hook<NodeIdentity> {
        let uuid = provider_id.rsplit('/').next().map(str::to_owned);
        Ok(NodeIdentity { system_uuid: uuid, ..NodeIdentity::default() })
    }
    async fn foreign_machine(&self, name: &str) -> Hook {
        self.0.create(vm(&format!("foreign-{name}"), name));
        Ok(())
    }
    async fn remove_foreign_machine(&self, name: &str) -> Hook {
        self.0.destroy(&format!("foreign-{name}"));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_the_contract() {
    let suites = [Suite::Changes, Suite::ProviderIds, Suite::Machines, Suite::Lifecycle];
    let report = conformance::run_suites(&LabHooks::new(), &suites).await;
    report.print_and_assert();
    let of_machines = report.not_checked().filter(|(rule, _)| rule.suite == Suite::Machines);
    let missing: Vec<_> = of_machines.map(|(rule, missing)| format!("{rule}: {missing}")).collect();
    // The lab resets no machines, has no tasks that could fail, and cannot be away.
    assert_eq!(
        missing,
        [
            "machines/reset: resets, which the provider does not make",
            "machines/failed-task: the hook `fail_next_task`",
            "machines/disconnected: the hook `disconnect`",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_spec_is_checked_by_its_type() {
    let provider = LabProvider::new(Lab::new());
    let machines = provider.machines().expect("it has machines");
    let request = MachineRequest::new(
        Mark::machine("u", "default", "prod", "one"),
        json!({ "cpu": 4 }),
        ClusterContext::new(json!({})),
    );
    let error = machines.ensure_machine(&request, &mut Record::default()).await.expect_err("a typing error");
    assert_eq!(error.report(), "spec.cpu: unknown field `cpu`, expected `cpus`");
    assert_eq!(machines.schemas().machine_spec["properties"]["cpus"]["maximum"], 64);
}

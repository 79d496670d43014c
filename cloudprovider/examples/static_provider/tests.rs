use std::sync::Arc;

use cloudprovider::{
    CloudProvider, ErrorKind, FactoryInput, InstanceLookup, NodeIdentity, Result, async_trait,
    testing::conformance::{self, ConfigurationCases, Hook, Hooks},
};

use super::{CONFIG, StaticProvider};

async fn answer(node: NodeIdentity) -> InstanceLookup {
    let provider = StaticProvider::from_config(&FactoryInput::new(CONFIG)).expect("a good configuration");
    let instances = provider.instances().expect("it has instances");
    instances.lookup(&[&node]).await.remove(0)
}

fn zone(answer: InstanceLookup) -> Option<String> {
    match answer {
        InstanceLookup::Present(instance) => instance.metadata.zone,
        InstanceLookup::Absent | InstanceLookup::Unknown(_) => None,
    }
}

#[tokio::test]
async fn matches_by_provider_id_then_uuid_then_name() {
    let by_name = NodeIdentity { name: "node-1".into(), ..Default::default() };
    assert_eq!(zone(answer(by_name.clone()).await).as_deref(), Some("rack-a"));

    let uuid = Some("1C0A8F4E-52F2-4B8B-9A55-0B6A0D1A7C22".to_owned());
    let by_uuid = NodeIdentity { system_uuid: uuid, ..by_name };
    assert_eq!(zone(answer(by_uuid.clone()).await).as_deref(), Some("rack-b"));

    let provider_id = Some("static:///9f0f6a5e-6c61-4d51-8d0b-6f8c4a3a2b10".to_owned());
    assert_eq!(zone(answer(NodeIdentity { provider_id, ..by_uuid }).await).as_deref(), Some("rack-a"));
}

#[tokio::test]
async fn absent_and_foreign() {
    let stranger = NodeIdentity { name: "node-9".into(), ..Default::default() };
    assert!(matches!(answer(stranger.clone()).await, InstanceLookup::Absent));
    let foreign = NodeIdentity { provider_id: Some("aws:///eu/i-1".into()), ..stranger };
    assert!(
        matches!(answer(foreign).await, InstanceLookup::Unknown(error) if error.kind() == ErrorKind::InvalidInput)
    );
}

#[test]
fn every_fault_is_reported() {
    let error = StaticProvider::from_config(&FactoryInput::new("a b\n\nc")).expect_err("two bad lines");
    assert_eq!(error.problems().iter().map(|p| p.key.as_str()).collect::<Vec<_>>(), ["line 1", "line 3"]);
}

/// The hooks of the conformance suites, for a provider whose machines never change.
struct Static;

#[async_trait]
impl Hooks for Static {
    fn provider(&self) -> Result<Arc<dyn CloudProvider>> {
        StaticProvider::from_config(&FactoryInput::new(CONFIG))
    }

    async fn nodes(&self) -> Hook<Vec<NodeIdentity>> {
        let machines = CONFIG.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let node = |fields: Vec<&str>| NodeIdentity {
            name: fields[0].to_owned(),
            system_uuid: Some(fields[1].to_uppercase()),
            ..NodeIdentity::default()
        };
        Ok(machines.map(node).collect())
    }

    fn configuration(&self) -> Hook<ConfigurationCases> {
        let cases = ConfigurationCases::new(StaticProvider::from_config);
        Ok(cases.with_good(CONFIG).with_bad("a b\n\nc", ["line 1", "line 3"]))
    }
}

#[tokio::test]
async fn the_rules_of_the_contract() {
    let report = conformance::run(&Static).await;
    report.print_and_assert();
    // Rules that need the hooks `create`, `power_off` and `disconnect` are not checked.
    assert!(report.not_checked().any(|(_, missing)| missing == "the hook `create`"));
}

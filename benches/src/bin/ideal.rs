//! The daemon with an ideal cloud, which has an instance for each Node and answers from the Node's name
//! alone. So only the daemon is measured. The Go framework's binary has the same cloud
//! (`tests/env/framework/ideal.go`).
//!
//! `ideal --cloud-provider=ideal --cloud-config=cloud.json`, with `{"delayMillis": 20}` for a slow one.

use std::{process::ExitCode, sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, Clusters, ConfigProblem, Error, FactoryInput, Instance, InstanceLookup, InstanceMetadata,
    InstanceStream, Instances, LoadBalancer, NodeAddress, NodeIdentity, PowerState, ProviderId, Registry,
    Result, Routes, StartContext, Zones, async_trait,
};
use serde::Deserialize;

const NAME: &str = "ideal";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ideal {
    /// Pause before each answer, in milliseconds.
    #[serde(default)]
    delay_millis: u64,
}

fn main() -> ExitCode {
    ccm::app::main(|| {
        let mut registry = Registry::new();
        registry.register(NAME, factory)?;
        Ok(registry)
    })
}

fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let Some(text) = &input.config else { return Ok(Arc::new(Ideal::default())) };
    let ideal: Ideal = serde_json::from_str(text)
        .map_err(|error| Error::invalid_configuration(vec![ConfigProblem::new("", error.to_string())]))?;
    Ok(Arc::new(ideal))
}

fn instance(node: &NodeIdentity) -> InstanceLookup {
    let digits = node.name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let [_, a, b, c] = digits.parse::<u32>().unwrap_or_default().to_be_bytes();
    let number = u32::from_be_bytes([0, a, b, c]);
    Instance::new(ProviderId::new(NAME, &format!("/{}", node.name)), PowerState::Running)
        .with_metadata(InstanceMetadata {
            instance_type: Some("4c-8g".to_owned()),
            addresses: vec![
                NodeAddress::internal_ip(format!("10.{a}.{b}.{c}")),
                NodeAddress::hostname(&node.name),
            ],
            zone: Some(format!("zone-{}", number % 3)),
            region: Some("region-1".to_owned()),
            ..InstanceMetadata::default()
        })
        .into()
}

#[async_trait]
impl Instances for Ideal {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id.starts_with("ideal://")
    }
    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        if self.delay_millis > 0 {
            tokio::time::sleep(Duration::from_millis(self.delay_millis)).await;
        }
        nodes.iter().map(|node| instance(node)).collect()
    }
    fn changes(&self) -> Option<InstanceStream> {
        None
    }
}

#[async_trait]
impl CloudProvider for Ideal {
    fn name(&self) -> &'static str {
        NAME
    }
    async fn start(&self, _context: StartContext) -> Result<()> {
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        None
    }
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }
}

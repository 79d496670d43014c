//! The daemon with an ideal cloud, which has an instance for each Node and answers from the Node's name
//! alone. So only the daemon is measured. The Go framework's binary has the same cloud
//! (`tests/env/framework/ideal.go`).
//!
//! `ideal --cloud-provider=ideal --cloud-config=cloud.json`, with `{"delayMillis": 20}` for a slow one and
//! `{"networks": true}` for one with load balancers and routes.

mod networks;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, ConfigProblem, Error, FactoryInput, Instance, InstanceLookup, InstanceMetadata,
    InstanceStream, Instances, LoadBalancer, NodeAddress, NodeIdentity, PowerState, ProviderId, Registry,
    Result, Routes, StartContext, async_trait,
};
use networks::Networks;
use serde::Deserialize;

const NAME: &str = "ideal";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Config {
    /// Pause before each answer, in milliseconds.
    delay_millis: u64,
    /// Whether there are load balancers and routes too.
    networks: bool,
    /// Where the provider writes how often each operation of load balancers and routes was called.
    counts: Option<PathBuf>,
}

#[derive(Debug)]
struct Ideal {
    config: Config,
    networks: Arc<Networks>,
}

impl From<Config> for Ideal {
    fn from(config: Config) -> Self {
        let networks = Arc::new(Networks::new(Duration::from_millis(config.delay_millis)));
        Self { config, networks }
    }
}

fn main() -> ExitCode {
    ccm::app::main(|| {
        let mut registry = Registry::new();
        registry.register(NAME, factory)?;
        Ok(registry)
    })
}

fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let text = input.config.as_deref().unwrap_or("{}");
    let config: Config = serde_json::from_str(text)
        .map_err(|error| Error::invalid_configuration(vec![ConfigProblem::new("", error.to_string())]))?;
    Ok(Arc::new(Ideal::from(config)))
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
        if self.config.delay_millis > 0 {
            tokio::time::sleep(Duration::from_millis(self.config.delay_millis)).await;
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
    async fn start(&self, context: StartContext) -> Result<()> {
        if let Some(path) = self.config.counts.clone() {
            let networks = Arc::clone(&self.networks);
            tokio::spawn(async move { networks.write_counts(path, context.stop).await });
        }
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.config.networks.then_some(&*self.networks as &dyn LoadBalancer)
    }
    fn routes(&self) -> Option<&dyn Routes> {
        self.config.networks.then_some(&*self.networks as &dyn Routes)
    }
}

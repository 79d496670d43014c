//! A whole provider. Its machines are listed in a configuration text, one per line: `name uuid address zone`.
//!
//! `cargo run -p cloudprovider --example static_provider`

use std::sync::Arc;

use cloudprovider::{
    CloudProvider, ConfigProblem, Error, ErrorKind, FactoryInput, Instance, InstanceLookup, InstanceMetadata,
    InstanceStream, Instances, NodeAddress, NodeIdentity, PowerState, ProviderId, Registry, Result,
    StartContext, async_trait,
};

const NAME: &str = "static";
const FORMAT: &str = "expected: name uuid address zone";

#[derive(Debug)]
struct Machine {
    name: String,
    uuid: String,
    address: String,
    zone: String,
}

#[derive(Debug)]
struct StaticProvider {
    machines: Vec<Machine>,
}

impl StaticProvider {
    /// The factory. It checks the whole configuration and reports all faults at once.
    fn from_config(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
        let text = input.config.as_deref().unwrap_or_default();
        let (mut machines, mut problems) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [name, uuid, address, zone] => machines.push(Machine {
                    name: name.into(),
                    uuid: uuid.into(),
                    address: address.into(),
                    zone: zone.into(),
                }),
                _ => problems.push(ConfigProblem::new(format!("line {number}"), FORMAT)),
            }
        }
        // Without machines every Node would count as gone.
        if machines.is_empty() && problems.is_empty() {
            problems.push(ConfigProblem::new("", FORMAT));
        }
        if problems.is_empty() {
            Ok(Arc::new(Self { machines }))
        } else {
            Err(Error::invalid_configuration(problems))
        }
    }

    fn find(&self, node: &NodeIdentity) -> InstanceLookup {
        let machine = match &node.provider_id {
            Some(id) => match id.parse::<ProviderId>() {
                Ok(id) if id.provider() == NAME => self
                    .machines
                    .iter()
                    .find(|m| m.uuid.eq_ignore_ascii_case(id.rest().trim_start_matches('/'))),
                _ => {
                    return Error::new(ErrorKind::InvalidInput, format!("{id:?} is not an ID of mine"))
                        .into();
                }
            },
            None => self
                .machines
                .iter()
                .find(|m| node.system_uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&m.uuid)))
                .or_else(|| self.machines.iter().find(|m| m.name == node.name)),
        };
        machine.map_or(InstanceLookup::Absent, |machine| {
            Instance::new(ProviderId::new(NAME, &format!("/{}", machine.uuid)), PowerState::Running)
                .with_metadata(InstanceMetadata {
                    addresses: vec![
                        NodeAddress::internal_ip(&machine.address),
                        NodeAddress::hostname(&node.name),
                    ],
                    zone: Some(machine.zone.clone()),
                    ..InstanceMetadata::default()
                })
                .into()
        })
    }
}

#[async_trait]
impl Instances for StaticProvider {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id.parse::<ProviderId>().is_ok_and(|id| id.provider() == NAME)
    }
    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        nodes.iter().map(|node| self.find(node)).collect()
    }
    fn changes(&self) -> Option<InstanceStream> {
        None
    }
}

#[async_trait]
impl CloudProvider for StaticProvider {
    fn name(&self) -> &str {
        NAME
    }
    async fn start(&self, _context: StartContext) -> Result<()> {
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

const CONFIG: &str = "node-1 9f0f6a5e-6c61-4d51-8d0b-6f8c4a3a2b10 10.0.0.1 rack-a
                      node-2 1c0a8f4e-52f2-4b8b-9a55-0b6a0d1a7c22 10.0.0.2 rack-b";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut registry = Registry::new();
    registry.register(NAME, StaticProvider::from_config)?;
    let provider = registry.create(NAME, &FactoryInput::new(CONFIG))?;
    if let Some(instances) = provider.instances() {
        let node = NodeIdentity { name: "node-2".to_owned(), ..NodeIdentity::default() };
        let answers = instances.lookup(&[&node]).await;
        #[expect(clippy::print_stdout, reason = "an example talks to a person")]
        for answer in answers {
            println!("{}: {answer:?}", node.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

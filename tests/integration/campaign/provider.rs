//! The provider inside the daemon's process. It asks the campaign's cloud over a socket and does what the
//! reply says, including hanging and panicking.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, ConfigProblem, Error, ErrorKind, FactoryInput, Instance, InstanceChange, InstanceLookup,
    InstanceMetadata, InstanceRef, InstanceStream, Instances, NodeAddress, NodeIdentity, PowerState,
    ProviderId, Registry, Result, StartContext, async_trait,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    time::sleep,
};

use super::world::SCHEME;

pub(super) const NAME: &str = "campaign";

/// The message of this provider's panics, to tell them from real ones.
pub(super) const PANIC: &str = "the campaign's provider panics on purpose";

/// Pause before the stream of changes is opened again.
const RECONNECT: Duration = Duration::from_millis(200);

/// `--cloud-config`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) port: u16,
    /// The number of this daemon's process.
    pub(super) life: u32,
    /// Must never be in a log.
    pub(super) password: String,
}

/// A request to the cloud, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) life: u32,
    pub(super) password: String,
    /// `None` requests the stream of changes.
    pub(super) nodes: Option<Vec<Asked>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) uid: String,
    pub(super) provider_id: Option<String>,
    pub(super) system_uuid: Option<String>,
}

/// The cloud's reply to a look-up, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Answers(Vec<Answer>),
    Panic,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Present { uuid: String, off: bool, instance_type: String, address: String },
    Absent,
    Unknown(String),
}

/// A change that the cloud pushes: of one machine, or of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) uuid: Option<String>,
}

pub(super) fn registry() -> Result<Registry> {
    let mut registry = Registry::new();
    registry.register(NAME, factory)?;
    Ok(registry)
}

fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let text = input.config.as_deref().unwrap_or_default();
    let config: Config = serde_json::from_str(text)
        .map_err(|error| Error::invalid_configuration(vec![ConfigProblem::new("", error.to_string())]))?;
    Ok(Arc::new(Provider { config }))
}

/// The kinds of errors of the campaign's cloud, by name.
pub(super) const KINDS: [(&str, ErrorKind); 8] = [
    ("unavailable", ErrorKind::Unavailable),
    ("timeout", ErrorKind::Timeout),
    ("unauthenticated", ErrorKind::Unauthenticated),
    ("permission_denied", ErrorKind::PermissionDenied),
    ("rate_limited", ErrorKind::RateLimited),
    ("internal", ErrorKind::Internal),
    ("not_found", ErrorKind::NotFound),
    ("ambiguous", ErrorKind::Ambiguous),
];

fn error(kind: &str) -> Error {
    let found = KINDS.iter().find(|(name, _)| *name == kind).map_or(ErrorKind::Internal, |(_, kind)| *kind);
    Error::new(found, "the campaign's cloud fails")
}

#[derive(Debug)]
struct Provider {
    config: Config,
}

impl Provider {
    async fn ask(&self, nodes: Option<Vec<Asked>>) -> std::io::Result<Lines<BufReader<TcpStream>>> {
        let Config { port, life, password } = self.config.clone();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut line = serde_json::to_string(&Question { life, password, nodes })?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        Ok(BufReader::new(stream).lines())
    }

    async fn reply(&self, nodes: Vec<Asked>) -> std::io::Result<Reply> {
        let mut lines = self.ask(Some(nodes)).await?;
        let line = lines.next_line().await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        Ok(serde_json::from_str(&line)?)
    }
}

fn instance(uuid: &str, off: bool, instance_type: String, address: String) -> Instance {
    let power_state = if off { PowerState::Off } else { PowerState::Running };
    Instance::new(ProviderId::new(NAME, &format!("/{uuid}")), power_state).with_metadata(InstanceMetadata {
        instance_type: Some(instance_type),
        addresses: vec![NodeAddress::internal_ip(address)],
        zone: Some("zone-a".to_owned()),
        region: Some("region-1".to_owned()),
        ..InstanceMetadata::default()
    })
}

#[async_trait]
impl Instances for Provider {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id.starts_with(SCHEME)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let asked = |node: &&NodeIdentity| Asked {
            uid: node.uid.clone(),
            provider_id: node.provider_id.clone(),
            system_uuid: node.system_uuid.clone(),
        };
        match self.reply(nodes.iter().map(asked).collect()).await {
            Ok(Reply::Answers(answers)) => answers
                .into_iter()
                .map(|answer| match answer {
                    Answer::Absent => InstanceLookup::Absent,
                    Answer::Unknown(kind) => error(&kind).into(),
                    Answer::Present { uuid, off, instance_type, address } => {
                        instance(&uuid, off, instance_type, address).into()
                    }
                })
                .collect(),
            Ok(Reply::Panic) => panic!("{PANIC}"),
            Err(why) => nodes
                .iter()
                .map(|_| Error::new(ErrorKind::Unavailable, format!("no cloud: {why}")).into())
                .collect(),
        }
    }

    fn changes(&self) -> Option<InstanceStream> {
        let provider = Self { config: self.config.clone() };
        let stream = futures::stream::unfold((provider, None), |(provider, open)| async move {
            let mut open: Option<Lines<BufReader<TcpStream>>> = open;
            loop {
                if let Some(lines) = &mut open
                    && let Ok(Some(line)) = lines.next_line().await
                    && let Ok(change) = serde_json::from_str::<Change>(&line)
                {
                    let change = change.uuid.map_or(InstanceChange::Resync, |uuid| {
                        InstanceChange::Changed(vec![InstanceRef {
                            provider_id: Some(format!("{SCHEME}{uuid}")),
                            system_uuid: Some(uuid),
                            name: None,
                            machine: None,
                        }])
                    });
                    return Some((change, (provider, open)));
                }
                sleep(RECONNECT).await;
                open = provider.ask(None).await.ok();
            }
        });
        Some(stream.boxed())
    }
}

#[async_trait]
impl CloudProvider for Provider {
    fn name(&self) -> &'static str {
        NAME
    }
    async fn start(&self, _context: StartContext) -> Result<()> {
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

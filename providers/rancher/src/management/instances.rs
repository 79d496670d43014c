//! The instances of Rancher 2.x: the machines of a cluster.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use cloudprovider::{
    Error, ErrorKind, InstanceLookup, InstanceStream, Instances, NodeIdentity, Result, async_trait,
    instance_stream, look_once_listed,
};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    follow::{self, Source},
    inventory::Machines,
    judge::{Answer, look_up},
};
use crate::{
    config::{Config, ManagementConfig, ZoneRules},
    norman::client::Client,
    provider_id,
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How long a look-up waits for the listing that confirms an absence. A look-up has 60 s in all.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The machines of a cluster as instances.
#[derive(Debug)]
pub(crate) struct MachineInstances {
    source: Source,
    machines: Arc<Machines>,
    zones: ZoneRules,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
}

impl MachineInstances {
    /// The machines of this cluster. They are read once [`follow`](Self::follow) is called. `client` is one of the API
    /// below `/v3`.
    pub(crate) fn new(client: Client, config: &Config, management: &ManagementConfig) -> Self {
        Self {
            source: Source {
                client,
                url: config.server.url.clone(),
                config: management.clone(),
                page_size: config.server.page_size,
                refresh_interval: config.refresh_interval,
                poll_interval: config.poll_interval,
            },
            machines: Arc::new(Machines::new()),
            zones: config.zones.clone(),
            started: OnceLock::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// The work that follows the machines until `stop` is cancelled. To be called once.
    pub(crate) fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let _ = self.started.set(Instant::now());
        let (source, machines, stopped) =
            (self.source.clone(), Arc::clone(&self.machines), self.stopped.clone());
        async move {
            follow::run(source, &machines, stop).await;
            stopped.cancel();
        }
    }

    fn look(&self, nodes: &[&NodeIdentity]) -> Vec<Answer> {
        let state = self.machines.state();
        nodes.iter().map(|node| look_up(node, &state, &self.zones)).collect()
    }

    /// Whether a complete listing began after this moment. `None` if that is still open.
    fn listed_since(&self, asked: Instant) -> Option<Result<()>> {
        let state = self.machines.state();
        if state.listed.is_some_and(|began| began > asked) && state.trouble.is_none() {
            return Some(Ok(()));
        }
        state.trouble.as_ref().filter(|(_, at)| *at > asked).map(|(error, _)| Err(error.clone()))
    }

    /// Waits for a complete listing that began after this moment.
    ///
    /// # Errors
    /// Why there is none.
    async fn listing_since(&self, asked: Instant) -> Result<()> {
        let mut versions = self.machines.versions();
        self.machines.want_listing();
        let listed = async {
            loop {
                versions.mark_unchanged();
                if let Some(outcome) = self.listed_since(asked) {
                    return outcome;
                }
                // The sender is in `self.machines`, so this cannot fail.
                let _ = versions.changed().await;
            }
        };
        timeout(CONFIRMATION_TIMEOUT, listed).await.unwrap_or_else(|_| {
            let words = "cannot confirm that there is no machine for this node: they were not listed in time";
            Err(Error::new(ErrorKind::Timeout, words))
        })
    }
}

#[async_trait]
impl Instances for MachineInstances {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id::is_machine_id(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        Some(provider_id::MACHINE_FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let asked = Instant::now();
        let deadline = self.started.get().map(|started| *started + START_GRACE);
        let waits = |answer: &Answer| matches!(answer, Answer::Starting(_));
        let versions = self.machines.versions();
        let mut answers = look_once_listed(|| self.look(nodes), waits, versions, deadline).await;
        // One listing confirms all absences of the batch. They are remembered.
        let mut confirmed = Ok(());
        if answers.iter().any(|answer| matches!(answer, Answer::Nowhere(_))) {
            confirmed = self.listing_since(asked).await;
            if confirmed.is_ok() {
                answers = self.look(nodes);
                let missing = answers.iter().filter_map(|answer| match answer {
                    Answer::Nowhere(missing) => Some(missing.clone()),
                    Answer::Settled(_) | Answer::Starting(_) => None,
                });
                self.machines.note_missing(missing);
            }
        }
        let settle = |answer| match (answer, &confirmed) {
            (Answer::Settled(lookup), _) => lookup,
            (Answer::Starting(error), _) => error.into(),
            (Answer::Nowhere(_), Ok(())) => InstanceLookup::Absent,
            (Answer::Nowhere(_), Err(error)) => error.clone().into(),
        };
        answers.into_iter().map(settle).collect()
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.machines.changes(), self.stopped.clone()))
    }
}

//! The instances of Rancher 1.6: hosts.

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

use crate::{
    cattle::{
        follow::{self, Intervals},
        inventory::Hosts,
    },
    config::Config,
    detect::CattleOrNot,
    instances::{Answer, Rules, look_up},
    norman::client::Client,
    provider_id,
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How long a look-up waits for the listing that confirms an absence. A look-up has 60 s in all.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The hosts of a project as instances.
#[derive(Debug)]
pub(crate) struct HostInstances {
    client: Client,
    /// A client below `/v3`, if the configuration does not say that the server is Rancher 1.6.
    asked: Option<Client>,
    hosts: Arc<Hosts>,
    rules: Rules,
    intervals: Intervals,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
}

impl HostInstances {
    /// The hosts that this client sees. They are read once [`follow`](Self::follow) is called. If they cannot be listed,
    /// `asked` says whether the server is Rancher 2.x.
    pub(crate) fn new(client: Client, asked: Option<Client>, config: &Config) -> Self {
        Self {
            client,
            asked,
            hosts: Arc::new(Hosts::new()),
            rules: Rules { address_types: config.address_types, zones: config.zones.clone() },
            intervals: Intervals {
                with_events: config.refresh_interval,
                without_events: config.poll_interval,
            },
            started: OnceLock::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// The client of the server.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The hosts in memory.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The work that follows the hosts until `stop` is cancelled. To be called once.
    pub(crate) fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let _ = self.started.set(Instant::now());
        let source = CattleOrNot { cattle: self.client.clone(), management: self.asked.clone() };
        let (hosts, intervals, stopped) = (Arc::clone(&self.hosts), self.intervals, self.stopped.clone());
        async move {
            follow::run(&source, &hosts, intervals, stop).await;
            stopped.cancel();
        }
    }

    fn look(&self, nodes: &[&NodeIdentity]) -> Vec<Answer> {
        let state = self.hosts.state();
        nodes.iter().map(|node| look_up(node, &state, &self.rules)).collect()
    }

    /// Whether a complete listing began after this moment. `None` if that is still open.
    fn listed_since(&self, asked: Instant) -> Option<Result<()>> {
        let state = self.hosts.state();
        if state.listed.is_some_and(|began| began > asked) && state.trouble.is_none() {
            return Some(state.inventory.unreadable().map_or(Ok(()), |why| {
                let words = format!("cannot confirm that there is no host for this node: {why}");
                Err(Error::new(ErrorKind::Unavailable, words))
            }));
        }
        state.trouble.as_ref().filter(|(_, at)| *at > asked).map(|(error, _)| Err(error.clone()))
    }

    /// Waits for a complete listing that began after this moment, and asks for one if there is none yet.
    ///
    /// # Errors
    /// Why there is none.
    async fn listing_since(&self, asked: Instant) -> Result<()> {
        let mut versions = self.hosts.versions();
        if let Some(outcome) = self.listed_since(asked) {
            return outcome;
        }
        self.hosts.want_listing();
        let listed = async {
            loop {
                versions.mark_unchanged();
                if let Some(outcome) = self.listed_since(asked) {
                    return outcome;
                }
                // The sender is in `self.hosts`, so this cannot fail.
                let _ = versions.changed().await;
            }
        };
        timeout(CONFIRMATION_TIMEOUT, listed).await.unwrap_or_else(|_| {
            let words =
                "cannot confirm that there is no host for this node: the hosts were not listed in time";
            Err(Error::new(ErrorKind::Timeout, words))
        })
    }
}

#[async_trait]
impl Instances for HostInstances {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id::is_ours(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        Some(provider_id::FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let asked = Instant::now();
        let deadline = self.started.get().map(|started| *started + START_GRACE);
        let waits = |answer: &Answer| matches!(answer, Answer::Starting(_));
        let mut answers = look_once_listed(|| self.look(nodes), waits, self.hosts.versions(), deadline).await;
        // One listing confirms all absences of the batch.
        let mut confirmed = Ok(());
        if answers.iter().any(|answer| matches!(answer, Answer::Nowhere(_))) {
            confirmed = self.listing_since(asked).await;
            if confirmed.is_ok() {
                answers = self.look(nodes);
                let nowhere = answers.iter().filter_map(|answer| match answer {
                    Answer::Nowhere(sought) => Some(sought.clone()),
                    _ => None,
                });
                self.hosts.note_absences(nowhere);
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
        Some(instance_stream(self.hosts.changes(), self.stopped.clone()))
    }
}

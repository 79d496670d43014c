//! The Rancher provider.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use cloudprovider::{
    CloudProvider, Clusters, ConfigProblem, Error, ErrorKind, FactoryInput, InstanceLookup, InstanceStream,
    Instances, LoadBalancer, NodeIdentity, Result, Routes, StartContext, Zones, async_trait, instance_stream,
    look_once_listed,
};
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    NAME,
    cattle::{
        client::Client,
        follow::{self, Intervals},
        inventory::Hosts,
    },
    config::{Config, Environment, LoadBalancerMode},
    instances::{Answer, Rules, look_up},
    load_balancer::CattleLoadBalancers,
    provider_id,
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How long a look-up waits for the listing that confirms an absence. A look-up has 60 s in all.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Rancher 1.6 as a cloud.
#[derive(Debug)]
pub struct RancherProvider {
    client: Client,
    hosts: Arc<Hosts>,
    rules: Rules,
    intervals: Intervals,
    load_balancers: Option<CattleLoadBalancers>,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// Makes a provider from a configuration text and the environment. Checks everything and opens no connection.
///
/// # Errors
/// [`ErrorKind::InvalidConfiguration`] with every fault found.
pub fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let config = Config::read(input, &Environment::of_process())?;
    Ok(Arc::new(RancherProvider::new(&config)?))
}

impl RancherProvider {
    /// A provider with this configuration. It does nothing until [`start`](CloudProvider::start).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`] if there can be no client with these settings.
    pub fn new(config: &Config) -> Result<Self> {
        let client = Client::new(config)
            .map_err(|why| Error::invalid_configuration(vec![ConfigProblem::new("url", why)]))?;
        let hosts = Arc::new(Hosts::new());
        let load_balancers = match config.load_balancer.mode {
            LoadBalancerMode::Cattle => Some(CattleLoadBalancers::new(
                client.clone(),
                Arc::clone(&hosts),
                config.load_balancer.clone(),
            )),
            LoadBalancerMode::None => None,
        };
        Ok(Self {
            client,
            hosts,
            rules: Rules { address_types: config.address_types, zones: config.zones.clone() },
            intervals: Intervals {
                with_events: config.refresh_interval,
                without_events: config.poll_interval,
            },
            load_balancers,
            started: OnceLock::new(),
            stopped: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
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
impl CloudProvider for RancherProvider {
    fn name(&self) -> &str {
        NAME
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        if self.started.set(Instant::now()).is_err() {
            return Err(Error::new(ErrorKind::Conflict, "the provider was started already"));
        }
        let (client, hosts, intervals) = (self.client.clone(), Arc::clone(&self.hosts), self.intervals);
        let (stop, stopped) = (context.stop, self.stopped.clone());
        self.tasks.spawn(async move {
            follow::run(&client, &hosts, intervals, stop).await;
            stopped.cancel();
        });
        Ok(())
    }

    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        // Instances carry what the labels of the hosts say.
        None
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.load_balancers.as_ref().map(|part| part as &dyn LoadBalancer)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }
}

#[async_trait]
impl Instances for RancherProvider {
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
        if answers.iter().any(|answer| matches!(answer, Answer::Nowhere)) {
            confirmed = self.listing_since(asked).await;
            if confirmed.is_ok() {
                answers = self.look(nodes);
            }
        }
        let settle = |answer| match (answer, &confirmed) {
            (Answer::Settled(lookup), _) => lookup,
            (Answer::Starting(error), _) => error.into(),
            (Answer::Nowhere, Ok(())) => InstanceLookup::Absent,
            (Answer::Nowhere, Err(error)) => error.clone().into(),
        };
        answers.into_iter().map(settle).collect()
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.hosts.changes(), self.stopped.clone()))
    }
}

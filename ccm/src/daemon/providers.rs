//! The providers of a daemon: that of `--cloud-provider`, and those whose machines alone are served. Each is started, stands
//! behind a boundary of its own, and follows its own configuration.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use cloudprovider::{CloudProvider, Registry, SecretSource, ServiceAccess, StartContext, machines::Kinds};
use component::{
    debug_state::DebugState, events::EventRecorder, files::FilesRead, metrics::Metrics,
    reload::ReloadReporter,
};
use controller_kit::{
    cloud::{Cloud, CloudMetrics, Started, machine_kinds_of},
    nodes::NodeStore,
};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    cloud_config::{CloudConfig, Follower},
    controllers::{Capability, ControllerDescriptor, name_of},
    flags::{Flags, ServedMachines},
};

/// How long a provider may take to start. It does not wait for its cloud then.
const PROVIDER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A provider that is not started yet.
#[derive(Clone, Debug)]
pub struct ProviderParts {
    /// The provider.
    pub provider: Arc<dyn CloudProvider>,
    /// What it was made from, and the files that were read for that. Changes of them are followed.
    pub config: Option<(CloudConfig, FilesRead)>,
}

impl From<Arc<dyn CloudProvider>> for ProviderParts {
    /// A provider without a configuration that could change.
    fn from(provider: Arc<dyn CloudProvider>) -> Self {
        Self { provider, config: None }
    }
}

impl ProviderParts {
    /// Makes a provider from its configuration. Calls no cloud and no API server. What is odd in the configuration is logged.
    ///
    /// # Errors
    /// An unreadable file, an unknown provider, or every fault in its configuration.
    pub fn create(config: CloudConfig) -> anyhow::Result<Self> {
        let files = FilesRead::new();
        let provider = config.create(&files)?;
        Ok(Self { provider, config: Some((config, files)) })
    }

    /// The provider of `--cloud-provider`, if that is given.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn of_cloud_provider(flags: &Flags, registry: &Registry) -> anyhow::Result<Option<Self>> {
        let Some(name) = flags.cloud_provider() else { return Ok(None) };
        let parts = Self::create(CloudConfig::new(flags, registry))?;
        if flags.served_machines().is_main_named {
            parts.needs_machines(name)?;
        }
        Ok(Some(parts))
    }

    /// The providers of `--machine-provider`, except the one of `--cloud-provider`.
    ///
    /// # Errors
    /// As [`create`](Self::create), and a provider that has no machines.
    pub fn of_machines(flags: &Flags, registry: &Registry) -> anyhow::Result<Vec<Self>> {
        Self::of_others(&flags.served_machines(), registry)
    }

    /// These providers, except the one of `--cloud-provider`.
    ///
    /// # Errors
    /// As [`of_machines`](Self::of_machines): the faults of all.
    pub(super) fn of_others(served: &ServedMachines, registry: &Registry) -> anyhow::Result<Vec<Self>> {
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for one in &served.others {
            let made = Self::create(CloudConfig::of_machines(one, registry));
            match made.and_then(|parts| parts.needs_machines(&one.name).map(|()| parts)) {
                Ok(parts) => all.push(parts),
                Err(fault) => faults.push(format!("{fault:#}")),
            }
        }
        if faults.is_empty() { Ok(all) } else { bail!("{}", faults.join("; ")) }
    }

    fn needs_machines(&self, name: &str) -> anyhow::Result<()> {
        if machine_kinds_of(&*self.provider).is_none() {
            bail!("{}", no_machines(name));
        }
        Ok(())
    }
}

/// A provider that `--machine-provider` names has no machines.
pub(crate) fn no_machines(provider: &str) -> String {
    format!("cloud provider {provider:?} has no machines (--machine-provider)")
}

/// What is wrong with the kinds of these providers: no kind may have two controllers.
pub(crate) fn fault_of_kinds<'p>(all: impl IntoIterator<Item = (&'p str, Kinds)>) -> Option<String> {
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (provider, kinds) in all {
        for kind in [kinds.machine.kind, kinds.cluster.kind] {
            if let Some(other) = owners.insert((kinds.group, kind), provider) {
                let group = kinds.group;
                return Some(format!(
                    "cloud providers {other} and {provider} both have the kind {kind} in {group}"
                ));
            }
        }
    }
    None
}

/// What providers are started with, and what they are reported to.
pub(super) struct Surroundings<'a> {
    pub(super) flags: &'a Flags,
    pub(super) secrets: Arc<dyn SecretSource>,
    /// For the provider of `--cloud-provider` alone.
    pub(super) services: Arc<dyn ServiceAccess>,
    /// By which versions of the configuration of `--cloud-provider` are compared.
    pub(super) nodes: &'a NodeStore,
    pub(super) metrics: &'a Metrics,
    pub(super) events: &'a EventRecorder,
    pub(super) debug_state: &'a DebugState,
    pub(super) stop: &'a CancellationToken,
}

/// What a provider is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It is the one of `--cloud-provider`.
    Main,
    /// Its machines alone are served.
    Machines,
}

/// The providers at work.
pub(super) struct Providers {
    /// The one of `--cloud-provider`.
    main: Option<Cloud>,
    /// Those whose machines are served.
    machines: Vec<Cloud>,
}

impl Providers {
    /// Whether one of them serves Nodes.
    pub(super) fn has_nodes(&self) -> bool {
        self.main.is_some()
    }

    /// Starts them at the same time, and what follows their configurations in `support`.
    pub(super) async fn start(
        main: Option<ProviderParts>,
        machines: Vec<ProviderParts>,
        with: &Surroundings<'_>,
        support: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let main = main.into_iter().map(|parts| (Role::Main, parts));
        let all = main.chain(machines.into_iter().map(|parts| (Role::Machines, parts)));
        let started = try_join_all(all.map(|(role, parts)| with.start(role, parts))).await?;
        let mut providers = Self { main: None, machines: Vec::new() };
        for (role, cloud, follower) in started {
            if let Some(follower) = follower {
                support.spawn(follower.run(with.stop.clone()));
            }
            if role == Role::Machines || with.flags.served_machines().of_main {
                providers.machines.push(cloud.clone());
            }
            if role == Role::Main {
                providers.main = Some(cloud);
            }
        }
        let kinds =
            providers.machines.iter().filter_map(|cloud| Some((cloud.name(), cloud.machine_kinds()?)));
        let kinds: Vec<_> = kinds.collect();
        match fault_of_kinds(kinds.iter().map(|(name, kinds)| (&**name, *kinds))) {
            Some(fault) => bail!("{fault}"),
            None => Ok(providers),
        }
    }

    /// The clouds that this controller works on. It runs once for each.
    pub(super) fn of(&self, controller: &ControllerDescriptor) -> &[Cloud] {
        match controller.needs {
            Some(Capability::Machines) => &self.machines,
            _ => self.main.as_slice(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Cloud> {
        let further = self
            .machines
            .iter()
            .filter(|cloud| self.main.as_ref().is_none_or(|main| main.name() != cloud.name()));
        self.main.iter().chain(further)
    }

    /// Stops them at the same time, and waits, for a few seconds at most, until they have ended what they began.
    pub(super) async fn stop(&self) {
        join_all(self.all().map(Cloud::stop)).await;
    }
}

impl Surroundings<'_> {
    /// Starts one provider, and prepares what follows its configuration.
    async fn start(
        &self,
        role: Role,
        parts: ProviderParts,
    ) -> anyhow::Result<(Role, Cloud, Option<Follower>)> {
        let ProviderParts { provider, config } = parts;
        let name = provider.name().to_owned();
        // Things of the provider of --cloud-provider have no name of a provider in theirs.
        let of = (role == Role::Machines).then_some(&*name);
        let mut context = StartContext::new(self.stop.child_token(), &self.flags.generic.cluster_name)
            .with_secrets(Arc::clone(&self.secrets))
            .with_cluster_cidr(&self.flags.generic.cluster_cidr)
            .with_namespace(&self.flags.leader_election.resource_namespace)
            .with_takeover_after(self.flags.leader_election.takeover_after());
        context = match role {
            Role::Main => context.with_services(Arc::clone(&self.services)),
            Role::Machines => context.without_services(),
        };
        let started = Started::start(provider, context.clone(), PROVIDER_START_TIMEOUT).await;
        let started =
            started.map_err(|error| anyhow!("cloud provider {name} cannot start: {}", error.report()))?;
        let mut cloud = Cloud::new(started, self.metrics.get::<CloudMetrics>()?);
        if role == Role::Main {
            cloud = cloud.with_labels(self.flags.controllers.cloud_node.node_labels.0.clone());
        }
        self.debug_state.share(&name_of("provider", of), {
            let cloud = cloud.clone();
            move || capabilities(&*cloud.provider())
        });
        let Some(config) = config else { return Ok((role, cloud, None)) };
        let reporter = ReloadReporter::new(self.metrics.get()?, Some(self.events.clone()));
        let reporter = match of {
            Some(name) => reporter.of(name),
            None => reporter,
        };
        let nodes = (role == Role::Main).then(|| self.nodes.clone());
        let follower = Follower::new(config, cloud.clone(), nodes, context, reporter);
        let status = follower.status();
        self.debug_state.share(&name_of("cloud-config", of), move || status.to_json());
        Ok((role, cloud, Some(follower)))
    }
}

/// What the provider can do, for `/debug/state`.
fn capabilities(provider: &dyn CloudProvider) -> Value {
    json!({
        "name": provider.name(),
        "instances": provider.instances().is_some(),
        "zones": provider.zones().is_some(),
        "loadBalancer": provider.load_balancer().is_some(),
        "routes": provider.routes().is_some(),
        "clusters": provider.clusters().is_some(),
        "machines": provider.machines().is_some(),
    })
}

#[cfg(test)]
mod tests {
    use cloudprovider::{FactoryInput, testing::FakeCloud};

    use super::*;
    use crate::flags;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry
            .register("with", |_: &FactoryInput| Ok(FakeCloud::named("with").with_machines().provider()))
            .expect("free");
        registry
            .register("without", |_: &FactoryInput| Ok(FakeCloud::named("without").provider()))
            .expect("free");
        registry
    }

    fn made(args: &[&str]) -> anyhow::Result<(Option<ProviderParts>, Vec<ProviderParts>)> {
        let flags = flags::parse(["ccm"].iter().chain(args)).expect("good flags");
        let main = ProviderParts::of_cloud_provider(&flags, &registry())?;
        Ok((main, ProviderParts::of_machines(&flags, &registry())?))
    }

    const BOTH: &str = "--controllers=*,machine-controller";

    #[test]
    fn who_is_named_for_machines_has_some() {
        let refused = |args: &[&str]| made(args).map(drop).expect_err("no machines").to_string();
        let words = "cloud provider \"without\" has no machines (--machine-provider)";
        assert_eq!(refused(&[BOTH, "--machine-provider=without"]), words);
        let main = [BOTH, "--cloud-provider=without", "--machine-provider=without,with"];
        assert_eq!(refused(&main), words);
        let (main, others) =
            made(&[BOTH, "--cloud-provider=without", "--machine-provider=with"]).expect("made");
        assert!(main.is_some() && others.len() == 1);
        let all = refused(&[BOTH, "--machine-provider=without,none,with"]);
        assert!(all.contains(words) && all.contains("unknown cloud provider \"none\""), "{all}");
    }

    #[test]
    fn a_flag_without_effect_reads_no_configuration() {
        let args = ["--cloud-provider=without", "--machine-provider=with=/no/such,without"];
        let (main, others) = made(&args).expect("the machine controller does not run");
        assert!(main.is_some() && others.is_empty());
    }
}

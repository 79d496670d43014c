//! What the author of a provider implements for the suites.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    CloudProvider, FactoryInput, LoadBalancerService, NodeIdentity, Result, Route, StartContext, async_trait,
    machines::{BootstrapData, BootstrapFormat, Mark},
};

/// The result of a hook.
pub type Hook<T = ()> = std::result::Result<T, HookError>;

/// Why a hook did not do what it was asked for. Any error converts into this with `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// The hook is not implemented. Rules that need it are not checked.
    NotOffered(&'static str),
    /// The hook failed, and so does the rule.
    Failed(String),
}

impl HookError {
    /// The error of a hook that failed.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl<E: std::error::Error + 'static> From<E> for HookError {
    fn from(error: E) -> Self {
        Self::Failed(crate::error_chain(&error))
    }
}

/// Creates providers and acts on their cloud.
///
/// Two hooks are required. Leave out the others if the cloud cannot do them, or if a test cannot do them to
/// the cloud: the report names the rules that were not checked for that reason.
///
/// The suites create a provider for each rule. Hooks that act on the cloud are called while the provider that
/// was created last is working. So if the cloud lives in its provider, as in a test driver, the hooks can
/// reach it through that provider.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Creates another provider on the same cloud, not started, as the factory does when the configuration
    /// changes.
    ///
    /// # Errors
    /// The error of the factory. No rule can be checked then.
    fn provider(&self) -> Result<Arc<dyn CloudProvider>>;

    /// Nodes whose instances exist and run, each as its kubelet registers it: without a provider ID. At least
    /// one; the rules about the order of answers need two or more.
    async fn nodes(&self) -> Hook<Vec<NodeIdentity>>;

    /// The context that the provider is started with.
    fn context(&self, stop: CancellationToken) -> StartContext {
        StartContext::new(stop, "conformance")
    }

    /// How long the provider may take to see what happened in the cloud, and how long the cloud may be busy
    /// with one load balancer.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Creates a running instance, another one each time. Returns the Node as its kubelet registers it.
    async fn create(&self) -> Hook<NodeIdentity> {
        Err(HookError::NotOffered("create"))
    }

    /// Destroys an instance that [`create`](Self::create) created. The Node is the one that `create`
    /// returned.
    async fn destroy(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("destroy"))
    }

    /// Powers an instance off immediately.
    async fn power_off(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("power_off"))
    }

    /// Powers an instance on again.
    async fn power_on(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("power_on"))
    }

    /// Makes the cloud answer every call with an error from now on.
    async fn inject_fault(&self) -> Hook {
        Err(HookError::NotOffered("inject_fault"))
    }

    /// Makes the cloud work again after [`inject_fault`](Self::inject_fault).
    async fn clear_fault(&self) -> Hook {
        Err(HookError::NotOffered("clear_fault"))
    }

    /// Makes the cloud unreachable: connections break, and new ones cannot be made. Hooks still act on
    /// instances as before.
    async fn disconnect(&self) -> Hook {
        Err(HookError::NotOffered("disconnect"))
    }

    /// Makes the cloud reachable again.
    async fn reconnect(&self) -> Hook {
        Err(HookError::NotOffered("reconnect"))
    }

    /// Other provider IDs that Nodes of this instance may have, such as those of an earlier version. The
    /// provider must look them up like the ID that it writes today.
    fn other_provider_ids(&self, _node: &NodeIdentity) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("other_provider_ids"))
    }

    /// Services whose load balancers the cloud can make. None of them has a load balancer yet. The rules about
    /// several need two or more. The suite deletes what it makes.
    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        Err(HookError::NotOffered("load_balancer_services"))
    }

    /// Routes that the cloud can make, each with its pod CIDR, its Node and whatever else the provider needs.
    /// None of them exists yet. The rules about several need two or more; include both address families if the
    /// cloud has both. They are created and deleted in the clusters `conformance` and `conformance-other`.
    async fn routes(&self) -> Hook<Vec<Route>> {
        Err(HookError::NotOffered("routes"))
    }

    /// What machines to make, if the provider has machines. The suite deletes what it makes. All objects are in
    /// the namespace `conformance`, of the cluster `conformance`, and the machines are called
    /// `conformance-<number>`.
    async fn machines(&self) -> Hook<MachineCases> {
        Err(HookError::NotOffered("machines"))
    }

    /// A line for each thing in the cloud that machines and clusters consist of: instances, disks, seeds,
    /// reservations, endpoints. Those of others too. The same thing has the same line each
    /// time, and no other thing has it.
    async fn machine_objects(&self) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("machine_objects"))
    }

    /// The Node of the machine with this provider ID, as its kubelet registers it: without a provider ID. The
    /// hooks that act on instances ([`destroy`](Self::destroy), [`power_off`](Self::power_off)) are given such
    /// Nodes too.
    async fn machine_node(&self, _provider_id: &str) -> Hook<NodeIdentity> {
        Err(HookError::NotOffered("machine_node"))
    }

    /// Creates something foreign that takes the name of a machine, such as an instance without a mark.
    async fn foreign_machine(&self, _name: &str) -> Hook {
        Err(HookError::NotOffered("foreign_machine"))
    }

    /// Removes what [`foreign_machine`](Self::foreign_machine) created.
    async fn remove_foreign_machine(&self, _name: &str) -> Hook {
        Err(HookError::NotOffered("remove_foreign_machine"))
    }

    /// Creates something foreign with the name that the provider gives what it makes for the machine with this mark. Where that is not
    /// the machine's own name, offer this in place of [`foreign_machine`](Self::foreign_machine).
    async fn foreign_thing(&self, mark: &Mark) -> Hook {
        self.foreign_machine(mark.name()).await
    }

    /// Removes what [`foreign_thing`](Self::foreign_thing) created.
    async fn remove_foreign_thing(&self, mark: &Mark) -> Hook {
        self.remove_foreign_machine(mark.name()).await
    }

    /// Makes the next long work of the cloud for a machine fail. Returns words of the cloud's message.
    async fn fail_next_task(&self) -> Hook<String> {
        Err(HookError::NotOffered("fail_next_task"))
    }

    /// Texts that the provider knows and that no message may contain, such as passwords.
    fn secrets(&self) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("secrets"))
    }

    /// Configurations to try the factory with.
    fn configuration(&self) -> Hook<ConfigurationCases> {
        Err(HookError::NotOffered("configuration"))
    }
}

/// Machines that the cloud can make.
#[derive(Clone, Debug)]
pub struct MachineCases {
    pub(super) machine: Value,
    pub(super) cluster: Value,
    pub(super) bootstrap: BootstrapData,
    pub(super) many: usize,
    pub(super) time_for_cuts: Duration,
}

impl MachineCases {
    /// How many machines are made at the same time, unless a hook says otherwise.
    const MANY: usize = 1_000;

    /// For how long steps are cut off, unless a hook says otherwise.
    const TIME_FOR_CUTS: Duration = Duration::from_secs(150);

    /// Machines and clusters with these specs.
    pub fn new(machine: Value, cluster: Value) -> Self {
        let words = "#cloud-config\n# conformance: nobody else may see this\n";
        let bootstrap = BootstrapData::new(BootstrapFormat::CloudConfig, words);
        Self { machine, cluster, bootstrap, many: Self::MANY, time_for_cuts: Self::TIME_FOR_CUTS }
    }

    /// Sets the bootstrap data of all machines. They must be unlike everything else that the provider shows: a
    /// text with half of them counts as revealing them.
    #[must_use]
    pub fn with_bootstrap(mut self, data: BootstrapData) -> Self {
        self.bootstrap = data;
        self
    }

    /// Sets how many machines are made at the same time. 1,000 otherwise.
    #[must_use]
    pub fn with_many(mut self, many: usize) -> Self {
        self.many = many;
        self
    }

    /// Sets for how long each of the rules tries that cut steps off. After that no further point is tried, since a real
    /// cloud takes seconds for each. 150 s otherwise.
    #[must_use]
    pub fn with_time_for_cuts(mut self, time: Duration) -> Self {
        self.time_for_cuts = time;
        self
    }
}

type Factory = Box<dyn Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync>;

/// A factory and configuration texts for it.
pub struct ConfigurationCases {
    pub(super) factory: Factory,
    pub(super) good: Vec<String>,
    pub(super) bad: Vec<BadConfiguration>,
    pub(super) secrets: Vec<String>,
}

/// A configuration with faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfiguration {
    /// What the operator wrote.
    pub text: String,
    /// The [keys](crate::ConfigProblem::key) that the factory must report, all at once.
    pub keys: Vec<String>,
}

impl fmt::Debug for ConfigurationCases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationCases")
            .field("good", &self.good.len())
            .field("bad", &self.bad.len())
            .finish_non_exhaustive()
    }
}

impl ConfigurationCases {
    /// Cases for this factory, the same one that [`Registry::register`](crate::Registry::register) gets.
    pub fn new(
        factory: impl Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        Self { factory: Box::new(factory), good: Vec::new(), bad: Vec::new(), secrets: Vec::new() }
    }

    /// Adds a good configuration. The suite also tries it with lines that are missing, cut off, doubled or
    /// indented, and checks that nothing panics and no secret is revealed.
    #[must_use]
    pub fn with_good(mut self, text: impl Into<String>) -> Self {
        self.good.push(text.into());
        self
    }

    /// Adds a configuration with faults at these keys.
    #[must_use]
    pub fn with_bad<K: Into<String>>(
        mut self,
        text: impl Into<String>,
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        let keys = keys.into_iter().map(Into::into).collect();
        self.bad.push(BadConfiguration { text: text.into(), keys });
        self
    }

    /// Adds a secret that the texts contain. It must have at least eight characters and be unlike everything
    /// else in the texts. A message that contains half of it counts as revealing it.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }
}

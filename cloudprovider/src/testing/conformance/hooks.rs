//! What a provider gives to the suites.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    CloudProvider, FactoryInput, LoadBalancerService, NodeIdentity, Result, Route, StartContext, async_trait,
};

/// What a hook returns.
pub type Hook<T = ()> = std::result::Result<T, HookError>;

/// Why a hook did not do what it was asked for. Any error becomes one with `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// There is no such hook: the rules that want it are not checked.
    NotOffered(&'static str),
    /// It did not work: the rule has failed.
    Failed(String),
}

impl HookError {
    /// A hook that did not work.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl<E: std::error::Error + 'static> From<E> for HookError {
    fn from(error: E) -> Self {
        Self::Failed(crate::error_chain(&error))
    }
}

/// Makes a provider and acts on its cloud.
///
/// Two hooks are needed. Leave out what the cloud cannot do, or a test cannot do to it: the report names the rules that
/// were not checked for that.
///
/// The suites make a provider for each rule. What acts on the cloud is called while the provider that was made last is at
/// work: a cloud that lives in its provider, as in a test driver, can be reached through that one.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Makes another provider on the same cloud, not started, as the factory does when the configuration changed.
    ///
    /// # Errors
    /// What the factory says. No rule can be checked then.
    fn provider(&self) -> Result<Arc<dyn CloudProvider>>;

    /// Nodes whose instances are there and run, each as its kubelet registers it: without a provider ID. At least one; two
    /// or more for the rules about the order of answers.
    async fn nodes(&self) -> Hook<Vec<NodeIdentity>>;

    /// What the provider is started with.
    fn context(&self, stop: CancellationToken) -> StartContext {
        StartContext::new(stop, "conformance")
    }

    /// How long the provider may take until it sees what happened in the cloud.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Creates an instance that runs, another one each time. The Node is as its kubelet registers it.
    async fn create(&self) -> Hook<NodeIdentity> {
        Err(HookError::NotOffered("create"))
    }

    /// Destroys an instance that [`create`](Self::create) made. The Node is the one that was given there.
    async fn destroy(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("destroy"))
    }

    /// Powers an instance off, at once.
    async fn power_off(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("power_off"))
    }

    /// Powers it on again.
    async fn power_on(&self, _node: &NodeIdentity) -> Hook {
        Err(HookError::NotOffered("power_on"))
    }

    /// The cloud answers every call with an error from now on.
    async fn inject_fault(&self) -> Hook {
        Err(HookError::NotOffered("inject_fault"))
    }

    /// It works again.
    async fn clear_fault(&self) -> Hook {
        Err(HookError::NotOffered("clear_fault"))
    }

    /// The cloud cannot be reached from now on: connections break and none is made. Instances can be acted on as before.
    async fn disconnect(&self) -> Hook {
        Err(HookError::NotOffered("disconnect"))
    }

    /// It can be reached again.
    async fn reconnect(&self) -> Hook {
        Err(HookError::NotOffered("reconnect"))
    }

    /// Other provider IDs that Nodes of this instance may have, such as those that an earlier version wrote. The provider
    /// looks them up like the one that it writes today.
    fn other_provider_ids(&self, _node: &NodeIdentity) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("other_provider_ids"))
    }

    /// Services whose load balancers the cloud can make, none of which it has yet. Two or more for the rules about several.
    /// The suite deletes what it makes.
    async fn load_balancer_services(&self) -> Hook<Vec<LoadBalancerService>> {
        Err(HookError::NotOffered("load_balancer_services"))
    }

    /// Routes that the cloud can make, none of which it has yet: each with its pod CIDR, the Node and what else the provider
    /// needs of it. Two or more for the rules about several, of IPv4 and IPv6 where the cloud has both. The suite deletes
    /// what it makes, and all else that the provider lists for the clusters `conformance` and `conformance-other`.
    async fn routes(&self) -> Hook<Vec<Route>> {
        Err(HookError::NotOffered("routes"))
    }

    /// Texts that the provider knows and that stand in no message, such as passwords.
    fn secrets(&self) -> Hook<Vec<String>> {
        Err(HookError::NotOffered("secrets"))
    }

    /// Configurations to try the factory with.
    fn configuration(&self) -> Hook<ConfigurationCases> {
        Err(HookError::NotOffered("configuration"))
    }
}

type Factory = Box<dyn Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync>;

/// A factory and texts for it.
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
    /// The [keys](crate::ConfigProblem::key) that the factory has to complain about, all of them at once.
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
    /// For this factory, which is what [`Registry::register`](crate::Registry::register) gets.
    pub fn new(
        factory: impl Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    ) -> Self {
        Self { factory: Box::new(factory), good: Vec::new(), bad: Vec::new(), secrets: Vec::new() }
    }

    /// With a configuration that is good. The suite also tries it with lines that are missing, cut off, doubled or
    /// indented, and asks that nothing panics and no secret is told.
    #[must_use]
    pub fn with_good(mut self, text: impl Into<String>) -> Self {
        self.good.push(text.into());
        self
    }

    /// With a configuration whose faults are at these keys.
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

    /// With a secret that stands in these texts, of eight characters or more and unlike all else in them. Half of it in a
    /// message counts as told.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }
}

//! What the rules share: started providers, look-ups with a time limit, and a record of all error messages.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use futures::{FutureExt as _, poll};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{HookError, Hooks};
use crate::{CloudProvider, Error, InstanceLookup, Instances, NodeIdentity, ProviderId};

/// Time limit of a look-up. The daemon gives up after the same time.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit of `start` and `ended`. Neither waits for the cloud.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster that load balancers and routes are made for.
pub(super) const CLUSTER: &str = "conformance";

/// How often a rule cancels a call, each time after one more step of it.
pub(super) const STEPS_GIVEN_UP: usize = 8;

/// Pause between look-ups while a rule waits for an answer.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a rule: what was checked, or why the rule does not hold or cannot be checked.
pub(super) type Checked<T = String> = Result<T, Stop>;

/// Why a rule ends early.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    NotChecked(String),
}

impl From<HookError> for Stop {
    fn from(error: HookError) -> Self {
        match error {
            HookError::NotOffered(hook) => Self::NotChecked(format!("the hook `{hook}`")),
            HookError::Failed(why) => Self::Failed(format!("a hook does not work: {why}")),
        }
    }
}

pub(super) fn failed<T>(why: impl Into<String>) -> Checked<T> {
    Err(Stop::Failed(why.into()))
}

pub(super) fn not_checked<T>(what: impl Into<String>) -> Checked<T> {
    Err(Stop::NotChecked(what.into()))
}

/// Fails with this message unless `is_so`.
pub(super) fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked<()> {
    if is_so { Ok(()) } else { failed(otherwise()) }
}

/// A run of the rules on one cloud.
pub(super) struct Run<'a> {
    pub(super) hooks: &'a dyn Hooks,
    messages: Mutex<Messages>,
    /// The providers that the current rule has created.
    made: Mutex<Vec<(Arc<dyn CloudProvider>, CancellationToken)>>,
    /// How many objects have an identity.
    pub(super) objects: AtomicUsize,
}

/// A record of the provider's error messages.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) seen: usize,
    /// Describes each message that contains a secret. Does not contain the secret.
    pub(super) leaks: Vec<String>,
}

impl<'a> Run<'a> {
    pub(super) fn new(hooks: &'a dyn Hooks) -> Self {
        Self { hooks, messages: Mutex::default(), made: Mutex::default(), objects: AtomicUsize::new(1) }
    }

    pub(super) fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock()
    }

    pub(super) fn provider_name(&self) -> String {
        self.hooks.provider().map_or_else(|_| "unknown".to_owned(), |provider| provider.name().to_owned())
    }

    /// Creates a provider without starting it.
    pub(super) fn make(&self) -> Checked<Working<'_>> {
        match self.hooks.provider() {
            Ok(provider) => {
                let stop = CancellationToken::new();
                self.made().push((provider.clone(), stop.clone()));
                Ok(Working { run: self, provider, _guard: stop.clone().drop_guard(), stop })
            }
            Err(error) => failed(format!("there is no provider: {}", error.report())),
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<(Arc<dyn CloudProvider>, CancellationToken)>> {
        self.made.lock()
    }

    /// Stops the providers of a rule and waits until they have ended. Another rule checks whether they do.
    pub(super) async fn clean_up(&self) {
        let made = std::mem::take(&mut *self.made());
        for (_, stop) in &made {
            stop.cancel();
        }
        for (provider, _) in made {
            let ended = AssertUnwindSafe(timeout(LOCAL_TIMEOUT, provider.ended())).catch_unwind();
            let _ = ended.await;
        }
    }

    /// Creates and starts a provider, and waits until it sees the nodes of the hooks.
    pub(super) async fn start(&self) -> Checked<(Working<'_>, Vec<NodeIdentity>)> {
        let working = self.make()?;
        working.start().await?;
        let nodes = self.hooks.nodes().await?;
        ensure(!nodes.is_empty(), || "the hook `nodes` gives none".to_owned())?;
        for node in &nodes {
            working.becomes(node, "is present", is_present, |_| false).await?;
        }
        Ok((working, nodes))
    }

    /// An instance that may be powered off: a new one, or else the last of `nodes`. The `bool` is true for a
    /// new one.
    pub(super) async fn to_power_off(&self, nodes: &[NodeIdentity]) -> Checked<(NodeIdentity, bool)> {
        match self.hooks.create().await {
            Ok(node) => Ok((node, true)),
            Err(HookError::NotOffered(_)) => match nodes.last() {
                Some(node) => Ok((node.clone(), false)),
                None => not_checked("an instance to power off"),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Records an error that the provider returned.
    pub(super) fn see(&self, error: &Error) -> Checked<()> {
        let mut messages = self.messages();
        messages.seen += 1;
        let texts = [error.report(), error.to_string(), format!("{error:?}")];
        for secret in self.hooks.secrets().unwrap_or_default() {
            if texts.iter().any(|text| tells(text, &secret)) {
                let kind = error.kind();
                messages.leaks.push(format!("the message of an error of kind {kind} holds a secret"));
            }
        }
        ensure(!texts[0].trim().is_empty(), || "an error without words".to_owned())
    }
}

/// Whether `text` contains half of `secret` or more.
pub(super) fn tells(text: &str, secret: &str) -> bool {
    let secret: Vec<char> = secret.chars().collect();
    let length = secret.len().div_ceil(2).max(4).min(secret.len());
    length > 0 && secret.windows(length).any(|part| text.contains(&part.iter().collect::<String>()))
}

/// A provider that is being checked. Dropping this stops it.
pub(super) struct Working<'a> {
    run: &'a Run<'a>,
    pub(super) provider: Arc<dyn CloudProvider>,
    pub(super) stop: CancellationToken,
    _guard: DropGuard,
}

impl Working<'_> {
    /// Starts the provider. Returns the result of `start`, an error included.
    pub(super) async fn try_start(&self) -> Checked<Result<(), Error>> {
        let starting = self.provider.start(self.run.hooks.context(self.stop.clone()));
        let started = within("start", LOCAL_TIMEOUT, starting).await?;
        started.as_ref().err().map_or(Ok(()), |error| self.run.see(error))?;
        Ok(started)
    }

    pub(super) async fn start(&self) -> Checked<()> {
        self.try_start().await?.or_else(|error| failed(format!("start fails: {}", error.report())))
    }

    /// Stops the provider and waits until it has ended.
    pub(super) async fn end(&self) -> Checked<()> {
        self.stop.cancel();
        within("ended", LOCAL_TIMEOUT, self.provider.ended()).await
    }

    pub(super) fn instances(&self) -> Checked<&dyn Instances> {
        self.provider
            .instances()
            .ok_or_else(|| Stop::NotChecked("instances, which the provider has not".to_owned()))
    }

    /// Looks up a batch, and checks what must be true of every batch.
    pub(super) async fn look_up(&self, nodes: &[&NodeIdentity]) -> Checked<Vec<InstanceLookup>> {
        let answers = within("lookup", CALL_TIMEOUT, self.instances()?.lookup(nodes)).await?;
        ensure(answers.len() == nodes.len(), || {
            format!("lookup gives {} answers for {} nodes", answers.len(), nodes.len())
        })?;
        for answer in &answers {
            match answer {
                InstanceLookup::Unknown(error) => self.run.see(error)?,
                InstanceLookup::Present(instance) => {
                    instance.incomplete.iter().try_for_each(|error| self.run.see(error))?;
                }
                InstanceLookup::Absent => {}
            }
        }
        Ok(answers)
    }

    pub(super) async fn look_up_one(&self, node: &NodeIdentity) -> Checked<InstanceLookup> {
        let answer = self.look_up(&[node]).await?.pop();
        answer.ok_or_else(|| Stop::Failed("lookup gives no answer".to_owned()))
    }

    /// The provider ID that a look-up of `node` returns.
    pub(super) async fn id_of(&self, node: &NodeIdentity) -> Checked<ProviderId> {
        match self.look_up_one(node).await? {
            InstanceLookup::Present(instance) => instance
                .provider_id
                .ok_or_else(|| Stop::Failed(format!("the instance of {} has no provider ID", called(node)))),
            other => failed(format!("{} is {}", called(node), described(&other))),
        }
    }

    /// Waits until a look-up gives the wanted answer. Fails if it takes too long, or if `is_wrong` is true of
    /// an answer in between.
    pub(super) async fn becomes(
        &self,
        node: &NodeIdentity,
        what: &str,
        is_wanted: impl Fn(&InstanceLookup) -> bool,
        is_wrong: impl Fn(&InstanceLookup) -> bool,
    ) -> Checked<()> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        loop {
            let answer = self.look_up_one(node).await?;
            if is_wanted(&answer) {
                return Ok(());
            }
            let described = || format!("{} is {} before it {what}", called(node), described(&answer));
            ensure(!is_wrong(&answer), described)?;
            ensure(began.elapsed() < patience, || format!("{}, for {} s", described(), patience.as_secs()))?;
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits for a call of the provider, but no longer than `limit`.
pub(super) async fn within<T>(what: &str, limit: Duration, call: impl Future<Output = T>) -> Checked<T> {
    match timeout(limit, call).await {
        Ok(output) => Ok(output),
        Err(_) => failed(format!("{what} does not return within {} s", limit.as_secs())),
    }
}

/// Lets a call take some steps, and drops it.
pub(super) async fn give_up<T>(call: impl Future<Output = T>, steps: usize) {
    let mut call = std::pin::pin!(call);
    for _ in 0..=steps {
        if poll!(&mut call).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) fn is_present(answer: &InstanceLookup) -> bool {
    matches!(answer, InstanceLookup::Present(_))
}

pub(super) fn is_absent(answer: &InstanceLookup) -> bool {
    matches!(answer, InstanceLookup::Absent)
}

/// Whether an answer is `Present` with an instance that is shut down (`off`), or not shut down.
pub(super) fn is_powered(off: bool) -> impl Fn(&InstanceLookup) -> bool {
    move |answer| matches!(answer, InstanceLookup::Present(instance) if instance.power_state.is_shutdown() == off)
}

/// The node as it is after its initialisation.
pub(super) fn with_id(node: &NodeIdentity, id: &ProviderId) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id.as_str().to_owned()), ..node.clone() }
}

/// Describes a node. Names and IDs are cut off, since they may be long.
pub(super) fn called(node: &NodeIdentity) -> String {
    let short = |text: &str| text.chars().take(60).collect::<String>();
    match &node.provider_id {
        Some(id) => format!("node {:?} with provider ID {:?}", short(&node.name), short(id)),
        None => format!("node {:?}", short(&node.name)),
    }
}

/// Describes an answer, with the error if it is `Unknown`.
pub(super) fn described(answer: &InstanceLookup) -> String {
    match answer {
        InstanceLookup::Present(instance) => {
            let id = instance.provider_id.as_ref().map_or("without a provider ID", ProviderId::as_str);
            format!("present ({}, {id})", instance.power_state)
        }
        InstanceLookup::Absent => "absent".to_owned(),
        InstanceLookup::Unknown(error) => format!("unknown ({}: {})", error.kind(), error.report()),
    }
}

//! The loop that follows the files of the configuration.

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use cloudprovider::{CloudProvider, Error, ErrorKind, InstanceLookup, StartContext};
use component::{
    files::{FileChanges, FilesRead},
    metrics::MetricSet as _,
    reload::{ReloadReporter, Source},
};
use controller_kit::{
    cloud::{Cloud, CloudMetrics, Started},
    nodes::{Node, NodeStore},
};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    CloudConfig,
    comparison::{Comparison, compare, compare_alone, needs_restart},
};

/// The label of reloads of `--cloud-config` and of the files that it names.
const SOURCE: Source = Source::OfProgram("cloud-config");

/// A version that does not answer as well as the one in force after this time is reported as refused. It is still tried
/// after that.
const REFUSED_AFTER: Duration = Duration::from_secs(60);

/// Answers that differ without being worse are accepted after this time. Until then the provider may still be collecting what
/// it knows, and Nodes must not lose what it does not know yet.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// A version may say that instances are gone of which the one in force cannot tell. It takes over when it has said so of the
/// same ones for this time. The deletion of their Nodes then waits for `--node-deletion-unseen-grace-period` as well.
const DOUBTED_FOR: Duration = Duration::from_secs(90);

/// How long one look-up may take. After that it counts as not answered.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The first pause between two comparisons. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two comparisons.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Follows the files of a [`CloudConfig`] for a [`Cloud`].
#[derive(Debug)]
pub struct Follower {
    config: CloudConfig,
    /// The files that the current provider was made from.
    in_force: FilesRead,
    cloud: Cloud,
    /// By which versions are compared. `None`: the provider has nothing to do with Nodes.
    nodes: Option<NodeStore>,
    /// What each version is started with, but for the token.
    context: StartContext,
    reporter: ReloadReporter,
    status: FollowerStatus,
}

/// The state of the files, for `/debug/state`. Clones share it.
#[derive(Clone, Debug)]
pub struct FollowerStatus(Arc<Mutex<Status>>);

#[derive(Debug)]
struct Status {
    files: Vec<String>,
    in_force_since: Timestamp,
    refused: Option<String>,
}

impl FollowerStatus {
    /// The files, since when their current version is in force, and why a newer version is refused.
    pub fn to_json(&self) -> Value {
        let status = self.0.lock();
        json!({
            "files": status.files,
            "inForceSince": status.in_force_since.to_string(),
            "refused": status.refused,
        })
    }
}

impl Follower {
    /// `in_force` holds the files that the provider behind `cloud` was made from, and `context` is what it was started with.
    /// Versions are compared by what they answer about `nodes`. Without Nodes they are asked about a machine that nobody has.
    pub fn new(
        (config, in_force): (CloudConfig, FilesRead),
        cloud: Cloud,
        nodes: Option<NodeStore>,
        context: StartContext,
        reporter: ReloadReporter,
    ) -> Self {
        let status = Status { files: names(&in_force), in_force_since: Timestamp::now(), refused: None };
        Self {
            config,
            in_force,
            cloud,
            nodes,
            context,
            reporter,
            status: FollowerStatus(Arc::new(Mutex::new(status))),
        }
    }

    /// A handle to the status, which can be read at any time.
    pub fn status(&self) -> FollowerStatus {
        self.status.clone()
    }

    /// Follows the files until `stop` is cancelled. A version that is being tried at that time is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let ends_with_us = stop.clone();
        stop.run_until_cancelled(self.follow(&ends_with_us)).await;
    }

    async fn follow(&mut self, stop: &CancellationToken) {
        let mut changes = FileChanges::since(&self.in_force);
        loop {
            changes.changed().await;
            // Versions may follow each other faster than one can be tried.
            loop {
                let read = FilesRead::new();
                let created = self.create(&read).await;
                changes = FileChanges::since(&read);
                if read.is_same_as(&self.in_force) {
                    // The version in force is back. The trial of another version has been dropped.
                    if self.is_refused() {
                        self.accept(&read);
                    }
                    break;
                }
                tokio::select! {
                    outcome = self.take_over(created, stop) => {
                        match outcome {
                            Ok(()) => {
                                self.accept(&read);
                                self.in_force = read;
                            }
                            Err(why) => self.refuse(&why),
                        }
                        break;
                    }
                    () = changes.changed() => {}
                }
            }
        }
    }

    async fn create(&self, read: &FilesRead) -> Result<Arc<dyn CloudProvider>, String> {
        let (config, read) = (self.config.clone(), read.clone());
        // A blocking task, since it reads files.
        match tokio::task::spawn_blocking(move || config.create(&read)).await {
            Ok(created) => created.map_err(|error| format!("{error:#}")),
            // The panic hook has logged the panic's message.
            Err(_) => Err("the cloud provider panicked while it read the configuration".to_owned()),
        }
    }

    /// Starts a new version and waits until it can take over.
    async fn take_over(
        &self,
        created: Result<Arc<dyn CloudProvider>, String>,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let provider = created?;
        let panicked = |_| "the cloud provider panicked; the log says more".to_owned();
        let old = self.cloud.provider();
        let needs_restart = std::panic::catch_unwind(AssertUnwindSafe(|| {
            needs_restart(&*old, &*provider, self.nodes.is_none())
        }));
        drop(old);
        if let Some(why) = needs_restart.map_err(panicked)? {
            return Err(why);
        }
        tracing::info!("a changed cloud config: starting it beside the one in force");
        let _trial = self.cloud.begin_trial();
        let began = Instant::now();
        let mut context = self.context.clone();
        context.stop = stop.child_token();
        let candidate = Started::start(provider, context, REFUSED_AFTER)
            .await
            .map_err(|error| format!("the cloud provider cannot start: {}", error.report()))?;
        // These metrics are not shown: they would mix the answers of this version with those of the one in force.
        let unregistered = || {
            CloudMetrics::unregistered()
                .map_err(|error| format!("the cloud provider cannot be tried: {error}"))
        };
        let metrics = unregistered()?;
        let candidate = self.cloud.candidate(candidate, metrics);
        let in_force = match &self.nodes {
            Some(_) => self.cloud.clone(),
            // Nobody else looks anything up, so the age of the last answer would mean nothing.
            None => self.cloud.counted_by(unregistered()?),
        };
        if let Some(nodes) = &self.nodes {
            nodes.synced().await;
        }
        let mut pause = FIRST_PAUSE;
        let mut different_since = None;
        let mut doubt = Doubt::default();
        let mut reported = Reported::default();
        loop {
            let comparison = self.compare(&in_force, &candidate).await;
            if !matches!(comparison, Comparison::Doubtful { .. }) {
                doubt = Doubt::default();
            }
            match comparison {
                Comparison::Same => break,
                Comparison::Different => {
                    if different_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED_AFTER {
                        break;
                    }
                    sleep(FIRST_PAUSE).await;
                    continue;
                }
                Comparison::Worse(why) => {
                    different_since = None;
                    if reported.is_due(Why::Worse, began.elapsed()) {
                        self.refuse(&format!("{why}; it takes over as soon as that is mended"));
                    }
                }
                Comparison::Doubtful { nodes, why } => {
                    different_since = None;
                    let held_for = doubt.held_for(nodes, Instant::now());
                    if held_for >= DOUBTED_FOR {
                        tracing::warn!(
                            "{why}; this has been so for {DOUBTED_FOR:?}, and the changed version takes over"
                        );
                        break;
                    }
                    if reported.is_due(Why::Doubtful, held_for) {
                        self.refuse(&format!(
                            "{why}; it takes over once that has been so for {DOUBTED_FOR:?}"
                        ));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.cloud.replace_with(&candidate);
        Ok(())
    }

    async fn compare(&self, in_force: &Cloud, candidate: &Cloud) -> Comparison {
        // Nodes of other clouds are not asked about.
        let is_asked = |node: &Arc<Node>| node.identity.provider_id.is_none() || self.cloud.owns(node);
        let all = self.nodes.as_ref().map(NodeStore::all).unwrap_or_default();
        let nodes: Vec<_> = all.into_iter().filter(is_asked).collect();
        if nodes.is_empty() {
            return compare_by_nobody(in_force, candidate).await;
        }
        let (old, new) = tokio::join!(ask(in_force, &nodes), ask(candidate, &nodes));
        match (old, new) {
            (Some(old), Some(new)) => match compare(&nodes, &old, &new) {
                // Nodes without instances show nothing of a version that cannot answer.
                Comparison::Same if !old.iter().any(|one| matches!(one, InstanceLookup::Present(_))) => {
                    compare_by_nobody(in_force, candidate).await
                }
                comparison => comparison,
            },
            (_, None) => {
                Comparison::Worse(format!("the cloud provider has not answered within {LOOKUP_TIMEOUT:?}"))
            }
            // There is nothing to compare with. It waits as long as a version with different answers does, at least.
            (None, Some(new)) => {
                let unknown = || Error::new(ErrorKind::Timeout, "no answer").into();
                match compare(&nodes, &nodes.iter().map(|_| unknown()).collect::<Vec<_>>(), &new) {
                    Comparison::Same => Comparison::Different,
                    other => other,
                }
            }
        }
    }

    fn is_refused(&self) -> bool {
        self.status.0.lock().refused.is_some()
    }

    fn accept(&self, read: &FilesRead) {
        let mut status = self.status.0.lock();
        *status = Status { files: names(read), in_force_since: Timestamp::now(), refused: None };
        drop(status);
        self.reporter.succeeded(SOURCE);
    }

    fn refuse(&self, why: &str) {
        self.status.0.lock().refused = Some(why.to_owned());
        self.reporter.failed(SOURCE, why);
    }
}

/// Compares two versions by what they say about a machine that nobody has.
async fn compare_by_nobody(in_force: &Cloud, candidate: &Cloud) -> Comparison {
    if !candidate.has_instances() {
        return Comparison::Same;
    }
    let nobody = [Arc::new(Node::of_nobody())];
    let (old, new) = tokio::join!(ask(in_force, &nobody), ask(candidate, &nobody));
    compare_alone(old.as_deref(), new.as_deref())
}

/// `None`: no answer in time.
async fn ask(cloud: &Cloud, nodes: &[Arc<Node>]) -> Option<Vec<InstanceLookup>> {
    tokio::time::timeout(LOOKUP_TIMEOUT, cloud.lookup_with_zones(nodes)).await.ok()
}

fn names(read: &FilesRead) -> Vec<String> {
    read.paths().iter().map(|path| path.display().to_string()).collect()
}

/// Why a version does not take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Worse,
    Doubtful,
}

/// What was last reported about a version that does not take over.
#[derive(Debug, Default)]
struct Reported(Option<Why>);

impl Reported {
    /// Whether to say why, when it has been so for this long: once waiting has taken long enough, or at once where something
    /// else was said before that is wrong by now.
    fn is_due(&mut self, why: Why, held_for: Duration) -> bool {
        let is_due = match self.0 {
            None => held_for >= REFUSED_AFTER,
            Some(before) => before != why,
        };
        if is_due {
            self.0 = Some(why);
        }
        is_due
    }
}

/// The instances that a version reports as gone, and since when it has reported no others.
#[derive(Debug, Default)]
struct Doubt(Option<(BTreeSet<String>, Instant)>);

impl Doubt {
    /// For how long that has been so, with the Nodes that are concerned `now`. The time starts again with a further Node.
    fn held_for(&mut self, nodes: BTreeSet<String>, now: Instant) -> Duration {
        let since = match &self.0 {
            Some((before, since)) if nodes.is_subset(before) => *since,
            _ => now,
        };
        self.0 = Some((nodes, since));
        now.duration_since(since)
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        Instance, PowerState, ProviderId, Registry,
        testing::{FakeCloud, Fault, Operation},
    };
    use sandbox::{Sandbox, kubelet};

    use component::reload::ReloadMetrics;
    use controller_kit::nodes::watch_nodes;

    use super::*;
    use crate::flags;

    /// A cloud with an instance for each Node.
    fn everything() -> FakeCloud {
        let fake = FakeCloud::named("every").without_changes();
        fake.own_with(|_| true);
        fake.answer_with(|_| Instance::new(ProviderId::new("every", "/1"), PowerState::Running).into());
        fake
    }

    /// A follower for a cluster of one Node, whose current provider uses the cloud `old`.
    async fn follower(old: &FakeCloud, metrics: &CloudMetrics, stop: &CancellationToken) -> Follower {
        let (sandbox, nodes) = (Sandbox::new(), NodeStore::new());
        let client = sandbox.client();
        kubelet::register(&client, &kubelet::node("n1", "n1")).await.expect("registered");
        tokio::spawn(watch_nodes(client, nodes.clone(), stop.clone()));
        nodes.synced().await;
        let old = Started::new(old.provider(), stop.child_token());
        let labels = [("example.com/rack".to_owned(), "a1".to_owned())].into();
        let cloud = Cloud::new(old, metrics.clone()).with_labels(labels);
        let flags = flags::parse(["ccm", "--cloud-provider=every"]).expect("a good command line");
        let config = CloudConfig::new(&flags, &Registry::new());
        let reporter = ReloadReporter::new(ReloadMetrics::unregistered().expect("metrics"), None);
        let context = StartContext::new(stop.child_token(), "c");
        Follower::new((config, FilesRead::new()), cloud, Some(nodes), context, reporter)
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_that_answers_the_same_takes_over_at_once() {
        let (metrics, stop) = (CloudMetrics::unregistered().expect("metrics"), CancellationToken::new());
        let follower = follower(&everything(), &metrics, &stop).await;
        let began = Instant::now();
        follower.take_over(Ok(everything().provider()), &stop).await.expect("it knows as much");
        assert_eq!(began.elapsed(), Duration::ZERO, "the labels of --node-labels are no difference");
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_candidate_answers_does_not_count_as_the_one_in_forces() {
        let (metrics, stop) = (CloudMetrics::unregistered().expect("metrics"), CancellationToken::new());
        let refused = everything();
        let error = Error::new(ErrorKind::Unauthenticated, "wrong password");
        refused.fail(Operation::Lookup, Fault::Error(error));
        let follower = follower(&refused, &metrics, &stop).await;
        let calls = || metrics.clone().of("every").calls("lookup", "ok").get();
        follower.take_over(Ok(everything().provider()), &stop).await.expect("it knows more");
        assert_eq!(calls(), 0, "what it answered while it was tried");
        let nodes = follower.nodes.as_ref().expect("it compares by Nodes").all();
        follower.cloud.lookup(&nodes).await;
        assert_eq!(calls(), 1, "what it answers in force");
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_node_has_an_instance_a_version_that_cannot_answer_does_not_take_over() {
        let (metrics, stop) = (CloudMetrics::unregistered().expect("metrics"), CancellationToken::new());
        let nothing = || FakeCloud::named("every").without_changes();
        let follower = follower(&nothing(), &metrics, &stop).await;
        let refused = nothing();
        refused
            .fail(Operation::Lookup, Fault::Error(Error::new(ErrorKind::Unauthenticated, "wrong password")));
        let mended_after = REFUSED_AFTER * 3;
        let mended = async {
            sleep(mended_after).await;
            let why = follower.status().to_json()["refused"].to_string();
            assert!(why.contains("wrong password"), "{why}");
            refused.mend();
        };
        let began = Instant::now();
        let (outcome, ()) = tokio::join!(follower.take_over(Ok(refused.provider()), &stop), mended);
        outcome.expect("it answers in the end");
        assert!(began.elapsed() >= mended_after, "it took over after {:?}", began.elapsed());
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_in_force_from_when_it_takes_over() {
        let (metrics, stop) = (CloudMetrics::unregistered().expect("metrics"), CancellationToken::new());
        let follower = follower(&everything(), &metrics, &stop).await;
        let before = follower.cloud.settled_since().expect("nothing is tried");
        let other = everything();
        other.answer_with(|_| Instance::new(ProviderId::new("every", "/2"), PowerState::Running).into());
        let while_tried = async {
            sleep(SETTLED_AFTER / 2).await;
            assert_eq!(follower.cloud.settled_since(), None, "it is tried");
        };
        let (outcome, ()) = tokio::join!(follower.take_over(Ok(other.provider()), &stop), while_tried);
        outcome.expect("it takes over");
        assert_eq!(follower.cloud.settled_since(), Some(before + SETTLED_AFTER));
        stop.cancel();
    }

    #[test]
    fn why_a_version_waits_is_told_once_and_again_when_it_is_something_else() {
        let (mut reported, early, late) = (Reported::default(), Duration::from_secs(59), REFUSED_AFTER);
        assert!(!reported.is_due(Why::Worse, early));
        assert!(!reported.is_due(Why::Doubtful, early));
        assert!(reported.is_due(Why::Worse, late));
        assert!(!reported.is_due(Why::Worse, late));
        assert!(reported.is_due(Why::Doubtful, Duration::ZERO), "the other one was said last");
        assert!(!reported.is_due(Why::Doubtful, late));
        assert!(reported.is_due(Why::Worse, late));
    }

    #[test]
    fn a_doubt_lasts_while_no_further_node_is_in_it() {
        let nodes = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (mut doubt, start, second) = (Doubt::default(), Instant::now(), Duration::from_secs(1));
        assert_eq!(doubt.held_for(nodes(&["a", "b"]), start), Duration::ZERO);
        assert_eq!(doubt.held_for(nodes(&["b"]), start + 5 * second), 5 * second);
        assert_eq!(doubt.held_for(nodes(&["b"]), start + 9 * second), 9 * second);
        assert_eq!(doubt.held_for(nodes(&["a", "b"]), start + 10 * second), Duration::ZERO);
    }
}

//! The one loop. Objects are reconciled in parallel, and never one of them twice at once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use component::{
    loop_tasks::LoopTasks,
    work_queue::{Lengths, WorkQueue},
};
use controller_kit::{
    cache::{Cache, CachedObject, Changes},
    writes::WriteError,
};
use futures::{
    StreamExt as _,
    future::ready,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    metrics::{LoopMeter, PassEnd},
    object::split_key,
};

/// How many objects are reconciled at the same time.
const MAX_PASSES: usize = 64;

/// The first pause after a failure, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The longest pause before a change of an object that fails is looked at. A shorter pause after its failure goes first.
const CHANGED_PAUSE: Duration = Duration::from_secs(1);

/// So many failures in a row may be the watch that is late.
const PASSING: u32 = 5;

/// Keys of objects that something happened to. It never ends.
pub type Source = BoxStream<'static, HashSet<String>>;

/// When an object is reconciled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// When something happens to it.
    WhenChanged,
    /// After this time, or before when something happens to it.
    After(Duration),
}

impl Then {
    /// The earlier one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::WhenChanged, then) | (then, Self::WhenChanged) => then,
        }
    }
}

/// Why a pass was not finished. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another program was faster. The watch shows it soon.
    #[error("it changed meanwhile")]
    Stale,
    /// The object is gone. The watch shows it soon.
    #[error("it is gone")]
    Gone,
    /// Something failed.
    #[error("{0}")]
    Failed(String),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stale(_) => Self::Stale,
            WriteError::Gone => Self::Gone,
            WriteError::Failed(why) => Self::Failed(why),
        }
    }
}

/// A pass that was not finished.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct FailedPass {
    /// Why.
    pub why: Failure,
    /// When the next one is needed at the latest, as for a status that waits to be written.
    pub then: Then,
}

impl From<Failure> for FailedPass {
    fn from(why: Failure) -> Self {
        Self { why, then: Then::WhenChanged }
    }
}

impl From<WriteError> for FailedPass {
    fn from(error: WriteError) -> Self {
        Failure::from(error).into()
    }
}

/// The failures of steps that do not depend on each other, so that each is tried.
#[derive(Debug, Default)]
pub struct Failures {
    first: Option<Failure>,
    others: usize,
}

impl Failures {
    /// Takes the result of a step.
    pub fn add(&mut self, step: Result<(), Failure>) {
        let Err(failure) = step else { return };
        match (&mut self.first, failure) {
            (first @ None, failure) => *first = Some(failure),
            // The others say what is wrong, and this one is over soon.
            (Some(first @ (Failure::Stale | Failure::Gone)), failure @ Failure::Failed(_)) => {
                *first = failure;
                self.others += 1;
            }
            _ => self.others += 1,
        }
    }

    /// The result of all steps.
    ///
    /// # Errors
    /// The first failure that has words, or else the first one.
    pub fn end(self) -> Result<(), Failure> {
        match self.first {
            None => Ok(()),
            Some(Failure::Failed(why)) if self.others > 0 => {
                Err(Failure::Failed(format!("{why} (and {} more)", self.others)))
            }
            Some(failure) => Err(failure),
        }
    }
}

/// A controller of the objects of one kind.
pub trait Controller: Send + Sync + 'static {
    /// The kind, for the log.
    const KIND: &'static str;

    /// One pass over the object with this key, which may be gone.
    fn reconcile(&self, key: &str) -> impl Future<Output = Result<Then, FailedPass>> + Send;
}

/// How far a loop is, for `/debug/state`. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LoopState(Arc<Mutex<Option<(Lengths, usize)>>>);

impl LoopState {
    fn set(&self, lengths: Lengths, failing: usize) {
        *self.0.lock() = Some((lengths, failing));
    }

    /// The lengths of the queue, and how many objects fail. Null before the loop runs.
    pub fn to_json(&self) -> Value {
        let known = *self.0.lock();
        known
            .map_or(Value::Null, |(lengths, failing)| json!({"queue": lengths.to_json(), "failing": failing}))
    }
}

/// The key of an object, how long the pass over it took, and its result unless it was given up.
type Ended = (String, Duration, Option<Result<Then, FailedPass>>);

/// What is remembered between passes.
struct Control<C> {
    controller: Arc<C>,
    queue: WorkQueue,
    /// Objects that something happened to during their pass.
    dirty: HashSet<String>,
    failures: HashMap<String, u32>,
    tasks: LoopTasks<Ended>,
    cut: CancellationToken,
    meter: LoopMeter,
}

/// Reconciles the objects that the sources name, until `stop` is cancelled. Passes that have begun are then finished, and given up
/// after some seconds. It ends by itself only after a panic.
pub async fn run<C: Controller>(
    controller: Arc<C>,
    sources: Vec<Source>,
    mut meter: LoopMeter,
    stop: CancellationToken,
    state: LoopState,
) {
    meter.most(MAX_PASSES);
    let mut control = Control {
        controller,
        queue: std::mem::take(&mut meter.queue).with_lanes(|key| split_key(key).0),
        dirty: HashSet::new(),
        failures: HashMap::new(),
        tasks: LoopTasks::new("the pass over an object"),
        cut: CancellationToken::new(),
        meter,
    };
    let mut sources = stream::select_all(sources);
    while !stop.is_cancelled() {
        control.start_passes();
        state.set(control.queue.lengths(), control.failures.len());
        control.meter.active(control.tasks.len());
        tokio::select! {
            () = stop.cancelled() => {}
            Some(keys) = sources.next() => control.add(keys),
            () = control.queue.wait_for_due() => {}
            done = control.tasks.next() => match done {
                Some((key, took, Some(result))) => {
                    let how = match result {
                        Ok(Then::WhenChanged) => PassEnd::Succeeded,
                        Ok(Then::After(_)) => PassEnd::ComesBack,
                        Err(_) => PassEnd::Failed,
                    };
                    control.meter.ended(took, how);
                    control.finish(&key, result);
                }
                Some((_, _, None)) => {}
                None => break,
            },
        }
    }
    let Control { mut tasks, cut, meter, .. } = control;
    tasks.end(&cut).await;
    meter.active(0);
}

impl<C: Controller> Control<C> {
    fn start_passes(&mut self) {
        // Each namespace leaves as much room as it takes, so that no tenant's hanging clusters hold up all.
        let has_place = |all: usize, of_namespace: usize| of_namespace < (MAX_PASSES - all).max(1);
        while self.tasks.len() < MAX_PASSES
            && let all = self.tasks.len()
            && let Some(key) = self.queue.take_next_of(|of_namespace| has_place(all, of_namespace))
        {
            let (controller, cut) = (Arc::clone(&self.controller), self.cut.clone());
            self.tasks.spawn(async move {
                let began = Instant::now();
                let result = cut.run_until_cancelled(controller.reconcile(&key)).await;
                (key, began.elapsed(), result)
            });
        }
    }

    fn add(&mut self, keys: HashSet<String>) {
        for key in keys {
            if self.queue.is_at_work(&key) {
                self.dirty.insert(key);
            } else if let Some(failures) = self.failures.get(&key) {
                // A user who changes it without end, or a pass that writes to it, causes no passes without a pause.
                self.queue.add_after(&key, pause_after(*failures).min(CHANGED_PAUSE));
            } else {
                self.queue.add(&key);
            }
        }
    }

    fn finish(&mut self, key: &str, result: Result<Then, FailedPass>) {
        self.queue.done(key);
        let is_dirty = self.dirty.remove(key);
        match result {
            Ok(then) => {
                self.failures.remove(key);
                match then {
                    _ if is_dirty => self.queue.add(key),
                    Then::WhenChanged => {}
                    Then::After(wait) => self.queue.add_after(key, wait),
                }
            }
            Err(FailedPass { why, then }) => {
                let failures = self.failures.entry(key.to_owned()).or_default();
                *failures = failures.saturating_add(1);
                let pause = pause_after(*failures);
                let pause = if is_dirty { pause.min(CHANGED_PAUSE) } else { pause };
                let pause = match then {
                    Then::WhenChanged => pause,
                    Then::After(wait) => pause.min(wait.max(FIRST_PAUSE)),
                };
                match why {
                    // A patch that the API server refuses for its content looks the same, and does not pass.
                    Failure::Stale | Failure::Gone if *failures > PASSING => {
                        tracing::warn!(object = key, kind = C::KIND, "{why}, again; next pass in {pause:?}");
                    }
                    Failure::Stale | Failure::Gone => {
                        tracing::debug!(object = key, kind = C::KIND, "{why}; looking again in {pause:?}");
                    }
                    Failure::Failed(why) => {
                        tracing::warn!(
                            object = key,
                            kind = C::KIND,
                            error = why,
                            "pass failed, next one in {pause:?}"
                        );
                    }
                }
                self.queue.retry_after(key, pause);
            }
        }
    }
}

/// Twice as long after each failure.
fn pause_after(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16)));
    doubled.min(LONGEST_PAUSE)
}

/// The keys of objects of a cache that changed, as `keys_of` translates them.
pub fn source(
    changes: Changes,
    keys_of: impl FnMut(HashSet<String>) -> HashSet<String> + Send + 'static,
) -> Source {
    stream::unfold(changes, |mut changes| async move {
        let keys = changes.next().await;
        Some((keys, changes))
    })
    .map(keys_of)
    .filter(|keys| ready(!keys.is_empty()))
    .boxed()
}

/// All keys of a cache after each `period`, or up to a tenth of it sooner, so that kinds and daemons do not keep in step. What no event
/// says, such as the installation of a definition, is found so. `period` is more than 0.
pub fn resync<O: CachedObject>(objects: Cache<O>, period: Duration) -> Source {
    let again = move |objects: Cache<O>| async move {
        sleep(period.mul_f64(1.0 - fastrand::f64() / 10.0)).await;
        let keys = objects.read().keys().cloned().collect();
        Some((keys, objects))
    };
    stream::unfold(objects, again).filter(|keys: &HashSet<_>| ready(!keys.is_empty())).boxed()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::engine::metrics::LoopMetrics;

    /// Says when each pass begins, and ends it when it may.
    struct Scripted {
        begins: mpsc::UnboundedSender<Instant>,
        goes_on: tokio::sync::Semaphore,
        fails: bool,
        then: Mutex<Then>,
    }

    impl Controller for Scripted {
        const KIND: &'static str = "Scripted";

        async fn reconcile(&self, _: &str) -> Result<Then, FailedPass> {
            self.begins.send(Instant::now()).expect("the test listens");
            self.goes_on.acquire().await.expect("it is open").forget();
            if !self.fails {
                return Ok(Then::WhenChanged);
            }
            Err(FailedPass { why: Failure::Failed("as ever".to_owned()), then: *self.then.lock() })
        }
    }

    struct Running {
        controller: Arc<Scripted>,
        begins: mpsc::UnboundedReceiver<Instant>,
        changes: mpsc::UnboundedSender<()>,
        metrics: LoopMetrics,
        _stop: tokio_util::sync::DropGuard,
    }

    fn running(fails: bool) -> Running {
        let (begins, heard) = mpsc::unbounded_channel();
        let goes_on = tokio::sync::Semaphore::new(0);
        let controller = Arc::new(Scripted { begins, goes_on, fails, then: Mutex::new(Then::WhenChanged) });
        let (changes, changed) = mpsc::unbounded_channel();
        let source = stream::unfold(changed, |mut changed| async move {
            changed.recv().await.map(|()| (HashSet::from(["n/x".to_owned()]), changed))
        });
        let stop = CancellationToken::new();
        let metrics = LoopMetrics::unregistered().expect("metrics");
        let meter = metrics.of(Scripted::KIND);
        let (stop_of_loop, state) = (stop.clone(), LoopState::default());
        tokio::spawn(run(Arc::clone(&controller), vec![source.boxed()], meter, stop_of_loop, state));
        Running { controller, begins: heard, changes, metrics, _stop: stop.drop_guard() }
    }

    impl Running {
        fn change(&self) {
            self.changes.send(()).expect("the loop listens");
        }

        /// How long after `since` the next pass begins.
        async fn next(&mut self, since: Instant) -> Duration {
            let began = self.begins.recv().await.expect("a pass");
            began.duration_since(since)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_an_object_that_fails_is_looked_at_after_a_second_and_not_at_once() {
        let mut running = running(true);
        running.change();
        let mut since = Instant::now();
        running.next(since).await;
        // It fails alone: the pauses double.
        for failures in 1..=12 {
            since = Instant::now();
            running.controller.goes_on.add_permits(1);
            assert_eq!(running.next(since).await, pause_after(failures));
        }
        // Something has its time before the pause is over.
        *running.controller.then.lock() = Then::After(Duration::from_secs(7));
        since = Instant::now();
        running.controller.goes_on.add_permits(1);
        assert_eq!(running.next(since).await, Duration::from_secs(7));
        *running.controller.then.lock() = Then::WhenChanged;
        // It changes during each pass.
        for _ in 0..3 {
            running.change();
            tokio::time::sleep(Duration::from_millis(1)).await;
            since = Instant::now();
            running.controller.goes_on.add_permits(1);
            assert_eq!(running.next(since).await, CHANGED_PAUSE);
        }
        // It changes between the passes.
        running.controller.goes_on.add_permits(1);
        tokio::time::sleep(Duration::from_secs(10)).await;
        since = Instant::now();
        for _ in 0..9 {
            running.change();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(running.next(since).await, CHANGED_PAUSE);
        let count = |result: &str| running.metrics.passes(&Scripted::KIND.to_lowercase(), result);
        // Twelve alone, one with its time, three that changed meanwhile, and one before the changes at the end.
        assert_eq!((count("error"), count("success"), count("requeue_after")), (17, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_an_object_that_does_not_fail_is_looked_at_at_once() {
        let mut running = running(false);
        running.controller.goes_on.add_permits(9);
        for _ in 0..3 {
            let since = Instant::now();
            running.change();
            assert_eq!(running.next(since).await, Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_come_again_after_the_period() {
        #[derive(Clone)]
        struct Named;
        impl CachedObject for Named {
            fn key(&self) -> std::borrow::Cow<'_, str> {
                "n/x".into()
            }
            fn resource_version(&self) -> &'static str {
                ""
            }
            fn set_resource_version(&mut self, _: &str) {}
            fn same_content(&self, _: &Self) -> bool {
                true
            }
        }
        let (objects, period) = (Cache::new(), Duration::from_secs(600));
        let mut again = resync(objects.clone(), period);
        objects.apply(Named);
        for _ in 0..3 {
            let began = Instant::now();
            assert_eq!(again.next().await, Some(HashSet::from(["n/x".to_owned()])));
            let after = began.elapsed();
            assert!(after <= period && after > period.mul_f64(0.89), "{after:?}");
        }
    }

    #[test]
    fn the_failure_that_has_words_is_kept() {
        let of = |all: Vec<Failure>| {
            let mut failures = Failures::default();
            failures.add(Ok(()));
            for one in all {
                failures.add(Err(one));
            }
            failures.end().err().map(|failure| failure.to_string())
        };
        let failed = |words: &str| Failure::Failed(words.to_owned());
        assert_eq!(of(Vec::new()), None);
        assert_eq!(of(vec![failed("a")]).as_deref(), Some("a"));
        assert_eq!(of(vec![Failure::Stale, failed("a"), failed("b")]).as_deref(), Some("a (and 2 more)"));
        assert_eq!(of(vec![Failure::Stale, Failure::Gone]).as_deref(), Some("it changed meanwhile"));
    }
}

//! Upstream's `workqueue_*`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

use crate::metrics::{MetricSet, Register};

/// client-go's `ExponentialBuckets(10e-9, 10, 10)`. The rounding errors are kept, since they are in the
/// labels that dashboards use.
fn buckets() -> Vec<f64> {
    std::iter::successors(Some(10e-9_f64), |bound| Some(bound * 10.0)).take(10).collect()
}

/// The metrics of all queues.
#[derive(Clone, Debug)]
pub struct WorkQueueMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    retries: IntCounterVec,
    at_work: AtWork,
}

impl MetricSet for WorkQueueMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let by_name = ["name"];
        let at_work = AtWork::new()?;
        register.add("gauge", &at_work)?;
        Ok(Self {
            depth: register.gauges("workqueue_depth", "[BETA] Current depth of workqueue", &by_name)?,
            adds: register.counters(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
                &by_name,
            )?,
            queue_duration: register.histograms(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
                &by_name,
                &buckets(),
            )?,
            work_duration: register.histograms(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
                &by_name,
                &buckets(),
            )?,
            retries: register.counters(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
                &by_name,
            )?,
            at_work,
        })
    }
}

impl WorkQueueMetrics {
    /// The meter of the queue called `name`. The node controller's queue is called `Nodes`.
    pub fn named(&self, name: &str) -> WorkQueueMeter {
        let since = Since::default();
        self.at_work.lock().insert(name.to_owned(), since.clone());
        WorkQueueMeter {
            depth: self.depth.with_label_values(&[name]),
            adds: self.adds.with_label_values(&[name]),
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            added: HashMap::new(),
            at_work: since,
        }
    }
}

/// Since when each item of one queue has been at work.
type Since = Arc<Mutex<HashMap<String, Instant>>>;

/// Counts what happens in one queue.
#[derive(Debug)]
pub struct WorkQueueMeter {
    depth: IntGauge,
    adds: IntCounter,
    queue_duration: Histogram,
    work_duration: Histogram,
    retries: IntCounter,
    added: HashMap<String, Instant>,
    at_work: Since,
}

impl WorkQueueMeter {
    /// An item can be taken now.
    pub fn added(&mut self, item: &str) {
        self.adds.inc();
        self.depth.inc();
        self.added.entry(item.to_owned()).or_insert_with(Instant::now);
    }

    /// An item was removed without being worked on.
    pub fn removed(&mut self, item: &str) {
        self.depth.dec();
        self.added.remove(item);
    }

    /// Work on an item began.
    pub fn taken(&mut self, item: &str) {
        self.depth.dec();
        if let Some(added) = self.added.remove(item) {
            self.queue_duration.observe(added.elapsed().as_secs_f64());
        }
        self.at_work.lock().insert(item.to_owned(), Instant::now());
    }

    /// Work on an item ended.
    pub fn done(&self, item: &str) {
        if let Some(begun) = self.at_work.lock().remove(item) {
            self.work_duration.observe(begun.elapsed().as_secs_f64());
        }
    }

    /// An item was added again because the work on it failed.
    pub fn retried(&self) {
        self.retries.inc();
    }
}

impl Drop for WorkQueueMeter {
    fn drop(&mut self) {
        self.depth.set(0);
        self.at_work.lock().clear();
    }
}

/// How long the present work has been going on at the time of the scrape.
#[derive(Clone, Debug)]
struct AtWork {
    queues: Arc<Mutex<BTreeMap<String, Since>>>,
    unfinished: GaugeVec,
    longest: GaugeVec,
}

impl AtWork {
    fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| GaugeVec::new(Opts::new(name, help), &["name"]);
        Ok(Self {
            queues: Arc::default(),
            unfinished: gauge(
                "workqueue_unfinished_work_seconds",
                "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
            )?,
            longest: gauge(
                "workqueue_longest_running_processor_seconds",
                "[BETA] How many seconds has the longest running processor for workqueue been running.",
            )?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Since>> {
        self.queues.lock()
    }
}

impl Collector for AtWork {
    fn desc(&self) -> Vec<&Desc> {
        self.unfinished.desc().into_iter().chain(self.longest.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (name, since) in self.lock().iter() {
            let ages: Vec<f64> = since.lock().values().map(|begun| begun.elapsed().as_secs_f64()).collect();
            self.unfinished.with_label_values(&[name]).set(ages.iter().fold(0.0, |sum, age| sum + age));
            self.longest.with_label_values(&[name]).set(ages.into_iter().fold(0.0, f64::max));
        }
        self.unfinished.collect().into_iter().chain(self.longest.collect()).collect()
    }
}

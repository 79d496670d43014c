//! What the loops do, under the names of controller-runtime, which dashboards of Cluster API's managers show.

use std::time::Duration;

use component::{
    metrics::{MetricSet, Register},
    work_queue::{WorkQueue, WorkQueueMetrics},
};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// The upper bounds of controller-runtime's buckets, in seconds.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The passes of all controllers.
#[derive(Clone, Debug)]
pub struct PassMetrics {
    total: IntCounterVec,
    errors: IntCounterVec,
    time: HistogramVec,
    most: IntGaugeVec,
    active: IntGaugeVec,
}

impl MetricSet for PassMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let by_controller = ["controller"];
        Ok(Self {
            total: register.counters(
                "controller_runtime_reconcile_total",
                "Total number of reconciliations per controller",
                &["controller", "result"],
            )?,
            errors: register.counters(
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller",
                &by_controller,
            )?,
            time: register.histograms(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                &by_controller,
                &BUCKETS,
            )?,
            most: register.gauges(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                &by_controller,
            )?,
            active: register.gauges(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                &by_controller,
            )?,
        })
    }
}

/// The passes and the queues of all controllers.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    /// Of the passes.
    pub passes: PassMetrics,
    /// Of the queues.
    pub queues: WorkQueueMetrics,
}

impl LoopMetrics {
    /// Metrics that nobody reads.
    ///
    /// # Errors
    /// Never: the names are good.
    pub fn unregistered() -> prometheus::Result<Self> {
        Ok(Self { passes: PassMetrics::unregistered()?, queues: WorkQueueMetrics::unregistered()? })
    }

    /// How many passes of the controller of this name ended so.
    #[cfg(test)]
    pub(super) fn passes(&self, name: &str, result: &str) -> u64 {
        self.passes.total.with_label_values(&[name, result]).get()
    }

    /// Those of the controller of a kind. Its name is that of the Go controller: the kind in lower case.
    pub fn of(&self, kind: &str) -> LoopMeter {
        let name = kind.to_ascii_lowercase();
        let label = [name.as_str()];
        let PassMetrics { total, errors, time, most, active } = &self.passes;
        let result = |result: &str| total.with_label_values(&[&name, result]);
        LoopMeter {
            succeeded: result("success"),
            again: result("requeue_after"),
            failed: result("error"),
            errors: errors.with_label_values(&label),
            time: time.with_label_values(&label),
            most: most.with_label_values(&label),
            active: active.with_label_values(&label),
            // The queue of a provider's machines has the name of their kind.
            queue: WorkQueue::measured(self.queues.named(&format!("lifecycle-{name}"))),
        }
    }
}

/// How a pass ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum PassEnd {
    /// The next one is when something changes.
    Succeeded,
    /// The next one is after some time at the latest.
    ComesBack,
    /// The next one is after a pause.
    Failed,
}

/// The metrics of one controller, and its queue.
#[derive(Debug)]
pub struct LoopMeter {
    succeeded: IntCounter,
    again: IntCounter,
    failed: IntCounter,
    errors: IntCounter,
    time: Histogram,
    most: IntGauge,
    active: IntGauge,
    pub(super) queue: WorkQueue,
}

impl LoopMeter {
    /// So many passes may be under way.
    pub(super) fn most(&self, passes: usize) {
        self.most.set(i64::try_from(passes).unwrap_or(i64::MAX));
    }

    /// So many passes are under way.
    pub(super) fn active(&self, passes: usize) {
        self.active.set(i64::try_from(passes).unwrap_or(i64::MAX));
    }

    /// A pass ended so.
    pub(super) fn ended(&self, took: Duration, how: PassEnd) {
        self.time.observe(took.as_secs_f64());
        match how {
            PassEnd::Succeeded => self.succeeded.inc(),
            PassEnd::ComesBack => self.again.inc(),
            PassEnd::Failed => {
                self.failed.inc();
                self.errors.inc();
            }
        }
    }
}

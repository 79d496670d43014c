//! Metrics of the calls of the provider.

use std::{collections::BTreeMap, sync::Arc};

use component::metrics::{MetricSet, Register};
use parking_lot::{Mutex, MutexGuard};
use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

/// In seconds. A look-up in an inventory takes microseconds. The longest are the deadlines: of a look-up, and of a change of a
/// load balancer, which takes minutes in some clouds.
const CALL_BUCKETS: [f64; 10] = [0.000_1, 0.001, 0.01, 0.1, 0.5, 2.0, 10.0, 60.0, 180.0, 600.0];

/// In nodes.
const BATCH_BUCKETS: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

/// Calls of the providers.
#[derive(Clone, Debug)]
pub struct CloudMetrics {
    calls: IntCounterVec,
    call_duration: HistogramVec,
    batch: HistogramVec,
    inventory_age: InventoryAge,
}

/// Calls of one provider.
#[derive(Clone, Debug)]
pub struct ProviderMetrics {
    provider: Arc<str>,
    all: CloudMetrics,
}

impl CloudMetrics {
    /// Those of the provider with this name.
    pub fn of(self, provider: &str) -> ProviderMetrics {
        ProviderMetrics { provider: provider.into(), all: self }
    }
}

impl ProviderMetrics {
    /// Calls with this result.
    pub fn calls(&self, operation: &str, result: &str) -> IntCounter {
        self.all.calls.with_label_values(&[&*self.provider, operation, result])
    }

    /// Seconds that a call takes.
    pub(super) fn call_duration(&self, operation: &str) -> Histogram {
        self.all.call_duration.with_label_values(&[&*self.provider, operation])
    }

    /// Nodes in one call.
    pub(super) fn batch(&self, operation: &str) -> Histogram {
        self.all.batch.with_label_values(&[&*self.provider, operation])
    }

    /// The provider is asked. Until it answers for the first time, the age of its answers counts from the first question.
    pub(super) fn asked(&self, operation: &'static str) {
        let mut good_answers = self.all.inventory_age.lock();
        good_answers.entry((self.provider.clone(), operation)).or_insert_with(Instant::now);
    }

    /// Notes that the provider answered for every node without an error.
    pub(super) fn answered(&self, operation: &'static str) {
        self.all.inventory_age.lock().insert((self.provider.clone(), operation), Instant::now());
    }
}

impl MetricSet for CloudMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let inventory_age = InventoryAge::new(&register.own("inventory_age_seconds"))?;
        register.add("gauge", &inventory_age)?;
        let calls = register.own("provider_calls_total");
        let duration = register.own("provider_call_duration_seconds");
        let batch = register.own("provider_batch_nodes");
        Ok(Self {
            calls: register.counters(
                &calls,
                "Calls of the cloud provider.",
                &["provider", "operation", "result"],
            )?,
            call_duration: register.histograms(
                &duration,
                "Duration of calls of the cloud provider.",
                &["provider", "operation"],
                &CALL_BUCKETS,
            )?,
            batch: register.histograms(
                &batch,
                "Nodes that one call of the cloud provider asks about.",
                &["provider", "operation"],
                &BATCH_BUCKETS,
            )?,
            inventory_age,
        })
    }
}

/// When the last good answer came, by provider and operation. Before the first good answer: when the provider was first
/// asked.
type GoodAnswers = BTreeMap<(Arc<str>, &'static str), Instant>;

/// The age of the last good answer, computed when the metrics are collected.
#[derive(Clone, Debug)]
struct InventoryAge {
    good_answers: Arc<Mutex<GoodAnswers>>,
    age: GaugeVec,
}

impl InventoryAge {
    fn new(name: &str) -> prometheus::Result<Self> {
        let age = Opts::new(
            name,
            "Seconds since the cloud provider last knew about every node that it was asked about, or was first asked.",
        );
        Ok(Self { good_answers: Arc::default(), age: GaugeVec::new(age, &["provider", "operation"])? })
    }

    fn lock(&self) -> MutexGuard<'_, GoodAnswers> {
        self.good_answers.lock()
    }
}

impl Collector for InventoryAge {
    fn desc(&self) -> Vec<&Desc> {
        self.age.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for ((provider, operation), at) in self.lock().iter() {
            self.age.with_label_values(&[&**provider, operation]).set(at.elapsed().as_secs_f64());
        }
        self.age.collect()
    }
}

//! Metrics of the calls of the provider.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use component::metrics::{MetricSet, Register};
use prometheus::{
    GaugeVec, HistogramVec, IntCounterVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

/// In seconds. A look-up in an inventory takes microseconds. The longest are the deadlines: of a look-up, and of a change of a
/// load balancer, which takes minutes in some clouds.
const CALL_BUCKETS: [f64; 10] = [0.000_1, 0.001, 0.01, 0.1, 0.5, 2.0, 10.0, 60.0, 180.0, 600.0];

/// In nodes.
const BATCH_BUCKETS: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

/// Calls of the provider.
#[derive(Clone, Debug)]
pub struct CloudMetrics {
    /// Calls by `operation` and `result`.
    pub provider_calls: IntCounterVec,
    /// Seconds that a call takes, by `operation`.
    pub provider_call_duration: HistogramVec,
    /// Nodes in one call, by `operation`.
    pub provider_batch: HistogramVec,
    /// How old the provider's last good answer is.
    pub inventory_age: InventoryAge,
}

impl MetricSet for CloudMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let inventory_age = InventoryAge::new(&register.own("inventory_age_seconds"))?;
        register.add("gauge", &inventory_age)?;
        let calls = register.own("provider_calls_total");
        let duration = register.own("provider_call_duration_seconds");
        let batch = register.own("provider_batch_nodes");
        Ok(Self {
            provider_calls: register.counters(
                &calls,
                "Calls of the cloud provider.",
                &["operation", "result"],
            )?,
            provider_call_duration: register.histograms(
                &duration,
                "Duration of calls of the cloud provider.",
                &["operation"],
                &CALL_BUCKETS,
            )?,
            provider_batch: register.histograms(
                &batch,
                "Nodes that one call of the cloud provider asks about.",
                &["operation"],
                &BATCH_BUCKETS,
            )?,
            inventory_age,
        })
    }
}

/// The age of the last good answer, computed when the metrics are collected.
#[derive(Clone, Debug)]
pub struct InventoryAge {
    /// When the last good answer came, by operation. Before the first good answer: when the provider was
    /// first asked.
    good_answers: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
    age: GaugeVec,
}

impl InventoryAge {
    fn new(name: &str) -> prometheus::Result<Self> {
        let age = Opts::new(
            name,
            "Seconds since the cloud provider last knew about every node that it was asked about, or was first asked.",
        );
        Ok(Self { good_answers: Arc::default(), age: GaugeVec::new(age, &["operation"])? })
    }

    /// The provider is asked. Until it answers for the first time, the age counts from the first question.
    pub(super) fn asked(&self, operation: &'static str) {
        let mut good_answers = self.good_answers.lock().unwrap_or_else(PoisonError::into_inner);
        good_answers.entry(operation).or_insert_with(Instant::now);
    }

    /// Notes that the provider answered for every node without an error.
    pub(super) fn answered(&self, operation: &'static str) {
        self.good_answers.lock().unwrap_or_else(PoisonError::into_inner).insert(operation, Instant::now());
    }
}

impl Collector for InventoryAge {
    fn desc(&self) -> Vec<&Desc> {
        self.age.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (operation, at) in self.good_answers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.age.with_label_values(&[operation]).set(at.elapsed().as_secs_f64());
        }
        self.age.collect()
    }
}

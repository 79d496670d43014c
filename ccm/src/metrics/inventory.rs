//! How old the provider's last good answer is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus::{
    GaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

/// The age as of the moment of asking.
#[derive(Clone, Debug)]
pub struct InventoryAge {
    /// The last good answer; before the first one, when that was asked for.
    good_answers: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
    age: GaugeVec,
}

impl InventoryAge {
    pub(super) fn new() -> prometheus::Result<Self> {
        let age = Opts::new(
            "cloud_controller_manager_inventory_age_seconds",
            "Seconds since the cloud provider last knew about every node that it was asked about, or was first asked.",
        );
        Ok(Self { good_answers: Arc::default(), age: GaugeVec::new(age, &["operation"])? })
    }

    /// The provider is asked: where it has never answered, its age is counted from the first question.
    pub(crate) fn asked(&self, operation: &'static str) {
        let mut good_answers = self.good_answers.lock().unwrap_or_else(PoisonError::into_inner);
        good_answers.entry(operation).or_insert_with(Instant::now);
    }

    /// The provider answered without a fault.
    pub(crate) fn answered(&self, operation: &'static str) {
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

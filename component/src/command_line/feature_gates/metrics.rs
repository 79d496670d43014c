//! Upstream's metric of the feature gates.

use prometheus::IntGaugeVec;

use super::FeatureGates;
use crate::metrics::{MetricSet, Register};

/// Which gates are on.
#[derive(Clone, Debug)]
pub struct FeatureMetrics {
    /// 1 for a gate that is on, 0 for one that is off.
    features: IntGaugeVec,
}

impl MetricSet for FeatureMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            features: register.gauges(
                "kubernetes_feature_enabled",
                "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
                &["name", "stage"],
            )?,
        })
    }
}

impl FeatureMetrics {
    /// Sets the metric for every gate.
    pub fn show(&self, gates: &FeatureGates) {
        for gate in gates.all() {
            self.features.with_label_values(&[gate.name, gate.stage.as_str()]).set(gate.enabled.into());
        }
    }
}

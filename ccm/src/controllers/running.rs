//! A metric of the running controllers.

use component::metrics::{MetricSet, Register};
use prometheus::{IntGauge, IntGaugeVec};

/// Upstream's metric of running controllers.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    /// 1 while the controller runs. The label is upstream's old name of the controller.
    running: IntGaugeVec,
}

impl MetricSet for ControllerMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            running: register.gauges(
                "running_managed_controllers",
                "[BETA] Indicates where instances of a controller are currently running",
                &["name", "manager"],
            )?,
        })
    }
}

impl ControllerMetrics {
    /// Reports the controller as running until the returned value is dropped. `name` is upstream's name from
    /// before 1.28, such as `cloud-node`.
    pub fn runs(&self, name: &str) -> ControllerRuns {
        let gauge = self.running.with_label_values(&[name, "cloud-controller-manager"]);
        gauge.set(1);
        ControllerRuns(gauge)
    }
}

/// Reports a controller as running until dropped.
#[derive(Debug)]
pub struct ControllerRuns(IntGauge);

impl Drop for ControllerRuns {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

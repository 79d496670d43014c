//! Metrics of the machine controller. How long steps take and how they end is among those of the provider's calls.

use component::metrics::{MetricSet, Register};
use prometheus::{IntCounterVec, IntGaugeVec};

/// What the machine controller does.
#[derive(Clone, Debug)]
pub struct MachineMetrics {
    /// Objects, by `kind` and `phase`.
    pub objects: IntGaugeVec,
    /// Steps, by `kind`, `step` and `result`.
    pub steps: IntCounterVec,
    /// Writes of objects, by `kind` and by what is written.
    pub writes: IntCounterVec,
}

impl MetricSet for MachineMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let objects = register.own("machine_objects");
        let steps = register.own("machine_steps_total");
        let writes = register.own("machine_writes_total");
        Ok(Self {
            objects: register.gauges(
                &objects,
                "Machines and clusters of the cloud provider's kinds, by how far they are.",
                &["kind", "phase"],
            )?,
            steps: register.counters(
                &steps,
                "Steps of machines, clusters and templates.",
                &["kind", "step", "result"],
            )?,
            writes: register.counters(
                &writes,
                "Writes of objects of the cloud provider's kinds.",
                &["kind", "what"],
            )?,
        })
    }
}

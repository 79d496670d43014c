//! Metrics of the machine controllers. How long steps take and how they end is among those of the provider's
//! calls.

use std::sync::Arc;

use component::metrics::{MetricSet, Register};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// What all machine controllers do.
#[derive(Clone, Debug)]
pub struct MachineMetrics {
    objects: IntGaugeVec,
    steps: IntCounterVec,
    writes: IntCounterVec,
}

/// What the machine controller of one provider does.
#[derive(Clone, Debug)]
pub struct ControllerMachineMetrics {
    provider: Arc<str>,
    all: MachineMetrics,
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
                &["provider", "kind", "phase"],
            )?,
            steps: register.counters(
                &steps,
                "Steps of machines, clusters and templates.",
                &["provider", "kind", "step", "result"],
            )?,
            writes: register.counters(
                &writes,
                "Writes of objects of the cloud provider's kinds.",
                &["provider", "kind", "what"],
            )?,
        })
    }
}

impl MachineMetrics {
    /// Those of the provider with this name.
    pub fn of(self, provider: &str) -> ControllerMachineMetrics {
        ControllerMachineMetrics { provider: provider.into(), all: self }
    }
}

impl ControllerMachineMetrics {
    /// Objects of this kind that are that far.
    pub fn objects(&self, kind: &str, phase: &str) -> IntGauge {
        self.all.objects.with_label_values(&[&*self.provider, kind, phase])
    }

    /// Steps of objects of this kind with this result.
    pub fn steps(&self, kind: &str, step: &str, result: &str) -> IntCounter {
        self.all.steps.with_label_values(&[&*self.provider, kind, step, result])
    }

    /// Writes of objects of this kind.
    pub fn writes(&self, kind: &str, what: &str) -> IntCounter {
        self.all.writes.with_label_values(&[&*self.provider, kind, what])
    }
}

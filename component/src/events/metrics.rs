//! The metrics of events.

use prometheus::IntCounterVec;

use crate::metrics::{MetricSet, Register};

/// Events that do not reach the API server.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    /// Events that were dropped, by `reason`.
    pub events_dropped: IntCounterVec,
}

impl MetricSet for EventMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let name = register.own("events_dropped_total");
        Ok(Self { events_dropped: register.counters(&name, "Events that were not written.", &["reason"])? })
    }
}

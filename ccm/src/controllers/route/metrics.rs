//! Metrics of the route controller.

use component::metrics::{MetricSet, Register};
use prometheus::{IntCounterVec, IntGaugeVec};

/// How often the routes were compared, and how many there should be.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    /// Comparisons by `outcome` and `trigger`.
    syncs: IntCounterVec,
    /// Routes by `state`.
    routes: IntGaugeVec,
}

/// Why the routes are compared. The words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The period, a retry, or another provider.
    Periodic,
    /// A Node came, went, or changed its pod CIDRs or addresses.
    NodeChange,
}

impl Trigger {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::NodeChange => "node_change",
        }
    }
}

/// How a comparison ended. The words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A route was made or deleted.
    Changed,
    /// Nothing was made or deleted, though it may have been tried.
    Noop,
    /// The cloud did not list its routes.
    Error,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Noop => "noop",
            Self::Error => "error",
        }
    }
}

impl MetricSet for RouteMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let routes = register.own("routes");
        Ok(Self {
            syncs: register.counters(
                "route_controller_route_sync_total",
                "[ALPHA] A metric counting the number of route reconciles with the cloud provider, labeled by the trigger (periodic or node_change) and the outcome (error if the reconcile failed, changed if at least one route was created or deleted, otherwise noop).",
                &["outcome", "trigger"],
            )?,
            routes: register.gauges(
                &routes,
                "Routes that nodes should have (wanted), and those of them that are missing (missing).",
                &["state"],
            )?,
        })
    }
}

impl RouteMetrics {
    /// Records the end of a comparison.
    pub(super) fn synced(&self, outcome: Outcome, trigger: Trigger) {
        self.syncs.with_label_values(&[outcome.as_str(), trigger.as_str()]).inc();
    }

    /// Records how many routes Nodes should have, and how many of them are missing.
    pub(super) fn count(&self, wanted: usize, missing: usize) {
        for (state, count) in [("wanted", wanted), ("missing", missing)] {
            self.routes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

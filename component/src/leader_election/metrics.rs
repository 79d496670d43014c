//! Upstream's metrics of the election.

use prometheus::{IntCounterVec, IntGaugeVec};

use crate::metrics::{MetricSet, Register};

/// Metrics of the elections of this process.
#[derive(Clone, Debug)]
pub struct ElectionMetrics {
    /// Upstream's: 1 while this process leads on the Lease `name`, 0 otherwise.
    pub leader_election_master_status: IntGaugeVec,
    /// Upstream's: renewals of the Lease `name` that had to read it first.
    pub leader_election_slowpath: IntCounterVec,
}

impl MetricSet for ElectionMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            leader_election_master_status: register.gauges(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            leader_election_slowpath: register.counters(
                "leader_election_slowpath_total",
                "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
        })
    }
}

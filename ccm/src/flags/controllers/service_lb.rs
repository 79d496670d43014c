//! The service controller, which makes load balancers.

use std::time::Duration;

use clap::Args;
use component::command_line::{
    notes::{Note, differs, ours},
    values::{duration, int32},
};
use serde_json::{Value, json};

/// How much of its work is done at the same time, and how often the cloud is asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service-lb-controller flags")]
pub struct ServiceLbControllerFlags {
    /// How many Services are synced at the same time. One Service never is twice.
    #[arg(long, default_value = "64", value_name = "N", value_parser = int32)]
    pub concurrent_service_syncs: i32,

    /// How often the cloud is asked whether a load balancer to which nothing happens is still there and has the same
    /// addresses; if not, it is made again. With 0 the cloud is not asked.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub service_verification_period: Duration,
}

pub(super) const NOTES: &[Note] = &[
    differs("concurrent-service-syncs", "Parallel by default; upstream syncs one Service at a time"),
    ours("service-verification-period", "Upstream never notices that a load balancer is gone"),
];

impl ServiceLbControllerFlags {
    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        ("ServiceController", json!({"ConcurrentServiceSyncs": self.concurrent_service_syncs}))
    }

    /// Services that are synced at the same time.
    pub fn syncs(&self) -> usize {
        usize::try_from(self.concurrent_service_syncs).unwrap_or(1).max(1)
    }

    /// What is to be said at the start.
    pub(in crate::flags) fn warning(&self) -> Option<String> {
        let number = self.concurrent_service_syncs;
        (number < 1).then(|| {
            format!(
                "--concurrent-service-syncs={number}: one Service is synced at a time, where upstream syncs none; \
                 --controllers=*,-service-lb-controller switches the controller off"
            )
        })
    }

    /// How often a load balancer is verified; `None`: never.
    pub fn verification_period(&self) -> Option<Duration> {
        Some(self.service_verification_period).filter(|period| !period.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_syncs_at_all_are_one_and_a_warning() {
        for (number, syncs, warns) in [(0, 1, true), (-1, 1, true), (1, 1, false), (64, 64, false)] {
            let flags = ServiceLbControllerFlags {
                concurrent_service_syncs: number,
                service_verification_period: Duration::ZERO,
            };
            assert_eq!((flags.syncs(), flags.warning().is_some()), (syncs, warns), "{number}");
        }
    }
}

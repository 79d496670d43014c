//! The service controller, which is for load balancers.

use clap::Args;
use component::command_line::{
    notes::{Note, not_yet},
    values::int32,
};
use serde_json::{Value, json};

/// How much of its work is done at the same time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service-lb-controller flags")]
pub struct ServiceLbControllerFlags {
    /// How many Services are synced at the same time.
    #[arg(long, default_value = "1", value_name = "N", value_parser = int32)]
    pub concurrent_service_syncs: i32,
}

pub(super) const NOTES: &[Note] =
    &[not_yet("concurrent-service-syncs", "There is no service controller yet")];

impl ServiceLbControllerFlags {
    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        ("ServiceController", json!({"ConcurrentServiceSyncs": self.concurrent_service_syncs}))
    }
}

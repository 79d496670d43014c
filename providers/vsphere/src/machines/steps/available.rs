//! The condition that says whether the vCenter of an object is followed.

use cloudprovider::{
    Result,
    machines::{Condition, ConditionStatus},
};

/// Its type, on clusters, zones and virtual machines.
pub(super) const VCENTER_AVAILABLE: &str = "VCenterAvailable";

/// The condition of an object for whose vCenter a look has given this.
pub(super) fn available<T>(found: &Result<T>) -> Condition {
    match found {
        Ok(_) => Condition::new(VCENTER_AVAILABLE, ConditionStatus::True, "Available"),
        Err(error) => Condition::new(VCENTER_AVAILABLE, ConditionStatus::False, "VCenterUnreachable")
            .with_message(error.report()),
    }
}

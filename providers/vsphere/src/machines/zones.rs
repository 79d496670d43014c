//! Failure domains of machines: `VSphereDeploymentZones` and what they are made of. Pure.
//!
//! ```text
//!   VSphereDeploymentZone ──> VSphereFailureDomain
//!      zone: both as one ──> placed: the spec of a machine that is in it
//!                        └─> check:  whether vCenter has what they name
//! ```

mod check;
mod placed;
mod zone;

pub(crate) use self::{
    check::{Checked, Found, judge, tagged_objects},
    placed::{place, place_in_pool},
    zone::{Zone, zone_name},
};

#[cfg(test)]
pub(crate) mod examples;

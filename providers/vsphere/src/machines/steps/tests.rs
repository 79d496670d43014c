//! Steps on a scripted vCenter, for what the simulator cannot do.

use std::time::Duration;

use cloudprovider::machines::Wait;

use super::*;

mod copies;
mod reach;
mod removed;
pub(crate) mod rig;
mod term;
mod unshown;
mod vm_conditions;

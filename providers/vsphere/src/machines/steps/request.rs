//! What the steps of a machine get and remember.

use cloudprovider::machines::{MachineDeletionRequest, MachineRequest, Record};

use crate::machines::{
    spec::{VSphereClusterSpec, VSphereMachineSpec},
    status::VSphereMachineStatus,
};

pub(crate) type Request = MachineRequest<VSphereMachineSpec, VSphereClusterSpec>;
pub(crate) type DeletionRequest = MachineDeletionRequest<VSphereMachineSpec, VSphereClusterSpec>;
pub(crate) type MachineRecord = Record<VSphereMachineStatus>;

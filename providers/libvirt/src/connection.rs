//! The actor that keeps the connection to one hypervisor, and with it the inventory.
//!
//! The actor itself is a task that never blocks. Calls run on a [`Lane`](crate::lane::Lane); one that does not come back in
//! time is abandoned with its thread, and the next connection gets a new one.

mod actor;
mod agents;
mod connected;
mod follow;
mod keep;
mod look;
mod polls;
mod rare;

pub(crate) use keep::run;

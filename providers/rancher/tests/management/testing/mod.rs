//! Rancher 2.x for tests: its server, and a management cluster on a real API server.

pub(crate) mod kinds;
pub(crate) mod management_cluster;
pub(crate) mod rancher;

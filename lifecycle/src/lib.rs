//! The decisions of Cluster API's own controllers, for a cluster that runs without its managers.
//!
//! Everything here is pure: plain values in, a decision out. Nothing knows an API server, a clock or a runtime. The rules are
//! those of Cluster API 1.14, whose recorded rollouts the tests replay.

pub mod cluster;
pub mod conditions;
pub mod drain;
pub mod health_check;
pub mod machine;
pub mod machine_set;
pub mod replicas;
pub mod rollout;
pub mod version;

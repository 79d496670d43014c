//! The controllers of Cluster API's own kinds, in place of its managers.

mod adoption;
pub mod bootstrap;
pub mod cluster;
pub mod cluster_resource_set;
pub mod core;
pub mod engine;
pub mod explain;
pub mod gate;
mod kept;
pub mod kinds;
pub mod kubeadm_config;
pub mod machine;
pub mod machine_deployment;
pub mod machine_health_check;
pub mod machine_set;
pub mod options;
pub mod parts;
pub mod replicas;
mod rollout;
mod sources;
mod template;
#[cfg(test)]
mod testing;
pub mod workload;
mod x509;

#[cfg(test)]
mod tests;

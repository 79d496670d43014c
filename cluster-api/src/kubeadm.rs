//! The kinds of the bootstrap provider kubeadm: what a machine runs to become a Node.

mod cluster_configuration;
mod config;
mod files;
mod init_configuration;
mod join_configuration;

pub use cluster_configuration::*;
pub use config::*;
pub use files::*;
pub use init_configuration::*;
pub use join_configuration::*;

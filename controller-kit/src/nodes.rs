//! Nodes as the controllers see them: one shared watch, which keeps only the fields that are read.

pub mod condition_types;
mod matching;
mod node;
pub mod protobuf;
mod read;
mod watch;
mod writer;

pub use node::{Condition, Node, ReadyStatus, Taint};
pub use read::{read_node, read_nodes};
pub use watch::watch_nodes;
pub use writer::{NodePatch, NodeWriter};

/// All Nodes of the cluster, by name, kept up to date by [`watch_nodes`].
pub type NodeStore = crate::cache::Cache<Node>;

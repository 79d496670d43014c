//! Nodes as the controllers see them: one shared watch, which keeps only the fields that are read.

pub mod condition_types;
mod node;
pub mod protobuf;
mod read;
mod store;
mod watch;
mod writer;

pub use node::{Condition, Node, ReadyStatus, Taint};
pub use read::{read_node, read_nodes};
pub use store::{Changes, NodeStore};
pub use watch::watch_nodes;
pub use writer::{NodePatch, NodeWriter, WriteError, WrittenVersion};

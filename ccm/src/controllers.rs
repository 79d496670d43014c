//! The controllers: one folder each.

pub mod node;
pub mod node_lifecycle;
mod running;

pub use running::{ControllerMetrics, ControllerRuns};

//! The controllers of Cluster API's own kinds, in place of its managers.

pub mod engine;

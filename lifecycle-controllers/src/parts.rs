//! The parts that are switched on one by one: which controllers each has, and how they run for one term.

pub mod bootstrap;
pub mod core;

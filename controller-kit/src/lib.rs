//! What all controllers share.
//!
//! ```text
//!   watch ──> cache of Nodes, Services ... ──> a controller decides ──> writes, within a term of leadership
//!                                                    │
//!                                                    └── Cloud ──> provider (any panic, delay or wrong answer ends here)
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`cache`] | what a watch shows, kept for everything that reads it |
//! | [`nodes`], [`services`], [`secrets`] | these objects: the fields that are read, their watches, and writes to Nodes |
//! | [`writes`], [`clients`] | a write within its deadline, and clients that write in one term of leadership only |
//! | [`cloud`] | the boundary to the provider |
//! | [`conditions`] | the conditions that controllers write to Nodes |
//! | [`kinds`] | how Cluster API finds the definition of a kind, and [`of_kind!`] for types with a part of its fields |
//! | [`rbac`] | permissions, in the terms of RBAC |

pub mod api_errors;
pub mod cache;
pub mod clients;
pub mod cloud;
pub mod conditions;
pub mod followed;
pub mod kinds;
pub mod nodes;
pub mod rbac;
pub mod secrets;
pub mod services;
pub mod writes;

//! What the controllers of this crate stand on.
//!
//! | Module | What it is |
//! |---|---|
//! | [`object`] | an object of a kind as a watch shows it |
//! | [`external`] | objects of other groups that Clusters and Machines refer to: which kinds there are, and their watches |
//! | [`stores`] | the caches of all kinds |
//! | `merge_patch` | merge patches of what is different |
//! | `status` | when a status is written: what nothing acts on waits for a second |
//! | [`place`] | which object a request is for |
//! | [`writer`] | writes, each guarded by the version that the decision was made for |
//! | [`metrics`] | what the loops do, for Prometheus |
//! | [`control`] | the one loop: keys, never two passes over one object at once, namespaces in turns |
//! | [`conditions`] | between the conditions of the kinds and those that `lifecycle` words |

pub mod conditions;
pub mod control;
pub mod external;
pub(crate) mod merge_patch;
pub mod metrics;
pub mod object;
pub mod place;
pub(crate) mod status;
pub mod stores;
pub mod writer;

//! Workload clusters: one connection to each, which all controllers share.
//!
//! ```text
//!   Secret <cluster>-kubeconfig ──> kubeconfig ──> Connector ──> session: watch of Nodes, probes ──> Nodes, changes
//!                                                                   │
//!      a controller ──> WorkloadClusters::get ──> WorkloadCluster ──┴──> reads, and writes within the term
//! ```
//!
//! A user who may write Secrets of one namespace decides which API server is on the other side. So nothing that it says is
//! trusted beyond its own Cluster, and it costs a bounded amount of memory, time and connections:
//!
//! | What | Limit for one Cluster |
//! |---|---|
//! | kubeconfig | 64 KiB; certificates, a token or a password in it, and nothing that names a file, a program or a proxy |
//! | addresses | [`AllowedAddresses`], checked when a connection is opened |
//! | requests at once | 8, and 2 watches; look-ups of names: 4 for a namespace |
//! | head of an answer | 10 s |
//! | whole answer | 60 s and 16 MiB; an event of a watch 2 MiB; a silent watch ends after 90 s |
//! | values of JSON | 400,000 in an answer, 100,000 in an event; 10,000 items of a list |
//! | bytes | 4 MiB/s after the first 64 MiB; each answer counts as 16 KiB at least |
//! | Nodes | 10,000, and 16 MiB of what is kept of them; a whole list takes 60 s at most |
//! | probe | `/readyz` after 10 s of silence, 5 s for the answer |
//!
//! A cluster is away after three failed probes in a row over at least 10 s, or at once when it refuses the credentials. It is
//! tried again after 10 s, and later after up to 30 s; a change of its Secret ends the wait. How many Clusters a namespace
//! may have is for a `ResourceQuota` to say.

mod addresses;
mod changes;
mod cluster;
mod clusters;
mod connect;
pub mod drain;
mod entry;
mod failure;
mod health;
mod key;
mod kubeconfig;
mod limits;
mod node;
pub mod node_sync;
mod nodes;
mod pace;
mod session;
mod shared;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod volumes;
mod words;

pub use addresses::AllowedAddresses;
pub use changes::{Changes, ClusterChange};
pub use cluster::WorkloadCluster;
pub use clusters::{Options, WorkloadClusters};
pub use connect::{Connector, Dial};
pub use entry::{Connection, NotConnected};
pub use key::ClusterKey;
pub use kubeconfig::{Access, KubeconfigError};
pub use node::{Node, Taint};
pub use nodes::{DuplicateProviderId, Nodes};

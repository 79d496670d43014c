//! What every crate of this repository may use: small functions on values that have no better place.
//!
//! The contract with clouds (`cloudprovider`) and the machinery of a Kubernetes daemon (`component`) do not
//! depend on each other. Code that both need is here. Nothing here knows Kubernetes, a cloud or an
//! asynchronous runtime, and nothing here logs.
//!
//! - [`error_chain`]: an error and its sources on one line.
//! - [`go`]: values as Go programs write them.
//! - `tls` (feature `tls`): limits on the certificates of a peer.

mod error_chain;
pub mod go;
#[cfg(feature = "tls")]
pub mod tls;

pub use error_chain::error_chain;

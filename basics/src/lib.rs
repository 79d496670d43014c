//! What every crate of this repository may use: small functions on values, for which there is no better place.
//!
//! The contract with clouds (`cloudprovider`) and the machinery of a Kubernetes daemon (`component`) depend on neither of each
//! other. What both need stands here. Nothing here knows Kubernetes, a cloud or an asynchronous runtime, and nothing here logs.
//!
//! - [`backoff`]: how long to wait before another try.
//! - [`dns`]: what is a name of DNS.
//! - [`error_chain`]: an error and its sources on one line.
//! - [`go`]: values as Go programs read and write them.
//! - `tls` (feature `tls`): bounds on the certificates of a peer.

pub mod backoff;
pub mod dns;
mod error_chain;
pub mod go;
#[cfg(feature = "tls")]
pub mod tls;

pub use error_chain::error_chain;

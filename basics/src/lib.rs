//! Small functions on values that every crate of this repository may use.
//!
//! `cloudprovider` (the contract with clouds) and `component` (the parts of a Kubernetes daemon) do not
//! depend on each other. Code that both need is here. It has no knowledge of Kubernetes, clouds or
//! asynchronous runtimes, and it does not log.
//!
//! - [`addresses`]: addresses that have another one in them.
//! - [`backoff`]: waits between retries.
//! - [`dns`]: rules for DNS names.
//! - [`error_chain`]: an error and its sources on one line.
//! - [`gcfg`]: the INI dialect of Go's cloud configuration files.
//! - [`LogOnce`]: what is in the log already.
//! - [`go`]: values as Go programs parse and print them.
//! - `tls` (feature `tls`): bounds on the certificates of a peer.

pub mod addresses;
pub mod backoff;
pub mod dns;
mod error_chain;
pub mod gcfg;
pub mod go;
mod log_once;
#[cfg(feature = "tls")]
pub mod tls;

pub use error_chain::error_chain;
pub use log_once::LogOnce;

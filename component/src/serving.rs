//! The secure port: health, metrics and debugging over HTTPS, for authorized clients.
//!
//! It serves as upstream does: every client may ask for health, and all other paths need a grant
//! (`nonResourceURLs`). Everything is bounded: connections, handshakes, certificates, headers, bodies,
//! requests, reviews in progress, and responses that the client does not read. The server has its own
//! threads, so that clients cannot delay the rest of the daemon.
//!
//! Beside it, a webhook of the API server can be served at a port of its own, with a certificate of an authority that this
//! program makes.
//!
//! The server needs the feature `serving`. Without it, nothing is served, but code that configures the port
//! still compiles.

mod always_allow_paths;
#[cfg(feature = "serving")]
mod authority;
mod metrics;
#[cfg(not(feature = "serving"))]
mod no_server;
mod options;
#[cfg(feature = "serving")]
mod server;
mod shown;

pub use always_allow_paths::{check_always_allow_paths, is_always_allowed};
#[cfg(feature = "serving")]
pub use authority::{Authorities, Authority, SignedCertificate};
pub use metrics::AccessMetrics;
#[cfg(not(feature = "serving"))]
pub use no_server::Serving;
pub use options::{
    AuthenticationOptions, AuthorizationOptions, CertificateOptions, NamedCertificate, RequestHeaderOptions,
    ServingOptions, TlsOptions, WebhookOptions,
};
#[cfg(feature = "serving")]
pub use server::{MadeCertificate, Serving, Webhook, WebhookServer};
pub use shown::{SetVerbosity, Shown};

//! The secure port: health, metrics and debugging over HTTPS, for those who may see them.
//!
//! It serves as upstream does: everybody may ask for health, and everything else takes a grant for its path
//! (`nonResourceURLs`). Everything is bounded: connections, handshakes, certificates, headers, bodies, requests, reviews under
//! way, answers that nobody takes. And it has threads of its own, so that what clients do delays nothing else.

mod always_allow_paths;
mod metrics;
mod options;
mod server;
mod shown;

pub use always_allow_paths::{check_always_allow_paths, is_always_allowed};
pub use metrics::AccessMetrics;
pub use options::{
    AuthenticationOptions, AuthorizationOptions, CertificateOptions, NamedCertificate, RequestHeaderOptions,
    ServingOptions, TlsOptions,
};
pub use server::Serving;
pub use shown::{SetVerbosity, Shown};

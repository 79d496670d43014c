//! The secure port: health, metrics and debugging over HTTPS, for those who may see them.
//!
//! It serves as upstream does: everybody may ask for health, and everything else takes a grant for its path
//! (`nonResourceURLs`). Everything is bounded: connections, handshakes, certificates, headers, bodies, requests, reviews under
//! way, answers that nobody takes. And it has threads of its own, so that what clients do delays nothing else.
//!
//! The server itself hangs on the feature `serving`. Without it nothing can be served, and what a program says about the port
//! compiles all the same.

mod always_allow_paths;
mod metrics;
#[cfg(not(feature = "serving"))]
mod no_server;
mod options;
#[cfg(feature = "serving")]
mod server;
mod shown;

pub use always_allow_paths::{check_always_allow_paths, is_always_allowed};
pub use metrics::AccessMetrics;
#[cfg(not(feature = "serving"))]
pub use no_server::Serving;
pub use options::{
    AuthenticationOptions, AuthorizationOptions, CertificateOptions, NamedCertificate, RequestHeaderOptions,
    ServingOptions, TlsOptions,
};
#[cfg(feature = "serving")]
pub use server::Serving;
pub use shown::{SetVerbosity, Shown};

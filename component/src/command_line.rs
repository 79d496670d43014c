//! The command line of a Kubernetes program: Go's grammar of flags, their values, and the groups of flags
//! that every such program has. Each module is one of the sections that `--help` shows.
//!
//! A flag is a field of its group. Differences from upstream are listed in the group's `NOTES`. A program
//! creates warnings and its documentation from them.

mod authentication;
mod authorization;
pub mod debugging;
pub mod feature_gates;
pub mod global;
mod leader_migration;
pub mod notes;
pub mod pflag;
mod shown;
pub mod tls;
pub mod values;

pub use authentication::AuthenticationFlags;
pub use authorization::AuthorizationFlags;
pub use basics::go::format_duration;
pub use debugging::DebuggingFlags;
pub use feature_gates::{FeatureGate, FeatureGates, FeatureMetrics, Gate, KnownGates, Stage};
pub use global::GlobalFlags;
pub use leader_migration::LeaderMigrationFlags;
pub use pflag::CommandLineError;
pub use shown::shown;
pub use values::{VModule, VersionRequest};

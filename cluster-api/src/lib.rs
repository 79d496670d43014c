//! Cluster API's kinds: their types, and the definitions that an API server serves them by.
//!
//! The types have upstream's names and are those of its version v1beta2. An optional object is a plain field, which is the
//! default when it is absent; an optional scalar is an `Option`. Fields that a type does not know are ignored at reading, so
//! writers patch the fields that they own.
//!
//! Everything that our definitions let through can be read. A newer release's definitions may let through more, such as a new
//! word where a field has a choice: read each object by itself, so that one that cannot be read hides no other.

pub mod cluster;
pub mod cluster_resource_set;
pub mod defaults;
pub mod definitions;
pub mod kubeadm;
pub mod machine;
pub mod machine_deployment;
pub mod machine_drain_rule;
pub mod machine_health_check;
pub mod machine_set;
pub mod meta;
pub mod names;
mod patterns;
mod rules;
mod schema;
mod secret_text;
mod serde_with;

pub use cluster::*;
pub use cluster_resource_set::*;
pub use kubeadm::{KubeadmConfig, KubeadmConfigTemplate};
pub use machine::*;
pub use machine_deployment::*;
pub use machine_drain_rule::*;
pub use machine_health_check::*;
pub use machine_set::*;
pub use meta::*;
pub use secret_text::SecretText;

//! What is known about a provider's machines without a configuration.

use serde_json::Value;

use super::{Column, ForeignVersion, KindDefinition, Kinds, Machines, Schemas, schemas_of};
use crate::Result;

/// The kinds and types of a provider's machines, which are known without a configuration.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MachineTypes {
    /// The kinds.
    pub kinds: Kinds,
    /// Makes the schemas of the types.
    pub schemas: fn() -> Schemas,
    /// Makes the definitions of the provider's other kinds, in the same version.
    pub further: fn() -> Vec<KindDefinition>,
    /// What `kubectl get` prints of them, in place of the controller's own columns.
    pub columns: Option<MachineColumns>,
    /// The version in which the API server stores the objects, if it is another one.
    pub stored: Option<StoredVersion>,
}

/// What `kubectl get` prints of the kinds that every provider has.
#[derive(Clone, Copy, Debug)]
pub struct MachineColumns {
    /// Of machines.
    pub machine: &'static [Column],
    /// Of templates of machines.
    pub machine_template: &'static [Column],
    /// Of clusters.
    pub cluster: &'static [Column],
    /// Of templates of clusters.
    pub cluster_template: &'static [Column],
}

/// A version of all kinds of a provider in which the API server stores the objects, while the steps work on another one. It
/// is how a provider takes over objects of another program, and can give them back.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoredVersion {
    /// Makes the definitions of the kinds. They are the same kinds as in the version of the steps.
    pub definitions: fn() -> ForeignVersion,
    /// Converts objects to and from it.
    pub convert: Convert,
}

/// Converts an object of the API to the version with this name, such as `v1beta2`. What the other version cannot say comes
/// back with the way back. It changes nothing of `metadata` but labels and annotations, since the API server allows no more.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it is not an object of one of the kinds in a version
/// that is known.
pub type Convert = fn(object: Value, version: &str) -> Result<Value>;

impl MachineTypes {
    /// These kinds, in one version.
    pub const fn new(kinds: Kinds, schemas: fn() -> Schemas) -> Self {
        Self { kinds, schemas, further: Vec::new, columns: None, stored: None }
    }

    /// Those of this implementation of [`Machines`].
    pub const fn of<M: Machines>() -> Self {
        Self::new(M::KINDS, schemas_of::<M>)
    }

    /// Sets what makes the definitions of further kinds.
    #[must_use]
    pub const fn with_further(mut self, further: fn() -> Vec<KindDefinition>) -> Self {
        self.further = further;
        self
    }

    /// Sets what `kubectl get` prints.
    #[must_use]
    pub const fn with_columns(mut self, columns: MachineColumns) -> Self {
        self.columns = Some(columns);
        self
    }

    /// The API server stores the objects in this version.
    #[must_use]
    pub const fn stored_as(mut self, definitions: fn() -> ForeignVersion, convert: Convert) -> Self {
        self.stored = Some(StoredVersion { definitions, convert });
        self
    }
}

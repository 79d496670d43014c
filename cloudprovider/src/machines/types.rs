//! What is known about a provider's machines without a configuration.

use serde_json::Value;

use super::{AdmissionRule, Column, ForeignVersion, KindDefinition, Kinds, Machines, Schemas, schemas_of};
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
    pub auxiliary: fn() -> Vec<KindDefinition>,
    /// What `kubectl get` prints of them, in place of the controller's own columns.
    pub columns: Option<MachineColumns>,
    /// What the API server checks of machines beside the schema.
    pub machine_rules: &'static [AdmissionRule],
    /// What the API server checks of templates of machines beside the schema.
    pub machine_template_rules: &'static [AdmissionRule],
    /// An older version in which the API server serves the objects too.
    pub older: Option<OlderVersion>,
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

/// An older version of all kinds of a provider, which is served beside the version of the steps. It is how a
/// provider takes over objects of another program, and can give them back.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OlderVersion {
    /// Makes the definitions of the kinds. They are the same kinds as in the version of the steps.
    pub definitions: fn() -> ForeignVersion,
    /// Converts objects to and from it.
    pub convert: Convert,
    /// Whether the API server stores the objects in it, and not in the version of the steps.
    pub is_stored: bool,
}

/// Converts an object of the API to the version with this name, such as `v1beta2`. What the other version
/// cannot say comes back with the way back. It changes nothing of `metadata` but labels and annotations,
/// since the API server allows no more.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it is not an object of one of the kinds in
/// a version that is known.
pub type Convert = fn(object: Value, version: &str) -> Result<Value>;

impl MachineTypes {
    /// These kinds, in one version.
    pub const fn new(kinds: Kinds, schemas: fn() -> Schemas) -> Self {
        Self {
            kinds,
            schemas,
            auxiliary: Vec::new,
            columns: None,
            machine_rules: &[],
            machine_template_rules: &[],
            older: None,
        }
    }

    /// Those of this implementation of [`Machines`].
    pub const fn of<M: Machines>() -> Self {
        Self::new(M::KINDS, schemas_of::<M>)
    }

    /// Sets what makes the definitions of auxiliary kinds.
    #[must_use]
    pub const fn with_auxiliary(mut self, auxiliary: fn() -> Vec<KindDefinition>) -> Self {
        self.auxiliary = auxiliary;
        self
    }

    /// Sets what `kubectl get` prints.
    #[must_use]
    pub const fn with_columns(mut self, columns: MachineColumns) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Sets the rules of machines and those of their templates. Auxiliary kinds have theirs in their
    /// definitions.
    #[must_use]
    pub const fn with_rules(
        mut self,
        machines: &'static [AdmissionRule],
        machine_templates: &'static [AdmissionRule],
    ) -> Self {
        self.machine_rules = machines;
        self.machine_template_rules = machine_templates;
        self
    }

    /// The API server serves the objects in this older version too, and stores them in the version of the
    /// steps.
    #[must_use]
    pub const fn with_older(mut self, definitions: fn() -> ForeignVersion, convert: Convert) -> Self {
        self.older = Some(OlderVersion { definitions, convert, is_stored: false });
        self
    }

    /// The versions in which the objects are served: that of the steps, and the older one.
    pub fn versions(&self) -> Vec<&'static str> {
        let older = self.older.map(|older| (older.definitions)().version);
        [self.kinds.version].into_iter().chain(older).collect()
    }

    /// The version in which the API server stores the objects.
    pub fn stored_version(&self) -> &'static str {
        let older = self.older.filter(|older| older.is_stored);
        older.map_or(self.kinds.version, |older| (older.definitions)().version)
    }

    /// The same kinds, which the API server stores in `version`. `None`: that is none of [their
    /// versions](Self::versions).
    #[must_use]
    pub fn stored_in(mut self, version: &str) -> Option<Self> {
        let is_known = self.versions().contains(&version);
        if let Some(older) = &mut self.older {
            older.is_stored = version != self.kinds.version;
        }
        is_known.then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::Kind;

    #[test]
    fn objects_are_stored_in_the_version_of_the_steps_unless_another_one_is_chosen() {
        let kinds = Kinds::new("v2", Kind::new("AMachine", "amachines"), Kind::new("ACluster", "aclusters"));
        let schemas = || {
            let none = Value::Null;
            Schemas {
                machine_spec: none.clone(),
                machine_status: none.clone(),
                cluster_spec: none.clone(),
                cluster_status: none,
            }
        };
        let one = MachineTypes::new(kinds, schemas);
        assert_eq!((one.versions(), one.stored_version()), (vec!["v2"], "v2"));
        assert!(one.stored_in("v2").is_some() && one.stored_in("v1").is_none());
        let two = one.with_older(|| ForeignVersion::new("v1", "v1beta1", Vec::new()), |object, _| Ok(object));
        assert_eq!((two.versions(), two.stored_version()), (vec!["v2", "v1"], "v2"));
        let older = two.stored_in("v1").expect("one of them");
        assert_eq!(older.stored_version(), "v1");
        assert_eq!(older.stored_in("v2").map(|types| types.stored_version()), Some("v2"));
        assert!(two.stored_in("v3").is_none());
    }
}

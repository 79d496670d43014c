//! Kinds that a provider defines by itself.

use serde_json::Value;

use super::Kind;

/// All kinds of a provider in one version, as somebody else defined them. Nothing of the controller is added
/// to their schemas. It is how a provider takes over the objects of another program: that program's kinds
/// stay as they are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignVersion {
    /// Such as `v1beta1`.
    pub version: &'static str,
    /// The contract of Cluster API that the kinds keep in this version, such as `v1beta1`.
    pub contract: &'static str,
    /// The kinds.
    pub kinds: Vec<KindDefinition>,
}

/// A kind as a provider defines it. Nothing of the controller is added to its schemas.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KindDefinition {
    /// Its names.
    pub kind: Kind,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// What it is, for `kubectl explain`.
    pub about: &'static str,
    /// The schema of the spec.
    pub spec: Value,
    /// The schema of the status, which is a subresource.
    pub status: Option<Value>,
    /// What `kubectl get` prints.
    pub columns: Vec<Column>,
    /// What the API server checks beside the schema.
    pub rules: &'static [AdmissionRule],
    /// Whether it is a template, whose `spec.template.spec` cannot change.
    pub is_template: bool,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its title.
    pub name: &'static str,
    /// Where its value is, such as `.spec.server`.
    pub path: &'static str,
    /// What it shows, as a sentence.
    pub about: &'static str,
    /// Whether it is a time that is shown as an age.
    pub is_age: bool,
    /// Whether it is printed with `-o wide` only.
    pub is_wide: bool,
}

impl ForeignVersion {
    /// A version of these kinds.
    pub const fn new(version: &'static str, contract: &'static str, kinds: Vec<KindDefinition>) -> Self {
        Self { version, contract, kinds }
    }
}

impl KindDefinition {
    /// A kind in namespaces with this schema of its spec, without a status.
    pub const fn new(kind: Kind, about: &'static str, spec: Value) -> Self {
        Self {
            kind,
            is_namespaced: true,
            about,
            spec,
            status: None,
            columns: Vec::new(),
            rules: &[],
            is_template: false,
        }
    }

    /// Its objects are in no namespace.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.is_namespaced = false;
        self
    }

    /// Sets the schema of the status.
    #[must_use]
    pub fn with_status(mut self, status: Value) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: &'static [AdmissionRule]) -> Self {
        self.rules = rules;
        self
    }

    /// It is a template.
    #[must_use]
    pub fn template(mut self) -> Self {
        self.is_template = true;
        self
    }

    /// Sets the columns.
    #[must_use]
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = Column>) -> Self {
        self.columns = columns.into_iter().collect();
        self
    }
}

impl Column {
    /// A column that is always printed.
    pub const fn new(name: &'static str, path: &'static str, about: &'static str) -> Self {
        Self { name, path, about, is_age: false, is_wide: false }
    }

    /// The age of an object.
    pub const fn age() -> Self {
        let age = Self::new("Age", ".metadata.creationTimestamp", "When it was made.");
        Self { is_age: true, ..age }
    }

    /// Printed with `-o wide` only.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }
}

/// A rule about objects of a kind that the API server checks by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionRule {
    /// When it is checked.
    pub when: AdmissionTime,
    /// What must hold, in CEL. `object` is the object, and `oldObject` the one before the change.
    pub expression: &'static str,
    /// What is wrong otherwise. It names the field.
    pub message: &'static str,
}

/// When an [`AdmissionRule`] is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionTime {
    /// When an object is made and when it changes.
    Always,
    /// When an object is made.
    Creation,
    /// When an object changes.
    Update,
}

impl AdmissionRule {
    /// A rule that is always checked.
    pub const fn new(expression: &'static str, message: &'static str) -> Self {
        Self { when: AdmissionTime::Always, expression, message }
    }

    /// A rule about new objects.
    pub const fn on_create(expression: &'static str, message: &'static str) -> Self {
        Self { when: AdmissionTime::Creation, expression, message }
    }

    /// A rule about changes.
    pub const fn on_update(expression: &'static str, message: &'static str) -> Self {
        Self { when: AdmissionTime::Update, expression, message }
    }
}

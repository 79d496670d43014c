//! The definitions by which an API server serves the kinds. Pure: nothing here talks to an API server.
//!
//! They are made from the types, so that whatever a definition lets through can be read. The labels are those of a release of
//! Cluster API: clusterctl and the infrastructure providers find the kinds by them. Only v1beta2 is served and stored.

mod columns;
mod refused;
mod structural;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::{
    CustomResourceExt,
    core::object::{HasSpec, HasStatus},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use self::structural::structural;
use crate::{
    Cluster, ClusterResourceSet, ClusterResourceSetBinding, KubeadmConfig, KubeadmConfigTemplate, Machine,
    MachineDeployment, MachineDrainRule, MachineHealthCheck, MachineSet, names::labels, rules,
};

/// The version that is served and stored, and the contract that it keeps.
pub const VERSION: &str = "v1beta2";

/// A provider of Cluster API, as clusterctl installs it: some kinds and their controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Clusters, Machines and what makes, checks and drains them; resource sets.
    Core,
    /// Bootstrap data by kubeadm.
    KubeadmBootstrap,
}

impl Provider {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Core, Self::KubeadmBootstrap];

    /// Its name, the value of the label by which clusterctl finds its parts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "cluster-api",
            Self::KubeadmBootstrap => "bootstrap-kubeadm",
        }
    }

    /// The names of the definitions of the kinds that controllers read: plural and group, with a dot between. `MachinePool` is for tools
    /// alone.
    pub fn read_kinds(self) -> &'static [&'static str] {
        match self {
            Self::Core => &[
                "clusters.cluster.x-k8s.io",
                "machines.cluster.x-k8s.io",
                "machinesets.cluster.x-k8s.io",
                "machinedeployments.cluster.x-k8s.io",
                "machinehealthchecks.cluster.x-k8s.io",
                "machinedrainrules.cluster.x-k8s.io",
                "clusterresourcesets.addons.cluster.x-k8s.io",
                "clusterresourcesetbindings.addons.cluster.x-k8s.io",
            ],
            Self::KubeadmBootstrap => &[
                "kubeadmconfigs.bootstrap.cluster.x-k8s.io",
                "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io",
            ],
        }
    }

    /// The definitions of its kinds.
    ///
    /// # Errors
    /// If the schema of a type is none that a definition can have. A test makes every definition.
    pub fn definitions(self) -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
        match self {
            Self::Core => Ok(vec![
                self.definition::<Cluster>(Root { named: true, ..Root::with_status::<Cluster>() })?,
                self.definition::<Machine>(Root::with_status::<Machine>())?,
                self.definition::<MachineSet>(Root::with_status::<MachineSet>())?,
                self.definition::<MachineDeployment>(Root {
                    named: true,
                    ..Root::with_status::<MachineDeployment>()
                })?,
                self.definition::<MachineHealthCheck>(Root::with_status::<MachineHealthCheck>())?,
                self.definition::<MachineDrainRule>(Root::default())?,
                self.definition::<ClusterResourceSet>(Root::with_status::<ClusterResourceSet>())?,
                self.definition::<ClusterResourceSetBinding>(Root::default())?,
                refused::machine_pools(VERSION, self.labels())?,
            ]),
            Self::KubeadmBootstrap => Ok(vec![
                self.definition::<KubeadmConfig>(Root {
                    optional_spec: true,
                    ..Root::with_status::<KubeadmConfig>()
                })?,
                self.definition::<KubeadmConfigTemplate>(Root { optional_spec: true, ..Root::default() })?,
            ]),
        }
    }

    fn definition<K>(self, root: Root) -> Result<CustomResourceDefinition, serde_json::Error>
    where
        K: CustomResourceExt + HasSpec,
        K::Spec: JsonSchema,
    {
        let mut definition = K::crd();
        let schema: JSONSchemaProps =
            serde_json::from_value(root.schema(&definition.spec.names.kind, schema_of::<K::Spec>()))?;
        for version in &mut definition.spec.versions {
            version.additional_printer_columns = Some(columns::of(&definition.spec.names.kind));
            version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(schema.clone()) });
        }
        definition.metadata.labels = Some(self.labels());
        Ok(definition)
    }

    fn labels(self) -> BTreeMap<String, String> {
        let labels = [(labels::CLUSTERCTL, ""), (labels::CONTRACT, VERSION), (labels::PROVIDER, self.name())];
        labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// What the whole object of a kind is like, around its spec.
#[derive(Default)]
struct Root {
    status: Option<Value>,
    /// Whether an object without spec is one.
    optional_spec: bool,
    /// Whether names of objects become labels of others.
    named: bool,
}

impl Root {
    fn with_status<K>() -> Self
    where
        K: HasStatus,
        K::Status: JsonSchema,
    {
        Self { status: Some(schema_of::<K::Status>()), ..Self::default() }
    }

    fn schema(self, kind: &str, spec: Value) -> Value {
        let mut properties = json!({
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
        });
        if let Some(status) = self.status {
            properties["status"] = status;
        }
        let mut schema = json!({
            "type": "object",
            "description": format!("A {kind} of Cluster API."),
            "properties": properties,
        });
        if !self.optional_spec {
            schema["required"] = json!(["spec"]);
        }
        if self.named {
            schema["x-kubernetes-validations"] = json!(rules::NAME);
        }
        schema
    }
}

/// The schema of a type as a definition can have it.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    structural(settings.into_generator().into_root_schema_for::<T>().to_value())
}

#[cfg(test)]
mod tests;

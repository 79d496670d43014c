//! The kinds of the provider on an API server.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, ValidationDirective,
    },
};
use machine_controller::crds::Definitions;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::provider::GROUP;

/// How long the API server may take until a definition or a policy is in force.
const PATIENCE: Duration = test_env::PATIENCE;

/// The kinds of the provider, on an API server.
pub(super) struct Kinds {
    client: Client,
    group: &'static str,
}

impl Kinds {
    pub(super) fn new(client: Client) -> Self {
        Self::in_group(client, GROUP)
    }

    pub(super) fn in_group(client: Client, group: &'static str) -> Self {
        Self { client, group }
    }

    /// Installs the definitions and waits until they are in force.
    pub(super) async fn establish(&self, definitions: &Definitions) -> Result<()> {
        for crd in definitions.crds() {
            self.install(crd).await?;
        }
        self.install(&definitions.template_policy).await?;
        self.install(&definitions.template_policy_binding).await?;
        let crds = kube::Api::<CustomResourceDefinition>::all(self.client.clone());
        for crd in definitions.crds() {
            eventually(async || {
                let found = crds.get(&crd.name_any()).await?;
                let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
                let status = |name: &str| {
                    conditions
                        .iter()
                        .find(|one| one.type_ == name)
                        .map(|one| (&*one.status, one.message.clone()))
                };
                ensure!(status("NonStructuralSchema").is_none(), "{:?}", status("NonStructuralSchema"));
                ensure!(status("Established").is_some_and(|(status, _)| status == "True"), "{conditions:?}");
                Ok(())
            })
            .await
            .with_context(|| crd.name_any())?;
        }
        Ok(())
    }

    async fn install<K>(&self, object: &K) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let all = kube::Api::<K>::all(self.client.clone());
        let params =
            PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("test") };
        let name = object.name_any();
        all.patch(&name, &params, &Patch::Apply(object)).await.with_context(|| name.clone())?;
        Ok(())
    }

    pub(super) async fn remove(&self, definitions: &Definitions) -> Result<()> {
        let delete = DeleteParams::default();
        let name = definitions.template_policy.name_any();
        kube::Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone())
            .delete(&name, &delete)
            .await?;
        kube::Api::<ValidatingAdmissionPolicy>::all(self.client.clone()).delete(&name, &delete).await?;
        for crd in definitions.crds() {
            kube::Api::<CustomResourceDefinition>::all(self.client.clone())
                .delete(&crd.name_any(), &delete)
                .await?;
        }
        Ok(())
    }

    fn of(&self, kind: &str) -> kube::Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, "v1alpha1", kind));
        kube::Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    /// Makes or changes an object: `fields` is all that it has.
    pub(super) async fn apply(&self, kind: &str, name: &str, fields: &Value) -> Result<Value> {
        self.apply_with(PatchParams::apply("test"), kind, name, fields).await
    }

    pub(super) async fn apply_with(
        &self,
        params: PatchParams,
        kind: &str,
        name: &str,
        fields: &Value,
    ) -> Result<Value> {
        let params =
            PatchParams { field_validation: Some(ValidationDirective::Strict), force: true, ..params };
        let done = self.of(kind).patch(name, &params, &Patch::Apply(self.whole(kind, name, fields))).await?;
        Ok(serde_json::to_value(done)?)
    }

    fn whole(&self, kind: &str, name: &str, fields: &Value) -> Value {
        let mut object = fields.clone();
        object["apiVersion"] = format!("{}/v1alpha1", self.group).into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        object
    }

    pub(super) async fn apply_status(&self, kind: &str, name: &str, fields: &Value) -> Result<Value> {
        let params = PatchParams { force: true, ..PatchParams::apply("status") };
        let done =
            self.of(kind).patch_status(name, &params, &Patch::Apply(self.whole(kind, name, fields))).await?;
        Ok(serde_json::to_value(done)?)
    }
}

/// Tries until it succeeds.
pub(super) async fn eventually(mut attempt: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(_) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            outcome => return outcome,
        }
    }
}

/// The outcome is a refusal with all of these words.
pub(super) fn refused(what: &str, outcome: Result<Value>, words: &[&str]) -> Result<()> {
    let refusal = match outcome {
        Ok(object) => bail!("{what} was accepted: {object}"),
        Err(error) => format!("{error:#}"),
    };
    let missing: Vec<_> = words.iter().filter(|word| !refusal.contains(**word)).collect();
    ensure!(missing.is_empty(), "{what}: {missing:?} is not in {refusal}");
    Ok(())
}

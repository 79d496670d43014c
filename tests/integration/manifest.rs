//! Applies and deletes the objects of a manifest as `kubectl` does, but in this process: a `kubectl` computes longer than the API server
//! that it asks.

use anyhow::Context;
use kube::{
    Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};

/// Applies the objects of a YAML stream, and takes over fields that others have set.
pub(crate) async fn apply(client: &Client, text: &str) -> anyhow::Result<()> {
    let params = PatchParams::apply("integration-tests").force();
    for object in objects(text)? {
        let applied =
            api_of(client, &object)?.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
        applied.with_context(|| format!("{object:?}"))?;
    }
    Ok(())
}

/// Deletes those of the objects that exist.
pub(crate) async fn delete(client: &Client, text: &str) -> anyhow::Result<()> {
    for object in objects(text)? {
        match api_of(client, &object)?.delete(&object.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => drop(outcome.with_context(|| format!("{object:?}"))?),
        }
    }
    Ok(())
}

fn objects(text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    Ok(serde_saphyr::from_multiple(text)?)
}

fn api_of(client: &Client, object: &DynamicObject) -> anyhow::Result<kube::Api<DynamicObject>> {
    let kind = GroupVersionKind::try_from(object.types.as_ref().context("no kind")?)?;
    let resource = ApiResource::from_gvk(&kind);
    Ok(match object.metadata.namespace.as_deref() {
        Some(namespace) => kube::Api::namespaced_with(client.clone(), namespace, &resource),
        None => kube::Api::all_with(client.clone(), &resource),
    })
}

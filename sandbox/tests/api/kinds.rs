//! Kinds besides the built-in ones.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use sandbox::{ResourceKind, Sandbox};
use serde_json::json;

#[tokio::test]
async fn registered_kinds_behave_like_custom_resources() {
    let sandbox = Sandbox::new();
    let kind = ResourceKind::new("example.com", "v1", "Widget", "widgets").namespaced().with_status();
    sandbox.register(kind.short_name("wd").column("Size", ".spec.size"));
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(sandbox.client(), &resource);
    let widget =
        DynamicObject::new("w", &resource).data(json!({"spec": {"size": 1}, "status": {"ready": true}}));
    let created = widgets.create(&PostParams::default(), &widget).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    assert!(created.data.get("status").is_none(), "status is only written through its subresource");

    let params = PatchParams::default();
    let status = Patch::Merge(
        json!({"status": {"ready": true}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}),
    );
    let patched = widgets.patch_status("w", &params, &status).await.unwrap();
    assert_eq!(patched.data, json!({"spec": {"size": 1}, "status": {"ready": true}}));
    assert_eq!((patched.metadata.generation, patched.metadata.labels), (Some(1), None));

    let spec = Patch::Merge(json!({"spec": {"size": 2}}));
    assert_eq!(widgets.patch("w", &params, &spec).await.unwrap().metadata.generation, Some(2));
    let strategic = Patch::Strategic(json!({"spec": {"size": 3}}));
    let refused = widgets.patch("w", &params, &strategic).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 415));
    let blind = widgets.replace("w", &PostParams::default(), &widget).await.unwrap_err();
    assert!(matches!(blind, kube::Error::Api(status) if status.code == 422));
}

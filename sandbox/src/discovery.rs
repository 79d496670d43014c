//! Discovery documents, version and health.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    resources::Registry,
    response::{ResponseBody, json as answer_json, text},
};

/// Answers a GET outside the resources; `None` if there is no such path.
pub(crate) fn answer(registry: &Registry, path: &str) -> Option<Response<ResponseBody>> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let document = match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Some(text("ok")),
        ["version"] => version(),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => {
            let groups: Vec<Value> = registry.groups().iter().map(|(g, v)| group(g, v, false)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = registry.groups();
            let (name, versions) = groups.iter().find(|(group, _)| group == name)?;
            group(name, versions, true)
        }
        ["api", version] => resources(registry, "", version)?,
        ["apis", group, version] => resources(registry, group, version)?,
        ["openapi", "v3"] => openapi_index(registry),
        ["openapi", "v3", "api", version] => openapi(registry, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi(registry, group, version)?,
        _ => return None,
    };
    Some(answer_json(StatusCode::OK, &document))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.0+sandbox", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "in-process",
    })
}

fn group(name: &str, versions: &[String], whole: bool) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let mut group = json!({"name": name, "preferredVersion": versions.first(), "versions": versions});
    if whole {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    group
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    let mut group_version = String::new();
    for kind in registry.all().iter().filter(|k| k.group == group && k.version == version) {
        group_version = kind.api_version();
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = kind.short_names.clone().into();
        }
        if !kind.categories.is_empty() {
            resource["categories"] = kind.categories.clone().into();
        }
        resources.push(resource);
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

/// The path of a group version below the root, as in `OpenAPI`.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn openapi_index(registry: &Registry) -> Value {
    let mut paths = serde_json::Map::new();
    for kind in registry.all() {
        let root = root(&kind.group, &kind.version);
        let url = format!("/openapi/v3/{root}");
        paths.insert(root, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The part of `OpenAPI` v3 that `kubectl` reads before it sends an object: that PATCH accepts
/// `fieldValidation`, which leaves validation to the server. There are no schemas.
fn openapi(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut paths = serde_json::Map::new();
    for kind in registry.all().iter().filter(|k| k.group == group && k.version == version) {
        let scope = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{scope}{}/{{name}}", root(group, version), kind.plural);
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        let patch = json!({
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind.kind},
        });
        paths.insert(path, json!({"patch": patch}));
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.0+sandbox"}, "paths": paths,
        "components": {"schemas": {}},
    }))
}

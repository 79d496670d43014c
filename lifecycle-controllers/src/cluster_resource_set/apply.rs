//! Objects in a workload cluster.

use std::{collections::HashMap, time::Duration};

use cloudprovider::dns;
use cluster_api::ClusterResourceSetStrategy as Strategy;
use component::api_client::describe;
use http::{Request, header};
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::time::timeout;

use super::manifest::Manifest;

/// The field manager of objects that follow their resource.
const MANAGER: &str = "cloud-controller-manager-clusterresourceset";
/// The namespace of objects of a namespaced kind that name none.
const DEFAULT_NAMESPACE: &str = "default";
/// How long all objects of a resource may take. Later ones are tried in the next pass.
const WITHIN: Duration = Duration::from_secs(300);
/// How many problems of one resource a message names.
const MOST_PROBLEMS: usize = 5;
/// So many kinds are kept of a version of an API group, and so many versions. The lists are another API server's.
const MOST_KINDS: usize = 1_000;
const MOST_VERSIONS: usize = 64;
/// How long the words of an API server may be, in characters.
const LONGEST: usize = 300;

/// What of a name need not be encoded in a path.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// The kinds of one workload cluster, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_version: HashMap<String, Listed>,
    /// How many definitions were applied: what a list lacks may be there since.
    definitions: u64,
}

#[derive(Debug)]
struct Listed {
    kinds: Vec<WireKind>,
    definitions: u64,
}

#[derive(Debug, Deserialize)]
struct WireKinds {
    #[serde(default)]
    resources: Vec<WireKind>,
}

#[derive(Clone, Debug, Deserialize)]
struct WireKind {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

/// Why an object is not there.
enum Problem {
    /// The API server, or the object itself, says no.
    Refused(String),
    /// There is no answer. Others would have none either.
    NoAnswer(String),
}

/// Applies all of these objects, whatever becomes of one. `is_secret`: nothing of them may be in a message.
///
/// # Errors
/// What became of those that are not there, in a few lines.
pub(super) async fn apply(
    client: &Client,
    kinds: &mut Kinds,
    manifests: &[Manifest],
    strategy: Strategy,
    is_secret: bool,
) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    let all = async {
        for manifest in manifests {
            let Err(problem) = apply_one(client, kinds, manifest, strategy, is_secret).await else {
                continue;
            };
            let what = if is_secret { &manifest.place } else { &manifest.title };
            match problem {
                Problem::Refused(why) => problems.push(format!("{}: {why}", words(what))),
                Problem::NoAnswer(why) => {
                    problems.push(format!("{}: {why}", words(what)));
                    break;
                }
            }
        }
    };
    if timeout(WITHIN, all).await.is_err() {
        problems.push(format!("the API server took longer than {WITHIN:?} for all objects"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    problems.truncate(MOST_PROBLEMS);
    if more > 0 {
        problems.push(format!("{more} more"));
    }
    Err(problems)
}

async fn apply_one(
    client: &Client,
    kinds: &mut Kinds,
    manifest: &Manifest,
    strategy: Strategy,
    is_secret: bool,
) -> Result<(), Problem> {
    let kind = kinds.find(client, manifest, is_secret).await?;
    let (path, object) = place(manifest, &kind)?;
    let (request, is_create) = match (strategy, &manifest.name) {
        (Strategy::ApplyOnce, _) => (
            Request::post(format!("{path}?fieldManager={MANAGER}"))
                .header(header::CONTENT_TYPE, "application/json"),
            true,
        ),
        (Strategy::Reconcile, Some(name)) => {
            let name = utf8_percent_encode(name, NAME);
            let request = Request::patch(format!("{path}/{name}?fieldManager={MANAGER}&force=true"));
            (request.header(header::CONTENT_TYPE, "application/apply-patch+yaml"), false)
        }
        (Strategy::Reconcile, None) => {
            let why = "metadata.name is not set, which the strategy Reconcile needs";
            return Err(Problem::Refused(why.to_owned()));
        }
    };
    let request = request.body(object.to_string().into_bytes());
    let request = request.map_err(|_| Problem::Refused("its name cannot be in a path".to_owned()))?;
    match client.request::<IgnoredAny>(request).await {
        Ok(_) => {
            kinds.definitions += u64::from(manifest.is_definition());
            Ok(())
        }
        Err(kube::Error::Api(status)) if is_create && status.reason == "AlreadyExists" => Ok(()),
        Err(error) => Err(problem(&error, is_secret)),
    }
}

/// The path of all objects of its kind, and the object as it is sent.
fn place(manifest: &Manifest, kind: &WireKind) -> Result<(String, Value), Problem> {
    let root = root(&manifest.api_version)?;
    let mut object = manifest.object.clone();
    if !kind.namespaced {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok((format!("{root}/{}", kind.name), object));
    }
    let namespace = manifest.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    if !dns::is_label(namespace) {
        return Err(Problem::Refused("metadata.namespace is not the name of a namespace".to_owned()));
    }
    object["metadata"]["namespace"] = namespace.into();
    Ok((format!("{root}/namespaces/{namespace}/{}", kind.name), object))
}

/// The path of a version of an API group.
fn root(api_version: &str) -> Result<String, Problem> {
    let bad = || Problem::Refused("apiVersion is not a group and a version".to_owned());
    match api_version.split_once('/') {
        None if dns::is_label(api_version) => Ok(format!("/api/{api_version}")),
        Some((group, version)) if dns::is_subdomain(group) && dns::is_label(version) => {
            Ok(format!("/apis/{group}/{version}"))
        }
        _ => Err(bad()),
    }
}

impl Kinds {
    /// The resource of the kind of an object.
    async fn find(
        &mut self,
        client: &Client,
        manifest: &Manifest,
        is_secret: bool,
    ) -> Result<WireKind, Problem> {
        let version = &manifest.api_version;
        let is_fresh = self.by_version.get(version).is_some_and(|listed| {
            listed.definitions == self.definitions
                || listed.kinds.iter().any(|kind| kind.kind == manifest.kind)
        });
        if !is_fresh {
            let kinds = list(client, &root(version)?, is_secret).await?;
            let listed = Listed { kinds, definitions: self.definitions };
            if self.by_version.len() >= MOST_VERSIONS {
                self.by_version.clear();
            }
            self.by_version.insert(version.clone(), listed);
        }
        let listed = self.by_version.get(version).into_iter().flat_map(|listed| &listed.kinds);
        let found = listed.into_iter().find(|kind| kind.kind == manifest.kind);
        found.cloned().ok_or_else(|| Problem::Refused("the cluster has no such kind".to_owned()))
    }
}

/// The kinds of a version of an API group. There are none of one that is not served.
async fn list(client: &Client, root: &str, is_secret: bool) -> Result<Vec<WireKind>, Problem> {
    let request = Request::get(root).body(Vec::new());
    let request = request.map_err(|_| Problem::Refused("apiVersion cannot be in a path".to_owned()))?;
    match client.request::<WireKinds>(request).await {
        // The names are another API server's, and become parts of paths. Those with a slash are subresources.
        Ok(list) => {
            let is_usual = |kind: &WireKind| dns::is_label(&kind.name) && kind.kind.len() <= 63;
            Ok(list.resources.into_iter().filter(is_usual).take(MOST_KINDS).collect())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(problem(&error, is_secret)),
    }
}

/// An API server that refuses an object may quote it.
fn problem(error: &kube::Error, is_secret: bool) -> Problem {
    match error {
        kube::Error::Api(status) if is_secret => {
            Problem::Refused(format!("the API server refuses it ({})", status.code))
        }
        kube::Error::Api(_) => Problem::Refused(words(&describe(error))),
        kube::Error::SerdeError(_) => {
            Problem::NoAnswer("the answer of the API server is not JSON".to_owned())
        }
        error => Problem::NoAnswer(words(&describe(error))),
    }
}

/// A text of others, on one line and of a bounded length.
fn words(text: &str) -> String {
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    plain.take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_groups_are_paths_and_nothing_else_is() {
        for (api_version, expected) in [
            ("v1", Some("/api/v1")),
            ("apps/v1", Some("/apis/apps/v1")),
            ("a.b.example/v1beta1", Some("/apis/a.b.example/v1beta1")),
            ("", None),
            ("/v1", None),
            ("apps/", None),
            ("apps/v1/x", None),
            ("../v1", None),
            ("v1?x", None),
            ("v1/../../api/v1", None),
            ("..", None),
        ] {
            assert_eq!(root(api_version).ok().as_deref(), expected, "{api_version}");
        }
    }

    #[test]
    fn an_api_servers_words_about_a_secret_are_not_repeated() {
        let status = serde_json::json!({
            "status": "Failure", "code": 422, "reason": "Invalid", "message": "Invalid value: \"hunter2\"\nx",
        });
        let error = || kube::Error::Api(Box::new(serde_json::from_value(status.clone()).expect("a status")));
        let Problem::Refused(why) = problem(&error(), true) else { panic!("it answered") };
        assert_eq!(why, "the API server refuses it (422)");
        let Problem::Refused(why) = problem(&error(), false) else { panic!("it answered") };
        assert_eq!(why, "Invalid value: \"hunter2\" x (422)");
    }
}

//! Which of the kinds that the controller needs the API server serves.

use cloudprovider::machines::{AuxiliaryKind, Kinds};
use controller_kit::writes::{WriteError, within_deadline};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use super::{names::CORE_GROUP, object_key::ObjectKind};

/// Versions of Cluster API's core kinds, the preferred one first.
const CORE_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Resources of Cluster API's core kinds.
const CORE_RESOURCES: [&str; 2] = ["machines", "clusters"];

/// Everything is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The version in which the kinds of the core are read.
    pub(super) core_version: &'static str,
}

/// The version of Cluster API's core kinds that would be read.
///
/// # Errors
/// What is missing and what to do, for people; or that the API server does not answer.
pub async fn served_kinds(client: &Client, kinds: &Kinds) -> Result<&'static str, String> {
    discover(client, kinds).await.map(|served| served.core_version)
}

/// Reads one object of each kind, in one namespace if there is one. An object that is stored in another
/// version is converted for that, so this shows whether the webhook of the definition answers.
///
/// # Errors
/// Which kind cannot be read, and the API server's words.
pub async fn read_one_of_each(client: &Client, kinds: &Kinds, namespace: Option<&str>) -> Result<(), String> {
    for of in ObjectKind::ALL {
        let version = GroupVersionKind::gvk(kinds.group, kinds.version, &of.kind(kinds));
        let resource = ApiResource::from_gvk_with_plural(&version, &of.plural(kinds));
        let objects: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match within_deadline(objects.list(&ListParams::default().limit(1))).await {
            Ok(_) | Err(WriteError::Gone) => {}
            Err(why) => {
                return Err(format!("{} in {} cannot be read: {why}", resource.plural, resource.version));
            }
        }
    }
    Ok(())
}

/// Asks the API server.
///
/// # Errors
/// What is missing and what to do, for people; or that the API server does not answer.
pub(super) async fn discover(client: &Client, kinds: &Kinds) -> Result<Served, String> {
    let mut core = Vec::new();
    for version in CORE_VERSIONS {
        core.push((version, resources(client, CORE_GROUP, version).await?));
    }
    let own = resources(client, kinds.group, kinds.version).await?;
    judge(&core, &own, kinds)
}

/// Whether the API server serves each of these kinds.
///
/// # Errors
/// The API server does not answer.
pub(super) async fn served_auxiliary(client: &Client, kinds: &[AuxiliaryKind]) -> Result<Vec<bool>, String> {
    let mut lists = Vec::<(&str, &str, Vec<String>)>::new();
    for AuxiliaryKind { group, version, .. } in kinds {
        if !lists.iter().any(|(of, in_version, _)| of == group && in_version == version) {
            lists.push((*group, *version, resources(client, group, version).await?));
        }
    }
    let is_served = |kind: &AuxiliaryKind| {
        let list = lists.iter().find(|(group, version, _)| *group == kind.group && *version == kind.version);
        list.is_some_and(|(.., found)| found.iter().any(|plural| plural == kind.plural))
    };
    Ok(kinds.iter().map(is_served).collect())
}

/// The plurals of what is served in this version of a group.
async fn resources(client: &Client, group: &str, version: &str) -> Result<Vec<String>, String> {
    let lists = async {
        // The core group has no name.
        if group.is_empty() {
            return client.list_core_api_resources(version).await;
        }
        client.list_api_group_resources(&format!("{group}/{version}")).await
    };
    match within_deadline(lists).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(WriteError::Gone) => Ok(Vec::new()),
        Err(why) => {
            Err(format!("the API server does not say which kinds of {group}/{version} it serves: {why}"))
        }
    }
}

/// What follows from the lists of resources.
fn judge(core: &[(&'static str, Vec<String>)], own: &[String], kinds: &Kinds) -> Result<Served, String> {
    let is_complete =
        |found: &[String]| CORE_RESOURCES.iter().all(|wanted| found.iter().any(|one| one == wanted));
    let core_version = core.iter().find(|(_, found)| is_complete(found)).map(|(version, _)| *version);
    let wanted = ObjectKind::ALL.map(|kind| kind.plural(kinds));
    let missing: Vec<String> = wanted.into_iter().filter(|plural| !own.contains(plural)).collect();
    let mut problems = Vec::new();
    if core_version.is_none() {
        problems.push(format!(
            "{} in the version {} (install Cluster API, for example with clusterctl init)",
            CORE_RESOURCES.map(|plural| format!("{plural}.{CORE_GROUP}")).join(" and "),
            CORE_VERSIONS.join(" or "),
        ));
    }
    if !missing.is_empty() {
        problems.push(format!(
            "{} in the version {} (apply what `cloud-controller-manager manifests` prints with --machines, or with \
             --machine-provider for each further provider)",
            missing.iter().map(|plural| format!("{plural}.{}", kinds.group)).collect::<Vec<_>>().join(", "),
            kinds.version,
        ));
    }
    match core_version {
        Some(core_version) if problems.is_empty() => Ok(Served { core_version }),
        _ => Err(format!("the API server does not serve {}", problems.join("; nor "))),
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::Kind;

    use super::*;

    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let all = "mymachines mymachines/status myclusters mymachinetemplates myclustertemplates";
        for (newer, older, own, expected) in [
            ("machines clusters", "machines clusters", all, Ok("v1beta2")),
            ("", "machines clusters", all, Ok("v1beta1")),
            ("clusters", "machines clusters", all, Ok("v1beta1")),
            (
                "",
                "",
                all,
                Err(
                    "machines.cluster.x-k8s.io and clusters.cluster.x-k8s.io in the version v1beta2 or v1beta1 (install Cluster API",
                ),
            ),
            (
                "machines clusters",
                "",
                "mymachines",
                Err(
                    "myclusters.infrastructure.cluster.x-k8s.io, mymachinetemplates.infrastructure.cluster.x-k8s.io in the version v1 (apply",
                ),
            ),
            ("", "", "", Err("clusterctl init); nor mymachines.")),
        ] {
            let core = [("v1beta2", names(newer)), ("v1beta1", names(older))];
            match (judge(&core, &names(own), &KINDS), expected) {
                (Ok(served), Ok(version)) => assert_eq!(served.core_version, version),
                (Err(why), Err(words)) => assert!(why.contains(words), "{why}"),
                (found, expected) => panic!("{found:?} and not {expected:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_given_up() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let why = discover(&Client::new(silent, "default"), &KINDS).await.expect_err("no answer");
        let words = "does not say which kinds of cluster.x-k8s.io/v1beta2 it serves: no answer from the API server within";
        assert!(why.contains(words), "{why}");
    }
}

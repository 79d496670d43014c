//! Which of the kinds that the controller needs the API server serves.

use cloudprovider::machines::Kinds;
use kube::Client;

use super::{names::CORE_GROUP, subject::SubjectKind};

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

/// The plurals of what is served in this version of a group.
async fn resources(client: &Client, group: &str, version: &str) -> Result<Vec<String>, String> {
    match client.list_api_group_resources(&format!("{group}/{version}")).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => {
            let why = component::api_client::describe(&error);
            Err(format!("the API server does not say which kinds of {group}/{version} it serves: {why}"))
        }
    }
}

/// What follows from the lists of resources.
fn judge(core: &[(&'static str, Vec<String>)], own: &[String], kinds: &Kinds) -> Result<Served, String> {
    let is_complete =
        |found: &[String]| CORE_RESOURCES.iter().all(|wanted| found.iter().any(|one| one == wanted));
    let core_version = core.iter().find(|(_, found)| is_complete(found)).map(|(version, _)| *version);
    let wanted = SubjectKind::ALL.map(|kind| kind.plural(kinds));
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
            "{} in the version {} (apply what `cloud-controller-manager manifests --machines` prints)",
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
}

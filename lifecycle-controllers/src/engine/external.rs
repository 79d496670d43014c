//! Objects of other groups that Clusters and Machines refer to: infrastructure, bootstrap configs, control planes.
//!
//! A reference names group, kind and name. The version is the newest that keeps the contract v1beta2, which the label
//! `cluster.x-k8s.io/v1beta2` of the definition names. A kind without that label is not read, so a reference reaches no
//! object that is not a provider's.
//!
//! Each kind is watched from its first use on. Only fields of the contract are kept.

mod changes;
mod contract;

use std::{collections::HashMap, sync::Arc, time::Duration};

use basics::LogOnce;
use cloudprovider::dns;
use component::api_client::describe;
use controller_kit::{
    cache::{Cache, watch_objects},
    kinds::regular_plural,
    writes::{WriteError, within_deadline},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
    core::GroupVersionKind,
};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use changes::ExternalChanges;
pub use contract::{Endpoint, External, FailureDomain};

use super::{object::key, place::Place};

/// The label of the contract on a definition. Its value has the versions that keep it, with underscores between.
const CONTRACT: &str = "cluster.x-k8s.io/v1beta2";
/// The same of the contract before.
const OLDER_CONTRACT: &str = "cluster.x-k8s.io/v1beta1";

/// The label on roles of providers that a role of this daemon takes up.
const AGGREGATED: &str = "cluster.x-k8s.io/aggregate-to-manager";

/// The group of Cluster API's own kinds.
pub(crate) const OWN_GROUP: &str = "cluster.x-k8s.io";

/// How many objects one page of a list has.
const PAGE: u32 = 500;

/// After this time, the definition of a kind is read again: its version may have changed.
const CHECKED_FOR: Duration = Duration::from_secs(300);

/// How long the first list of a kind may take. A pass that waits for it is tried again then.
const SYNCED_WITHIN: Duration = Duration::from_secs(30);

/// An API group and a kind in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// A kind that is watched.
#[derive(Clone, Debug)]
pub struct ExternalKind {
    /// Its group and kind.
    pub of: GroupKind,
    /// The version that is read.
    pub version: String,
    /// The plural in paths.
    pub plural: String,
    /// Its objects, by their keys.
    pub objects: Cache<External>,
}

impl ExternalKind {
    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<External>> {
        self.objects.get(&key(namespace, name))
    }

    /// Where the object of this name is in the API.
    pub fn place(&self, namespace: &str, name: &str) -> Place {
        Place {
            group: self.of.group.clone(),
            version: self.version.clone(),
            plural: self.plural.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.of.group, self.version)
    }
}

/// Why the objects of a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadable {
    /// There is no such kind. It may be installed later.
    #[error("{0}")]
    NoDefinition(String),
    /// The kind is not a provider's, or that of an older contract.
    #[error("{0}")]
    NoContract(String),
    /// The API server did not say.
    #[error("{0}")]
    Unknown(String),
}

/// The kinds that Clusters and Machines refer to. Clones share them.
#[derive(Clone, Debug)]
pub struct Externals(Arc<Shared>);

struct Shared {
    client: Client,
    namespace: Option<String>,
    watched: Mutex<HashMap<GroupKind, Watched>>,
    /// The kinds that the log says there is no permission for.
    forbidden: Mutex<LogOnce<GroupKind>>,
    /// How many kinds were watched so far.
    news: watch::Sender<u64>,
    stop: CancellationToken,
}

struct Watched {
    kind: ExternalKind,
    checked: Instant,
    _task: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Externals").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Externals {
    /// No kind is watched yet. `client` watches, in one namespace if there is one, until `stop` is cancelled.
    pub fn new(client: Client, namespace: Option<String>, stop: CancellationToken) -> Self {
        let news = watch::Sender::new(0);
        let (watched, forbidden) = Default::default();
        Self(Arc::new(Shared { client, namespace, watched, forbidden, news, stop }))
    }

    /// The objects of a kind. The first time, this waits until all are known.
    ///
    /// # Errors
    /// If there is no such kind of a provider, or if that is not known now.
    pub async fn of(&self, of: &GroupKind) -> Result<ExternalKind, NotReadable> {
        let known = self.0.watched.lock().get(of).map(|watched| (watched.kind.clone(), watched.checked));
        let kind = match known {
            Some((kind, checked)) if checked.elapsed() < CHECKED_FOR => kind,
            Some((kind, _)) => match self.discover(of).await {
                Ok((version, _)) if version == kind.version => {
                    if let Some(watched) = self.0.watched.lock().get_mut(of) {
                        watched.checked = Instant::now();
                    }
                    kind
                }
                Ok((version, plural)) => self.watch(of, version, plural, true),
                Err(NotReadable::Unknown(_)) => kind,
                Err(error) => return Err(error),
            },
            None => {
                let (version, plural) = self.discover(of).await?;
                self.check_permission(of, &version, &plural).await?;
                self.watch(of, version, plural, false)
            }
        };
        let synced = timeout(SYNCED_WITHIN, kind.objects.synced()).await;
        let words = |_| NotReadable::Unknown(format!("the list of {} has not arrived yet", kind.plural));
        synced.map_err(words)?;
        Ok(kind)
    }

    /// Which objects change from now on. Those that exist count as changed.
    pub fn changes(&self) -> ExternalChanges {
        ExternalChanges::new(self.clone(), self.0.news.subscribe())
    }

    fn all(&self) -> Vec<ExternalKind> {
        self.0.watched.lock().values().map(|watched| watched.kind.clone()).collect()
    }

    /// The version that keeps the contract, and the plural.
    async fn discover(&self, of: &GroupKind) -> Result<(String, String), NotReadable> {
        if of.group == OWN_GROUP {
            // A Machine would own, and delete, what is the user's Cluster.
            let GroupKind { group, kind } = of;
            return Err(NotReadable::NoContract(format!(
                "{kind} of {group} is of Cluster API itself, and no provider's"
            )));
        }
        let plural = regular_plural(&of.kind);
        let name = format!("{plural}.{}", of.group);
        // A user writes kind and group, and the name becomes a part of a path.
        if !dns::is_subdomain(&name) {
            return Err(NotReadable::NoDefinition(format!("there is no CustomResourceDefinition {name:?}")));
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(self.0.client.clone());
        let labels = match within_deadline(definitions.get_metadata(&name)).await {
            Ok(found) => found.metadata.labels.unwrap_or_default(),
            Err(WriteError::Gone) => {
                return Err(NotReadable::NoDefinition(format!(
                    "there is no CustomResourceDefinition {name}"
                )));
            }
            Err(error) => {
                return Err(NotReadable::Unknown(format!(
                    "CustomResourceDefinition {name} cannot be read: {error}"
                )));
            }
        };
        match labels.get(CONTRACT).and_then(|versions| newest(versions)) {
            Some(version) => Ok((version, plural)),
            None if labels.contains_key(OLDER_CONTRACT) => Err(NotReadable::NoContract(format!(
                "the provider of {name} keeps the contract v1beta1 alone, and v1beta2 is needed"
            ))),
            None => Err(NotReadable::NoContract(format!(
                "CustomResourceDefinition {name} has no label {CONTRACT}, so it is not a provider's"
            ))),
        }
    }

    /// Whether the objects of a kind may be listed. A watch would be refused for as long as the permission is missing. Users of the
    /// objects learn that it is, and the log says what to give.
    async fn check_permission(&self, of: &GroupKind, version: &str, plural: &str) -> Result<(), NotReadable> {
        let list = self.api(of, version, plural);
        let params = ListParams::default().limit(1);
        let answer = timeout(SYNCED_WITHIN, list.list_metadata(&params)).await;
        let Ok(Err(error @ kube::Error::Api(_))) = answer else {
            // Whatever else is wrong, the watch finds out.
            self.0.forbidden.lock().ends(of);
            return Ok(());
        };
        if !matches!(&error, kube::Error::Api(status) if status.code == 403) {
            return Ok(());
        }
        let name = format!("{plural}.{}", of.group);
        if self.0.forbidden.lock().begins(of) {
            tracing::warn!(
                error = describe(&error),
                "no permission to list {name}: give the ClusterRole of its provider the label {AGGREGATED}: \"true\", and the \
                 verbs get, list, watch, create, patch and delete on {name}"
            );
        }
        Err(NotReadable::Unknown(format!(
            "the lifecycle controllers have no permission for {name}; ask their operator to give it"
        )))
    }

    fn api(&self, of: &GroupKind, version: &str, plural: &str) -> Api<External> {
        let version = GroupVersionKind::gvk(&of.group, version, &of.kind);
        let resource = ApiResource::from_gvk_with_plural(&version, plural);
        match &self.0.namespace {
            Some(namespace) => Api::namespaced_with(self.0.client.clone(), namespace, &resource),
            None => Api::all_with(self.0.client.clone(), &resource),
        }
    }

    /// Watches a kind. One that is watched already stays, unless it `is_newer`.
    fn watch(&self, of: &GroupKind, version: String, plural: String, is_newer: bool) -> ExternalKind {
        let mut watched = self.0.watched.lock();
        if let Some(known) = watched.get(of)
            && !is_newer
        {
            return known.kind.clone();
        }
        let api = self.api(of, &version, &plural);
        let kind = ExternalKind { of: of.clone(), version, plural, objects: Cache::new() };
        let (objects, stop) = (kind.objects.clone(), self.0.stop.clone());
        let task = tokio::spawn(watch_objects("referenced objects", api, PAGE, objects, stop));
        let entry =
            Watched { kind: kind.clone(), checked: Instant::now(), _task: AbortOnDropHandle::new(task) };
        watched.insert(of.clone(), entry);
        self.0.news.send_modify(|news| *news += 1);
        kind
    }
}

/// The newest of the versions in the value of a contract's label: `v2` before `v1`, that before `v1beta2`, `v1beta1`, `v1alpha1`.
fn newest(versions: &str) -> Option<String> {
    let stability = |rest: &str| match rest {
        "" => Some((2, 0)),
        _ => {
            let number =
                |prefix| rest.strip_prefix(prefix).and_then(|number: &str| number.parse::<u32>().ok());
            number("beta").map(|beta| (1, beta)).or_else(|| number("alpha").map(|alpha| (0, alpha)))
        }
    };
    let rank = |version: &str| {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let (stability, minor) = stability(rest)?;
        Some((stability, major.parse::<u32>().ok()?, minor))
    };
    let ranked = versions.split('_').filter_map(|version| Some((rank(version)?, version)));
    ranked.max().map(|(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_version_of_a_contract_is_read() {
        for (versions, expected) in [
            ("v1beta2", Some("v1beta2")),
            ("v1alpha1_v1beta1_v1beta2", Some("v1beta2")),
            ("v1beta9_v1", Some("v1")),
            ("v1_v2_v10", Some("v10")),
            ("v1_v2beta1", Some("v1")),
            ("v1_x_", Some("v1")),
            ("", None),
            ("../v1", None),
            ("v1/..", None),
        ] {
            assert_eq!(newest(versions).as_deref(), expected, "{versions}");
        }
    }
}

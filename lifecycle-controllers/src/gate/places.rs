//! The namespaces where a Go manager runs, or would run.
//!
//! A namespace counts if one of these says so:
//! - its label `cluster.x-k8s.io/provider`, which Cluster API's manifests set;
//! - an object of clusterctl's inventory (kind `Provider`) in it;
//! - an object of Cluster API's operator (kind `CoreProvider` or `BootstrapProvider`) in it;
//! - a Deployment with the same label in it, if it is the manager's usual namespace or that of this daemon.
//!
//! Where nothing is found, the manager's usual namespace counts if it exists, else the daemon's own: the Lease is there until
//! a namespace of the manager appears.
//!
//! Users may write Deployments in their own namespaces. So a Deployment alone cannot direct the part to a namespace, in which
//! its user would hold the Lease and stop the part for everybody.

use std::{collections::BTreeSet, time::Duration};

use component::api_client::describe;
use futures::{StreamExt as _, future::select_all, stream::BoxStream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Part;

/// The label of everything that belongs to a provider of Cluster API.
const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider";

/// How often everything is looked at. Namespaces and Deployments are watched beside that.
const PERIOD: Duration = Duration::from_secs(30);

/// Changes that come together are looked at once.
const TOGETHER: Duration = Duration::from_millis(100);

/// Pause before a watch that ended is opened again, and before a failed look is repeated.
const AGAIN: Duration = Duration::from_secs(2);

/// What was found, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Namespaces with the label.
    labelled: BTreeSet<String>,
    /// Namespaces with an object of clusterctl's inventory or of the operator.
    inventory: BTreeSet<String>,
    /// Namespaces with a Deployment.
    deployments: BTreeSet<String>,
    /// Whether the manager's usual namespace exists.
    has_usual: bool,
}

impl Found {
    /// The namespaces whose Leases the part holds. `own` is the daemon's own namespace.
    pub(super) fn namespaces(&self, part: &Part, own: &str) -> BTreeSet<String> {
        let trusted = |namespace: &&String| **namespace == part.namespace || **namespace == own;
        let mut all: BTreeSet<String> = self.labelled.union(&self.inventory).cloned().collect();
        all.extend(self.deployments.iter().filter(trusted).cloned());
        if all.is_empty() {
            all.insert(if self.has_usual { part.namespace } else { own }.to_owned());
        }
        all
    }

    /// Namespaces with a Deployment that does not count.
    pub(super) fn ignored(&self, part: &Part, own: &str) -> BTreeSet<String> {
        self.deployments.difference(&self.namespaces(part, own)).cloned().collect()
    }
}

/// Finds the namespaces of one part.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) client: Client,
    pub(super) part: &'static Part,
    /// The daemon's own namespace.
    pub(super) own: String,
}

impl Places {
    /// Looks once.
    ///
    /// # Errors
    /// What could not be read, and why. Nothing is known then.
    pub(super) async fn look(&self) -> Result<Found, String> {
        let provider = self.part.provider;
        let label = self.label();
        let namespaces = self.list("", &["v1"], "Namespace", "namespaces", Some(&label)).await?;
        let usual = Api::<Namespace>::all(self.client.clone()).get_metadata_opt(self.part.namespace).await;
        let usual = usual
            .map_err(|error| format!("cannot get namespace {}: {}", self.part.namespace, describe(&error)))?;
        let deployments = self.list("apps", &["v1"], "Deployment", "deployments", Some(&label)).await?;
        let inventory =
            self.list("clusterctl.cluster.x-k8s.io", &["v1alpha3"], "Provider", "providers", None);
        let inventory = inventory.await?;
        let versions = ["v1alpha2", "v1alpha1"];
        let operator =
            self.list("operator.cluster.x-k8s.io", &versions, provider.kind, provider.plural, None).await?;
        let listed = inventory.iter().filter(|one| {
            let text = |field: &str| one.data.get(field).and_then(|value| value.as_str());
            text("type") == Some(provider.kind) && text("providerName") == Some(provider.name)
        });
        let operated = operator.iter().filter(|one| one.metadata.name.as_deref() == Some(provider.name));
        let namespace_of = |one: &DynamicObject| one.metadata.namespace.clone();
        let name_of = |one: &DynamicObject| one.metadata.name.clone();
        Ok(Found {
            labelled: namespaces.iter().filter_map(name_of).collect(),
            inventory: listed.chain(operated).filter_map(namespace_of).collect(),
            deployments: deployments.iter().filter_map(namespace_of).collect(),
            has_usual: usual.is_some(),
        })
    }

    /// Looks until that works. `failed` gets the reason of each failure.
    pub(super) async fn look_until_known(&self, mut failed: impl FnMut(String)) -> Found {
        loop {
            match self.look().await {
                Ok(found) => return found,
                Err(why) => failed(why),
            }
            sleep(AGAIN).await;
        }
    }

    /// Waits until the namespaces are others than these. A look that fails changes nothing.
    pub(super) async fn changed(&self, known: &BTreeSet<String>) {
        let mut watches =
            [self.wakes("", "Namespace", "namespaces"), self.wakes("apps", "Deployment", "deployments")];
        let mut look_at = Instant::now() + PERIOD;
        loop {
            let woken = select_all(watches.iter_mut().map(|watch| watch.next()));
            if timeout_at(look_at, woken).await.is_ok() {
                // Further events of the same change, such as the first ones of a watch, come within this time.
                let end = Instant::now() + TOGETHER;
                while timeout_at(end, select_all(watches.iter_mut().map(|watch| watch.next()))).await.is_ok()
                {
                }
            }
            match self.look().await {
                Ok(found) if found.namespaces(self.part, &self.own) != *known => return,
                Ok(_) => {}
                Err(error) => tracing::debug!(part = self.part.name, error, "cannot look for namespaces"),
            }
            look_at = Instant::now() + PERIOD;
        }
    }

    fn label(&self) -> String {
        format!("{PROVIDER_LABEL}={}", self.part.provider.label)
    }

    /// All objects of a kind, in the first of these versions that is served. Empty if none is.
    async fn list(
        &self,
        group: &str,
        versions: &[&str],
        kind: &str,
        plural: &str,
        label: Option<&str>,
    ) -> Result<Vec<DynamicObject>, String> {
        let params = label.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
        for version in versions {
            let api: Api<DynamicObject> =
                Api::all_with(self.client.clone(), &resource(group, version, kind, plural));
            match api.list(&params).await {
                Ok(list) => return Ok(list.items),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(format!("cannot list {plural}: {}", describe(&error))),
            }
        }
        Ok(Vec::new())
    }

    /// One item for each change of an object with the label, and at least for the first ones of each watch.
    fn wakes(&self, group: &str, kind: &str, plural: &str) -> BoxStream<'static, ()> {
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &resource(group, "v1", kind, plural));
        let params = WatchParams::default().labels(&self.label());
        let watches = futures::stream::unfold(Instant::now(), move |open_at| {
            let (api, params) = (api.clone(), params.clone());
            async move {
                sleep_until(open_at).await;
                let events = match api.watch_metadata(&params, "0").await {
                    Ok(events) => events.boxed(),
                    Err(_) => futures::stream::empty().boxed(),
                };
                let changes = events.filter_map(|event| {
                    let is_change = matches!(
                        event,
                        Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_))
                    );
                    std::future::ready(is_change.then_some(()))
                });
                Some((changes, Instant::now() + AGAIN))
            }
        });
        watches.flatten().boxed()
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
mod tests;

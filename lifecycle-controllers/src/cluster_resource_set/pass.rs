//! One pass over a `ClusterResourceSet`.

use std::sync::Arc;

use cluster_api::{
    Cluster, ClusterResourceSet, ClusterResourceSetBinding, ClusterResourceSetResourceKind as ResourceKind,
    ClusterResourceSetStrategy as Strategy, ResourceRef, ResourceSetBinding,
    names::{annotations, finalizers},
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use serde_json::json;

use super::{
    apply::{Kinds, apply},
    binding::{bindings_of, ensure, leave, needs_apply, note, part_of, save},
    manifest::manifests,
    resources::{Content, Found, name_of, own, read},
    status::{Applied, Problems, applied, status},
};
use crate::{
    adoption::without_finalizer,
    core::{Core, workload_key},
    engine::{
        control::{Failure, Then},
        object::{Meta as _, Stored},
    },
    workload::WorkloadCluster,
};

/// How many Clusters of a set are worked on at the same time.
const AT_ONCE: usize = 8;

/// So many resources a set may have, as its definition says.
const MOST_RESOURCES: usize = 100;

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, Failure> {
    let sets = &core.stores.cluster_resource_sets;
    let Some(set) = sets.get(of).filter(|set| core.is_ours(&***set)) else { return Ok(Then::WhenChanged) };
    let now = Timestamp::now().as_second();
    if set.annotations().contains_key(annotations::PAUSED) {
        core.writer.patch_status(sets, &**set, &status(&set, Applied::AsBefore, now)).await?;
        return Ok(Then::WhenChanged);
    }
    if set.is_deleting() {
        return delete(core, &set).await;
    }
    let set = if set.has_finalizer(finalizers::CLUSTER_RESOURCE_SET) {
        set
    } else {
        let mut all = set.finalizers().to_vec();
        all.push(finalizers::CLUSTER_RESOURCE_SET.to_owned());
        let patch = json!({"metadata": {"finalizers": all}});
        Arc::new(core.writer.patch(sets, &**set, patch).await?)
    };
    let clusters = selected(core, &set)?;
    let mut pass = Pass { core, set: &set, now, problems: Problems::default(), failure: None };
    pass.apply(&clusters).await;
    let Pass { problems, failure, .. } = pass;
    // What the bindings do not say yet is not said here either.
    let condition = match &failure {
        Some(_) if problems == Problems::default() => Applied::AsBefore,
        _ => applied(&problems, clusters.len()),
    };
    core.writer.patch_status(sets, &**set, &status(&set, condition, now)).await?;
    failure.map_or(Ok(Then::WhenChanged), Err)
}

/// Takes the set out of all bindings, and then lets go. What it applied stays.
async fn delete(core: &Core, set: &ClusterResourceSet) -> Result<Then, Failure> {
    for binding in bindings_of(core, set) {
        leave(core, set, &binding).await?;
    }
    if let Some(patch) = without_finalizer(set, finalizers::CLUSTER_RESOURCE_SET) {
        core.writer.release(set, patch).await?;
    }
    Ok(Then::WhenChanged)
}

/// Whether a set selects a Cluster. A selector that is empty selects none.
///
/// # Errors
/// If the selector cannot be read.
pub(super) fn selects(set: &ClusterResourceSet, cluster: &Cluster) -> Result<bool, Failure> {
    let selector = Selector::try_from(set.spec.cluster_selector.clone())
        .map_err(|error| Failure::Failed(format!("spec.clusterSelector: {error}")))?;
    Ok(!selector.selects_all() && selector.matches(cluster.labels()))
}

/// The Clusters that the set selects and that stay, by name.
fn selected(core: &Core, set: &ClusterResourceSet) -> Result<Vec<Arc<Stored<Cluster>>>, Failure> {
    let mut clusters = Vec::new();
    for cluster in core.stores.clusters.all() {
        let is_near = cluster.namespace_or_empty() == set.namespace_or_empty() && !cluster.is_deleting();
        if is_near && selects(set, &cluster)? {
            clusters.push(cluster);
        }
    }
    clusters.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    Ok(clusters)
}

/// A resource that is there.
struct Resource<'a> {
    of: &'a ResourceRef,
    /// Or what is wrong with what is in it.
    hash: Result<String, String>,
}

impl Resource<'_> {
    /// Whether it is still to be applied to a Cluster.
    fn is_missing_in(&self, part: &ResourceSetBinding, strategy: Strategy) -> bool {
        needs_apply(part, self.of, strategy, self.hash.as_deref().ok())
    }
}

/// A Cluster that is connected, and what the set has applied there.
struct Bound {
    name: String,
    connected: WorkloadCluster,
    kinds: Kinds,
    binding: Arc<Stored<ClusterResourceSetBinding>>,
    part: ResourceSetBinding,
}

/// What one pass works with.
struct Pass<'a> {
    core: &'a Core,
    set: &'a ClusterResourceSet,
    now: i64,
    problems: Problems,
    /// Why the pass is repeated, although nothing may change.
    failure: Option<Failure>,
}

impl Pass<'_> {
    async fn apply(&mut self, clusters: &[Arc<Stored<Cluster>>]) {
        let strategy = self.set.spec.strategy.unwrap_or(Strategy::ApplyOnce);
        let set = self.set;
        if set.spec.resources.len() > MOST_RESOURCES {
            let why = format!("spec.resources has more than {MOST_RESOURCES} entries");
            self.problems.internal.push(why);
            return;
        }
        let Some(resources) = self.resources(&set.spec.resources).await else { return };
        let mut bound = self.bind(clusters, &resources, strategy).await;
        for resource in &resources {
            if bound.iter().any(|one| resource.is_missing_in(&one.part, strategy)) {
                self.apply_resource(resource, strategy, &mut bound).await;
            }
        }
        for one in &bound {
            if let Err(failure) = save(self.core, set, &one.binding, &one.part).await {
                self.fail(&format!("ClusterResourceSetBinding {}", one.name), failure);
            }
        }
    }

    /// Looks at all resources and makes the set their owner. `None`: one cannot be used, so none is applied.
    async fn resources<'r>(&mut self, resources: &'r [ResourceRef]) -> Option<Vec<Resource<'r>>> {
        let (namespace, mut all, mut is_complete) = (self.set.namespace_or_empty(), Vec::new(), true);
        for of in resources {
            match read(self.core, namespace, of).await {
                Ok(Found::There(metadata, content)) => {
                    if let Err(failure) = own(self.core, self.set, of, &metadata).await {
                        self.fail(&name_of(of), failure);
                        is_complete = false;
                    }
                    all.push(Resource { of, hash: content.map(|content| content.hash()) });
                }
                // The others are applied meanwhile.
                Ok(Found::Missing) => self.problems.internal.push(format!("{} does not exist", name_of(of))),
                Ok(Found::WrongType) => {
                    self.problems.wrong_type.push(of.name.clone());
                    is_complete = false;
                }
                Err(failure) => {
                    self.fail(&name_of(of), failure);
                    is_complete = false;
                }
            }
        }
        if is_complete {
            return Some(all);
        }
        let faults = all.iter().filter_map(|one| one.hash.as_ref().err().map(|why| (one.of, why)));
        self.problems.not_applied.extend(faults.map(|(of, why)| format!("{}: {why}", name_of(of))));
        None
    }

    /// The bindings of all Clusters. Gives those that are connected. A Cluster that is not is a problem where something is to be applied:
    /// each daemon begins without connections.
    async fn bind(
        &mut self,
        clusters: &[Arc<Stored<Cluster>>],
        resources: &[Resource<'_>],
        strategy: Strategy,
    ) -> Vec<Bound> {
        let mut all = Vec::new();
        for cluster in clusters {
            let name = cluster.name_or_empty().to_owned();
            let binding = match ensure(self.core, self.set, cluster).await {
                Ok(binding) => binding,
                Err(failure) => {
                    self.fail(&format!("ClusterResourceSetBinding {name}"), failure);
                    continue;
                }
            };
            let part = part_of(&binding, self.set.name_or_empty());
            match self.core.workload.get(&workload_key(cluster.namespace_or_empty(), &name)) {
                Ok(connected) => {
                    all.push(Bound { name, connected, kinds: Kinds::default(), binding, part });
                }
                // The connection is a reason for a pass.
                Err(why) => {
                    if resources.iter().any(|resource| resource.is_missing_in(&part, strategy)) {
                        self.problems.internal.push(format!("Cluster {name}: {why}"));
                    }
                    if let Err(failure) = save(self.core, self.set, &binding, &part).await {
                        self.fail(&format!("ClusterResourceSetBinding {name}"), failure);
                    }
                }
            }
        }
        all
    }

    /// Applies a resource to the Clusters that need it. It is read again, so that one at a time is in memory.
    async fn apply_resource(&mut self, resource: &Resource<'_>, strategy: Strategy, bound: &mut [Bound]) {
        let content = match read(self.core, self.set.namespace_or_empty(), resource.of).await {
            Ok(Found::There(_, content)) => content,
            // It has changed since, for which there will be a pass.
            Ok(Found::Missing | Found::WrongType) => return,
            Err(failure) => return self.fail(&name_of(resource.of), failure),
        };
        let hash = content.as_ref().ok().map(Content::hash);
        let needs = |one: &&mut Bound| needs_apply(&one.part, resource.of, strategy, hash.as_deref());
        let manifests = match content.map_err(|why| vec![why]).and_then(|content| manifests(&content)) {
            Ok(manifests) => manifests,
            Err(faults) => {
                // It stays so until the resource changes, so nothing is repeated.
                let faults = faults.iter().map(|why| format!("{}: {why}", name_of(resource.of)));
                self.problems.not_applied.extend(faults);
                for one in bound.iter_mut().filter(needs) {
                    note(&mut one.part, resource.of, None, false, self.now);
                }
                return;
            }
        };
        let is_secret = resource.of.kind == ResourceKind::Secret;
        let applied: Vec<_> = bound
            .iter_mut()
            .filter(needs)
            .map(|one| async {
                let client = one.connected.client();
                let applied = apply(client, &mut one.kinds, &manifests, strategy, is_secret).await;
                note(&mut one.part, resource.of, hash.clone(), applied.is_ok(), self.now);
                (one.name.clone(), applied)
            })
            .collect();
        let mut applied: Vec<_> = stream::iter(applied).buffer_unordered(AT_ONCE).collect().await;
        applied.sort_by(|one, other| one.0.cmp(&other.0));
        for (cluster, result) in applied {
            let what = format!("Cluster {cluster}, {}", name_of(resource.of));
            match result {
                Ok(()) => {
                    tracing::info!(
                        cluster,
                        set = self.set.name_or_empty(),
                        resource = name_of(resource.of),
                        "applied"
                    );
                }
                Err(lines) => {
                    let lines: Vec<_> = lines.into_iter().map(|line| format!("{what}: {line}")).collect();
                    self.failure = Some(Failure::Failed(lines.join("; ")));
                    self.problems.not_applied.extend(lines);
                }
            }
        }
    }

    fn fail(&mut self, what: &str, failure: Failure) {
        match failure {
            // Another pass was faster, which is nobody's fault.
            Failure::Stale | Failure::Gone => {}
            Failure::Failed(why) => {
                self.problems.internal.push(format!("{what}: {why}"));
                self.failure = Some(Failure::Failed(format!("{what}: {why}")));
                return;
            }
        }
        self.failure.get_or_insert(failure);
    }
}

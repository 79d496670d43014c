//! What a machine waits for, for people. The decision is the one of a daemon that has just started, and
//! remembers nothing.

use cloudprovider::machines::Kinds;
use controller_kit::{
    cache::{Cache, CachedObject, Watched},
    writes::within_deadline,
};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicResourceScope, GroupVersionKind},
};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    auxiliary::WireAuxiliary,
    discovery::{discover, served_auxiliary},
    index::Index,
    names::{CORE_GROUP, PAUSED, READY, finalizer},
    object::InfraObject,
    object_key::{ObjectKey, ObjectKind},
    plan::{Next, Scope},
    status_only::states::{references, states_of},
    store::{Stores, WireCluster, WireInfra, WireMachine, key_of},
    view::View,
    writer::ObjectWriter,
};

/// What the controller finds about a machine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePlan {
    /// Its kind.
    pub kind: String,
    /// `spec.providerID`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The identity of its machine in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Whether its finalizer is there.
    pub finalizer: bool,
    /// The status-only objects that it uses, such as its failure domain, each with its state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// The conditions of its status: type, status, reason and message.
    pub conditions: Vec<String>,
    /// The objects that belong to it beside its own, each with its kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
    /// What the controller would do next.
    pub next: String,
}

/// Reads a machine and what surrounds it, and says what the controller would do next. `None`: there is no
/// such machine.
///
/// # Errors
/// The API server does not serve the kinds, or does not give the objects.
pub async fn explain(
    client: &Client,
    kinds: &Kinds,
    watch_filter: Option<&str>,
    (namespace, name): (&str, &str),
) -> Result<Option<MachinePlan>, String> {
    let served = discover(client, kinds).await?;
    let stores = Stores::default();
    let resource = |group: &str, version: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let own = |kind: ObjectKind| resource(kinds.group, kinds.version, &kind.kind(kinds), &kind.plural(kinds));
    let core = |kind: &str, plural: &str| resource(CORE_GROUP, served.core_version, kind, plural);
    fill::<WireInfra, _>(client, namespace, &own(ObjectKind::Machine), &stores.machines).await?;
    fill::<WireInfra, _>(client, namespace, &own(ObjectKind::Cluster), &stores.clusters).await?;
    fill::<WireMachine, _>(client, namespace, &core("Machine", "machines"), &stores.core_machines).await?;
    fill::<WireCluster, _>(client, namespace, &core("Cluster", "clusters"), &stores.core_clusters).await?;
    let mut index = Index::default();
    for (kind, store) in [(ObjectKind::Machine, &stores.machines), (ObjectKind::Cluster, &stores.clusters)] {
        for object in store.all() {
            let object = object.unpacked();
            let object_key = ObjectKey::new(kind, object.key());
            index.update(&object_key, Some(&object), kinds);
        }
    }
    let object_key = ObjectKey::new(ObjectKind::Machine, key_of(namespace, name));
    let Some(view) = View::of(&object_key, &stores, &index, None, kinds) else { return Ok(None) };
    let scope = Scope { kinds, watch_filter, provider: 0, now: Instant::now() };
    let mut next = view.next(&view.object, &view.unread(), &scope);
    if next == Next::ReadBootstrap
        && let Some(secret) = &view.bootstrap_secret
    {
        let writer = ObjectWriter::new(client.clone(), *kinds);
        let read = writer.bootstrap(namespace, secret).await.map_err(|error| error.to_string())?;
        next = view.next(&view.object, &read, &scope);
    }
    let object = &view.object;
    let conditions = object.status.get("conditions").and_then(serde_json::Value::as_array);
    let shown = |one: &serde_json::Value| {
        let words =
            ["type", "status", "reason", "message"].map(|field| one[field].as_str().unwrap_or_default());
        words.join(" ").trim_end().to_owned()
    };
    Ok(Some(MachinePlan {
        kind: kinds.machine.kind.to_owned(),
        provider_id: object.provider_id().map(str::to_owned),
        identity: object.identity(kinds).map(str::to_owned),
        finalizer: object.has_finalizer(&finalizer(kinds, &kinds.machine)),
        conditions: conditions.into_iter().flatten().map(shown).collect(),
        companions: companions(client, kinds, object).await,
        uses: uses(client, kinds, &view).await,
        next: words_of(&next, &view, &scope),
    }))
}

/// The objects of the provider's auxiliary kinds that name a machine as their owner, or why they are not
/// known.
async fn companions(client: &Client, kinds: &Kinds, object: &InfraObject) -> Vec<String> {
    let served = match served_auxiliary(client, kinds.auxiliary).await {
        Ok(served) => served,
        Err(why) => return vec![why],
    };
    let mut found = Vec::new();
    for (kind, _) in kinds.auxiliary.iter().zip(served).filter(|(kind, is_served)| kind.is_made && *is_served)
    {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let (cache, resource) = (Cache::new(), ApiResource::from_gvk_with_plural(&gvk, kind.plural));
        if let Err(why) = fill::<WireAuxiliary, _>(client, object.namespace(), &resource, &cache).await {
            found.push(why);
            continue;
        }
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let all = cache.all().into_iter().map(|kept| kept.unpacked());
        let own = all.filter(|kept| kept.is_owned_by(uid));
        found.extend(own.map(|kept| format!("{} {}", kind.kind, kept.object.name)));
    }
    found.sort();
    found
}

/// The status-only objects that a machine uses, or why they are not known.
async fn uses(client: &Client, kinds: &Kinds, view: &View) -> Vec<String> {
    let references = references(kinds, view.failure_domain(), view.specs());
    match states_of(client, kinds, &references, view.object.namespace()).await {
        Ok(states) => states.iter().map(ToString::to_string).collect(),
        Err(why) => vec![why],
    }
}

/// A decision in words.
fn words_of(next: &Next, view: &View, scope: &Scope<'_>) -> String {
    let object = &view.object;
    match next {
        Next::Ignore if !object.passes(scope.watch_filter) => {
            "do nothing: the label of --watch-filter has another value".to_owned()
        }
        Next::Ignore => "do nothing: it is being deleted, and nothing was made for it".to_owned(),
        Next::Rest | Next::At(_) => match [PAUSED, READY].map(|condition| object.condition(condition)) {
            [Some(paused), _] if paused["status"] == "True" => "do nothing: it is paused".to_owned(),
            [_, Some(ready)] => {
                let of = |field: &str| ready[field].as_str().unwrap_or_default();
                format!("do nothing until something changes: {}: {}", of("reason"), of("message"))
            }
            _ => "do nothing: it waits for its Machine, which has to own it, and for its Cluster".to_owned(),
        },
        Next::SayPaused => "say in its status that it is paused".to_owned(),
        Next::Say(ready) | Next::Defer(ready) => {
            format!("say in its status what it waits for: {}: {}", ready.reason, ready.message)
        }
        Next::ReadBootstrap => "read the Secret with the bootstrap data".to_owned(),
        Next::Identify => {
            "find out which machine in the cloud is its own, since another program has worked on it"
                .to_owned()
        }
        Next::Adopt => "write finalizer and mark, and then look at it in the cloud".to_owned(),
        Next::Ensure => "look at it in the cloud, and go one step on if something is missing".to_owned(),
        Next::Delete => "delete what was made for it in the cloud".to_owned(),
        Next::Release => "remove the finalizer: what carries its mark is another object's".to_owned(),
    }
}

async fn fill<W, Kept>(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    cache: &Cache<Kept>,
) -> Result<(), String>
where
    Kept: CachedObject,
    W: Watched<Kept, DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let api = Api::<W>::namespaced_with(client.clone(), namespace, resource);
    let listed = within_deadline(api.list(&ListParams::default()))
        .await
        .map_err(|error| format!("{} cannot be listed: {error}", resource.plural))?;
    // One that cannot be read is left out, as the controller does.
    cache.replace(listed.items.into_iter().filter_map(|one| one.try_into().ok()).collect());
    Ok(())
}

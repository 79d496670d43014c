//! `ConfigMap`s and Secrets that change.
//!
//! Two watches serve all sets. Their events have metadata alone, and nothing of them is kept. The API server sends only Secrets of
//! the sets' type, by a field selector; `ConfigMap`s have none.

use std::{collections::HashSet, sync::Arc, time::Duration};

use cloudprovider::{LogOnce, error_chain};
use cluster_api::{ClusterResourceSetResourceKind as ResourceKind, names::secrets::RESOURCE_SET_TYPE};
use component::watching::{self, watch};
use futures::{StreamExt as _, future::ready};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::watcher::{Config, Event},
};
use serde::de::DeserializeOwned;

use crate::{
    core::Core,
    engine::{
        control::Source,
        object::{Meta as _, key},
    },
    sources::paced,
};

/// How many objects one page of a list has.
const PAGE: u32 = 500;

/// After a change. A pass reads all resources of a set.
const PAUSE: Duration = Duration::from_secs(1);

/// The keys of sets that name a `ConfigMap` or Secret that changes.
pub(super) fn sources(core: &Arc<Core>, client: &Client) -> Vec<Source> {
    let of_type = Config::default().fields(&format!("type={RESOURCE_SET_TYPE}"));
    vec![
        source::<ConfigMap>(core, client, ResourceKind::ConfigMap, "ConfigMaps", Config::default()),
        source::<Secret>(core, client, ResourceKind::Secret, "Secrets of ClusterResourceSets", of_type),
    ]
}

fn source<K>(
    core: &Arc<Core>,
    client: &Client,
    kind: ResourceKind,
    plural: &'static str,
    config: Config,
) -> Source
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let client = watching::client(client.clone());
    let api: Api<PartialObjectMeta<K>> = match &core.options.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let (core, mut failing) = (Arc::clone(core), LogOnce::<()>::default());
    let keys = watch(api, config.page_size(PAGE)).map(move |event| match event {
        Ok(event) => {
            if !matches!(event, Event::Init) && failing.ends(&()) {
                tracing::info!("watch of {plural} works again");
            }
            keys_of(&core, kind, &event)
        }
        Err(error) => {
            if failing.begins(&()) {
                tracing::warn!(error = %error_chain(&error), "watch of {plural} failed, trying again");
            }
            HashSet::new()
        }
    });
    paced(keys.filter(|keys| ready(!keys.is_empty())).boxed(), PAUSE)
}

/// One that goes takes nothing from any cluster with it.
fn keys_of<K: Resource<DynamicType = ()>>(
    core: &Core,
    kind: ResourceKind,
    event: &Event<PartialObjectMeta<K>>,
) -> HashSet<String> {
    let (Event::Apply(object) | Event::InitApply(object)) = event else { return HashSet::new() };
    let (namespace, name) = (object.namespace_or_empty(), object.name_or_empty());
    let sets = core.stores.cluster_resource_sets.read();
    let of_object = sets.values().filter(|set| {
        let mut resources = set.spec.resources.iter();
        set.namespace_or_empty() == namespace && resources.any(|one| one.kind == kind && one.name == name)
    });
    of_object.map(|set| key(namespace, set.name_or_empty())).collect()
}

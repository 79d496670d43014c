//! What a pass over an object would do, for people. The controllers themselves decide: a request of theirs that would change something
//! is noted and not sent, and the pass goes as far as it goes without it.

mod duration;
mod notes;
mod subject;

use std::{sync::Arc, time::Duration};

use cluster_api::Cluster;
use component::{
    api_client::describe,
    events::{EventMetrics, EventObject, event_recorder},
    metrics::MetricSet as _,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::{
    duration::in_words,
    notes::Notes,
    subject::{Found, Subjects},
};
pub use self::{notes::ExplainedCondition, subject::ExplainedKind};
use crate::{
    core::{Core, CoreOptions, workload_key},
    engine::{
        control::{FailedPass, Then},
        external::Externals,
        object::key,
        stores::Stores,
        writer::Writer,
    },
    gate::PartFence,
    options::LifecycleOptions,
    workload::{AllowedAddresses, Connection, Connector, Dial, Options, WorkloadClusters},
};

/// How long the workload cluster may take to be connected. A daemon that runs has its connection.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// What the controllers find about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecyclePlan {
    /// Its kind.
    pub kind: &'static str,
    /// Whether `--watch-filter` leaves it to the controllers.
    #[serde(skip)]
    pub is_ours: bool,
    /// Of a Machine, the name of its object of the infrastructure's kind.
    #[serde(skip)]
    pub infrastructure: Option<String>,
    /// `status.phase`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Whether the workload cluster is connected, or why not.
    pub workload_cluster: String,
    /// The conditions of its status.
    pub conditions: Vec<ExplainedCondition>,
    /// What the controller would do next.
    pub next: Vec<String>,
}

/// Reads an object and what surrounds it, and says what its controller would do next. `None`: there is no such object. Lists may take
/// `limit` to arrive.
///
/// # Errors
/// The API server does not serve the kinds, or does not give the objects.
pub async fn explain(
    client: &Client,
    options: &LifecycleOptions,
    kind: ExplainedKind,
    (namespace, name): (&str, &str),
    limit: Duration,
) -> Result<Option<LifecyclePlan>, String> {
    let addresses = AllowedAddresses::of_flag(options.workload_networks.clone());
    explain_through(Arc::new(Dial::new(addresses)), client, options, kind, (namespace, name), limit).await
}

/// The same with workload clusters of this connector.
pub(crate) async fn explain_through(
    connector: Arc<dyn Connector>,
    client: &Client,
    options: &LifecycleOptions,
    kind: ExplainedKind,
    (namespace, name): (&str, &str),
    limit: Duration,
) -> Result<Option<LifecyclePlan>, String> {
    let stop = CancellationToken::new();
    let _ends_all = stop.clone().drop_guard();
    let notes = Notes::default();
    let core = core(&notes, connector, client, options, namespace, &stop)?;
    // The watches would try again for as long as they may. What no time mends is said at once.
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), namespace);
    let answer = timeout(limit, clusters.list_metadata(&ListParams::default().limit(1))).await;
    let answer = answer.map_err(|_| format!("no answer within {limit:?}"))?;
    answer.map_err(|error| {
        format!("Clusters of namespace {namespace} cannot be listed: {}", describe(&error))
    })?;
    let subjects = Subjects::new(kind, &core, options);
    // They end when they are dropped.
    let _watches = subjects.watch(client, namespace, &stop);
    timeout(limit, subjects.synced())
        .await
        .map_err(|_| format!("no list of {} within {limit:?}", subjects.missing().join(", ")))?;
    let Some(Found { place, cluster, is_ours }) = subjects.find(namespace, name) else { return Ok(None) };
    let workload_cluster = connected(&core, namespace, &cluster, &stop).await;
    let object: Value = core.writer.read_at(&place).await.map_err(|error| error.to_string())?;
    let outcome = subjects.pass(&key(namespace, name)).await;
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Some(LifecyclePlan {
        kind: kind.name(),
        is_ours,
        infrastructure: object["spec"]["infrastructureRef"]["name"].as_str().map(str::to_owned),
        phase: object["status"]["phase"].as_str().map(str::to_owned),
        workload_cluster,
        conditions: conditions.iter().map(ExplainedCondition::from).collect(),
        next: next(&notes, &outcome, conditions),
    }))
}

fn core(
    notes: &Notes,
    connector: Arc<dyn Connector>,
    client: &Client,
    options: &LifecycleOptions,
    namespace: &str,
    stop: &CancellationToken,
) -> Result<Arc<Core>, String> {
    let writes_nothing = notes.client(client.clone());
    let metrics = EventMetrics::unregistered().map_err(|error| error.to_string())?;
    let about = EventObject::lease(namespace, "", "");
    // Nothing writes what it records.
    let (events, _) = event_recorder("", writes_nothing.clone(), about, metrics);
    let connector = Arc::new(notes.connector(connector));
    Ok(Arc::new(Core {
        stores: Stores::default(),
        externals: Externals::new(client.clone(), Some(namespace.to_owned()), stop.clone()),
        workload: WorkloadClusters::new(
            writes_nothing.clone(),
            PartFence::default(),
            connector,
            Options { namespace: Some(namespace.to_owned()), ..Options::default() },
        ),
        writer: Writer::without_delays(writes_nothing),
        events,
        options: CoreOptions::new(options),
    }))
}

/// Waits for the connection to the workload cluster, and says how it is.
async fn connected(core: &Core, namespace: &str, cluster: &str, stop: &CancellationToken) -> String {
    let Some(uid) = core.cluster(namespace, cluster).and_then(|cluster| cluster.uid()) else {
        return format!("there is no Cluster {namespace}/{cluster}");
    };
    let key = workload_key(namespace, cluster);
    let (workload, stop) = (core.workload.clone(), stop.clone());
    tokio::spawn(async move { workload.run(stop).await });
    let mut changes = core.workload.changes();
    core.workload.follow(&key, &uid);
    let until_connected = async {
        while !matches!(core.workload.connection(&key), Connection::Connected { .. }) {
            changes.next().await;
        }
    };
    // What the connection says is shown either way.
    let _ = timeout(CONNECTED_WITHIN, until_connected).await;
    match core.workload.connection(&key) {
        Connection::Connected { .. } => "connected".to_owned(),
        Connection::NotConnected(why) => why.reason,
    }
}

/// What a pass came to. `before` are the conditions of the object.
fn next(notes: &Notes, outcome: &Result<Then, FailedPass>, before: &[Value]) -> Vec<String> {
    let noted = notes.in_words(before);
    if !noted.is_empty() {
        return noted;
    }
    vec![match outcome {
        Ok(Then::WhenChanged) => "write nothing until something changes".to_owned(),
        Ok(Then::After(wait)) => format!("write nothing, and look again after {}", in_words(*wait)),
        Err(FailedPass { why, .. }) => format!("fail and try again: {why}"),
    }]
}

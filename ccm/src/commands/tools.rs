//! Functions that the tools for operators share.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, Error, ErrorKind, InstanceLookup, LoadBalancerService, LoadBalancerStatus, Route,
    StartContext,
};
use component::{api_client, metrics::MetricSet as _};
use controller_kit::{
    cloud::{Cloud, CloudMetrics, Owner, Started},
    nodes::{Node, protobuf},
    secrets::ClusterSecrets,
    services::{ClusterServices, ServiceStore},
};
use kube::Client;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::flags::Flags;

/// Timeout for one request to the API server.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Timeout for the start of a provider, and again for its first inventory.
const CLOUD_DEADLINE: Duration = Duration::from_secs(20);

/// After this time without output, a tool reports what it waits for.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// How long a look-up is repeated for what the cloud still finds out, such as the tags of instances. Much of that, such as the address of
/// a guest, may take for ever.
const DETAILS_DEADLINE: Duration = Duration::from_secs(5);

/// Pause between look-ups until the provider knows its instances.
const LOOKUP_PAUSE: Duration = Duration::from_millis(500);

/// How a tool prints what it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Starts a provider, for the Services of the cluster too unless its machines alone are served. It runs until the last clone of the returned [`Cloud`] is dropped.
///
/// # Errors
/// The provider's error when it fails to start.
pub(super) async fn start_cloud(
    provider: Arc<dyn CloudProvider>,
    flags: &Flags,
    has_services: bool,
) -> Result<Cloud, String> {
    let stop = CancellationToken::new();
    let mut context = StartContext::new(stop, &flags.generic.cluster_name)
        .with_namespace(&flags.leader_election.resource_namespace)
        .with_takeover_after(flags.leader_election.takeover_after());
    if !has_services {
        context = context.without_services();
    }
    // Without an API server there are no Secrets. The provider reports that if its configuration names one.
    if let Ok((client, _)) = connect(flags).await {
        // Nothing can be written outside of a leader's term.
        if has_services {
            let services = ClusterServices::new(client.clone(), client.clone(), ServiceStore::new());
            context = context.with_services(Arc::new(services));
        }
        context = context.with_secrets(Arc::new(ClusterSecrets::new(client)));
    }
    let metrics = CloudMetrics::unregistered().map_err(|error| error.to_string())?;
    let waits_for = format!("cloud provider {} to start", provider.name());
    let starting = Started::start(provider, context, CLOUD_DEADLINE);
    let started = saying(&waits_for, starting).await.map_err(|error| error.report())?;
    Ok(Cloud::new(started, metrics).with_labels(flags.controllers.cloud_node.node_labels.0.clone()))
}

/// Whether a Node has the provider ID of another cloud, so that the daemon ignores it.
pub(super) fn is_foreign(cloud: &Cloud, node: &Node) -> bool {
    cloud.owner_of(node) == Owner::Foreign
}

/// Looks Nodes up. While the cloud cannot tell, this is repeated for some time, since the cloud may only be
/// slow. So it is for a shorter time while an instance is incomplete.
pub(super) async fn look_up(cloud: &Cloud, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
    let waits_for = format!("cloud provider {} to answer", cloud.provider().name());
    saying(&waits_for, look_up_in_time(cloud, nodes)).await
}

/// Looks all Nodes up once, since a provider may know only from that which Nodes its routes lead to. What it answers does not
/// matter.
pub(super) async fn introduce(cloud: &Cloud, nodes: &[Arc<Node>]) {
    let waits_for = format!("cloud provider {} to look up all Nodes", cloud.provider().name());
    let _ = saying(&waits_for, timeout(CLOUD_DEADLINE, cloud.lookup(nodes))).await;
}

/// The routes of the cluster, or why the cloud does not list them. `None` if the provider has no routes. While the cloud cannot
/// tell, this is repeated for some time, since it may only be slow.
pub(super) async fn list_routes(cloud: &Cloud, flags: &Flags) -> Option<Result<Vec<Route>, Error>> {
    if !cloud.has_routes() {
        return None;
    }
    let waits_for = format!("cloud provider {} to list its routes", cloud.provider().name());
    let routes = cloud.routes();
    Some(saying(&waits_for, in_time(|| routes.list(&flags.generic.cluster_name))).await)
}

/// Repeats a question while another try can help, for some time.
async fn in_time<T>(ask: impl AsyncFn() -> cloudprovider::Result<T>) -> cloudprovider::Result<T> {
    let deadline = Instant::now() + CLOUD_DEADLINE;
    loop {
        match timeout_at(deadline, ask()).await {
            Err(_) => {
                let late = format!("no answer within {CLOUD_DEADLINE:?}");
                return Err(Error::new(ErrorKind::Timeout, late));
            }
            Ok(Err(error)) if error.is_retryable() && Instant::now() + LOOKUP_PAUSE < deadline => {
                sleep(LOOKUP_PAUSE).await;
            }
            Ok(answer) => return answer,
        }
    }
}

/// Asks the cloud about a load balancer. While the cloud cannot tell, this is repeated for some time.
pub(super) async fn look_up_load_balancer(
    cloud: &Cloud,
    cluster_name: &str,
    service: &LoadBalancerService,
) -> cloudprovider::Result<Option<LoadBalancerStatus>> {
    let waits_for = format!("cloud provider {} to answer", cloud.provider().name());
    let in_time = in_time(|| cloud.get_load_balancer(cluster_name, service));
    saying(&waits_for, in_time).await
}

/// Waits for `work`. If that takes longer than [`SILENCE_MAX`], a message on stderr says what it waits for.
#[expect(clippy::print_stderr, reason = "a person who runs a tool sees why it takes long")]
async fn saying<T>(waits_for: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(SILENCE_MAX, work.as_mut()).await {
        return done;
    }
    eprintln!("Waiting for {waits_for}, {CLOUD_DEADLINE:?} at most ...");
    work.await
}

async fn look_up_in_time(cloud: &Cloud, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
    let began = Instant::now();
    let deadline = began + CLOUD_DEADLINE;
    let mut last = None;
    while let Ok(answers) = timeout_at(deadline, cloud.lookup_with_zones(nodes)).await {
        let has_details_to_come = began.elapsed() < DETAILS_DEADLINE;
        let may_help = answers.iter().any(|answer| match answer {
            InstanceLookup::Unknown(error) => error.is_retryable(),
            InstanceLookup::Present(instance) => {
                let why = instance.incomplete.as_ref();
                has_details_to_come && why.is_some_and(|why| why.kind() == ErrorKind::InProgress)
            }
            InstanceLookup::Absent => false,
        });
        if !may_help || Instant::now() >= deadline {
            return answers;
        }
        last = Some(answers);
        sleep(LOOKUP_PAUSE).await;
    }
    last.unwrap_or_else(|| {
        let words = format!("no answer within {CLOUD_DEADLINE:?}");
        InstanceLookup::all_unknown(nodes, &Error::new(ErrorKind::Timeout, words))
    })
}

/// A client for the API server in the flags, and the server's address. The client lists Nodes as the daemon
/// does.
///
/// # Errors
/// A fault in the flags or in the files that they name.
pub(super) async fn connect(flags: &Flags) -> Result<(Client, String), String> {
    let misc = &flags.misc;
    let (client, url) = api_client::connect(misc.kubeconfig.as_deref(), &misc.master)
        .await
        .map_err(|error| format!("{error:#}"))?;
    Ok((protobuf::client_for(&flags.generic.kube_api_content_type, client), url))
}

/// Lines of cells. Each column is as wide as its longest cell. The last column is not padded.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Joins the lines of a text into one.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        NodeIdentity,
        testing::{FakeCloud, FakeInstance, Fault, Operation},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn details_that_are_to_come_are_waited_for_a_while() {
        let untagged = || Error::new(ErrorKind::NotFound, "no tag");
        let unread = || Error::in_progress(Duration::from_secs(1), "tags are being read");
        for (why, seconds) in [(untagged(), 0), (unread(), DETAILS_DEADLINE.as_secs())] {
            let fake = FakeCloud::new();
            fake.put("u1", FakeInstance::running("10.0.0.1").named("one").with_incomplete(why));
            let started = Started::new(fake.provider(), CancellationToken::new());
            let cloud = Cloud::new(started, CloudMetrics::unregistered().expect("metrics"));
            let identity = NodeIdentity { name: "one".to_owned(), ..NodeIdentity::default() };
            let began = Instant::now();
            let answers = look_up(&cloud, &[Arc::new(Node { identity, ..Node::default() })]).await;
            assert_eq!(began.elapsed().as_secs(), seconds);
            assert!(matches!(&answers[..], [InstanceLookup::Present(_)]), "{answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_ends_in_time() {
        for (first, kind) in
            [(None, ErrorKind::Timeout), (Some(ErrorKind::Unavailable), ErrorKind::Unavailable)]
        {
            let fake = FakeCloud::new();
            if let Some(kind) = first {
                fake.fail_next(Operation::Lookup, Error::new(kind, "away"));
            }
            fake.fail(Operation::Lookup, Fault::Hang);
            let started = Started::new(fake.provider(), CancellationToken::new());
            let cloud = Cloud::new(started, CloudMetrics::unregistered().expect("metrics"));
            let began = Instant::now();
            let answers = look_up(&cloud, &[Arc::new(Node::default())]).await;
            assert_eq!(began.elapsed().as_secs(), CLOUD_DEADLINE.as_secs());
            assert!(
                matches!(&answers[..], [InstanceLookup::Unknown(error)] if error.kind() == kind),
                "{answers:?}"
            );
        }
    }
}

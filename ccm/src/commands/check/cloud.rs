//! Asks the cloud about all Nodes, and about a machine that nobody has.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloudprovider::{CHECK_NODE_NAME, CloudProvider, Error, ErrorKind, InstanceLookup};
use controller_kit::{cloud::Cloud, nodes::Node, services::read_in_use};
use futures::FutureExt as _;

use super::Report;
use crate::{
    commands::tools,
    controllers::route::ClusterCidrs,
    flags::{Flags, NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER, ROUTE_CONTROLLER, SERVICE_CONTROLLER},
};

/// Maximum number of names in a message.
const NAMES_SHOWN: usize = 5;

/// Maximum number of reported reasons why the cloud cannot tell.
const REASONS_SHOWN: usize = 5;

/// How long a provider may look for what tenants reach.
const OPENED_WITHIN: Duration = Duration::from_secs(20);

/// What a provider is there for.
#[derive(Clone, Copy)]
pub(super) enum Served<'a> {
    /// These Nodes, if they can be listed.
    Nodes(Option<&'a [Arc<Node>]>),
    /// Machines alone.
    Machines,
}

pub(super) async fn check_cloud(
    flags: &Flags,
    provider: Arc<dyn CloudProvider>,
    served: Served<'_>,
    report: &mut Report,
) {
    let name = provider.name().to_owned();
    for line in provider.open_to_tenants() {
        report.works("tenants", format!("{name}: {line}"));
    }
    let starting =
        std::panic::AssertUnwindSafe(tools::start_cloud(provider, flags, matches!(served, Served::Nodes(_))))
            .catch_unwind();
    let started = match starting.await {
        Ok(Ok(started)) => started,
        Ok(Err(why)) => return report.failed("cloud", format!("{name} does not start: {why}")),
        Err(_) => return report.failed("cloud", format!("{name} panicked while it started")),
    };
    match served {
        Served::Nodes(nodes) => {
            check_look_ups(&name, flags, &started, nodes, report).await;
            check_routes(&name, flags, &started, report).await;
            check_addresses(flags, &started, nodes.unwrap_or_default(), report).await;
        }
        Served::Machines if started.has_instances() => {
            check_look_ups(&name, flags, &started, Some(&[]), report).await;
        }
        Served::Machines => report.works("cloud", format!("{name} started")),
    }
    check_opened(&name, &started, report).await;
    started.stop().await;
}

/// What tenants reach though the configuration does not say so.
async fn check_opened(name: &str, started: &Cloud, report: &mut Report) {
    let provider = started.provider();
    let asking = std::panic::AssertUnwindSafe(provider.opened_unawares()).catch_unwind();
    let opened = tokio::time::timeout(OPENED_WITHIN, asking).await;
    for line in opened.ok().and_then(Result::ok).unwrap_or_default() {
        report.warning("tenants", format!("{name}: {line}"));
    }
}

/// Nothing is said where the route controller does not run.
async fn check_routes(name: &str, flags: &Flags, started: &Cloud, report: &mut Report) {
    const WHAT: &str = "routes";
    if !flags.enables(ROUTE_CONTROLLER) {
        return;
    }
    let Some(listed) = tools::list_routes(started, flags).await else { return };
    if let Err(fault) = ClusterCidrs::parse(&flags.generic.cluster_cidr) {
        report.failed(WHAT, format!("{fault}"));
    }
    match listed {
        Ok(routes) => report.works(WHAT, format!("{name} lists {} routes of this cluster", routes.len())),
        Err(error) => report.failed(WHAT, format!("{name} does not list its routes: {}", error.report())),
    }
}

/// Whether the provider has addresses to give that the cluster uses. Nothing is said where the API server cannot be asked, which
/// is told elsewhere.
async fn check_addresses(flags: &Flags, started: &Cloud, nodes: &[Arc<Node>], report: &mut Report) {
    if !flags.enables(SERVICE_CONTROLLER) {
        return;
    }
    let provider = started.provider();
    let Some(load_balancer) = provider.load_balancer() else { return };
    let Ok((client, _)) = tools::connect(flags).await else { return };
    let Ok(in_use) = read_in_use(client, nodes).await else { return };
    let asking = std::panic::AssertUnwindSafe(load_balancer.warnings_about(&in_use)).catch_unwind();
    for warning in asking.await.unwrap_or_default() {
        report.warning("addresses", warning);
    }
}

/// The names of Nodes by what the cloud says of them.
type ByReason<'a> = BTreeMap<String, Vec<&'a str>>;

/// Whether the provider finds no instance, and has its reasons to keep the Node, such as a setting.
fn is_kept(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Whether the cloud knows the instances of Nodes. Only with a controller of Nodes, a provider has to have some.
async fn check_look_ups(
    name: &str,
    flags: &Flags,
    started: &Cloud,
    nodes: Option<&[Arc<Node>]>,
    report: &mut Report,
) {
    if !started.has_instances() {
        if !flags.enables(NODE_CONTROLLER) && !flags.enables(NODE_LIFECYCLE_CONTROLLER) {
            return report.works("cloud", format!("{name} started"));
        }
        return report.warning(
            "cloud",
            format!("{name} started; it does not support instances, so no Node is initialised"),
        );
    }
    let (foreign, ours): (Vec<_>, Vec<_>) =
        nodes.unwrap_or_default().iter().cloned().partition(|node| tools::is_foreign(started, node));
    let asked: Vec<_> = ours.iter().cloned().chain([Arc::new(Node::of_nobody())]).collect();
    let mut answers = tools::look_up(started, &asked).await;
    let about_nobody = answers.pop();
    let (mut present, mut absent) = (0, Vec::new());
    let (mut unknown, mut kept, mut incomplete) = (ByReason::new(), ByReason::new(), ByReason::new());
    for (node, answer) in ours.iter().zip(&answers) {
        match answer {
            InstanceLookup::Present(instance) => {
                present += 1;
                if let Some(why) = &instance.incomplete {
                    incomplete.entry(why.report()).or_default().push(node.name());
                }
            }
            InstanceLookup::Absent => absent.push(node.name()),
            InstanceLookup::Unknown(error) if is_kept(error) => {
                kept.entry(error.report()).or_default().push(node.name());
            }
            InstanceLookup::Unknown(error) => unknown.entry(error.report()).or_default().push(node.name()),
        }
    }
    for limit in started.limits() {
        report.warning("cloud", format!("{name}: {limit}"));
    }
    let count = ours.len();
    for (why, names) in incomplete.iter().take(REASONS_SHOWN) {
        let (some, names) = (names.len(), shown(names));
        let said = format!("what {name} knows of {some} of {count} nodes is incomplete ({names}): {why}");
        report.warning("cloud", said);
    }
    for (why, names) in &kept {
        let (some, names) = (names.len(), shown(names));
        let said = format!("{name} finds no instance for {some} of {count} nodes ({names}): {why}");
        report.warning("cloud", said);
    }
    for (why, names) in unknown.iter().take(REASONS_SHOWN) {
        let said =
            format!("{name} cannot tell about {} of {count} nodes ({}): {why}", names.len(), shown(names));
        report.failed("cloud", said);
    }
    if unknown.len() > REASONS_SHOWN {
        let more = unknown.len() - REASONS_SHOWN;
        report.failed("cloud", format!("{name} cannot tell about more nodes, for {more} more reasons"));
    }
    match about_nobody {
        Some(InstanceLookup::Unknown(error)) if !is_kept(&error) => {
            let why = error.report();
            // If the cause is the same as for a Node, this error ends with the text of the Node's error and
            // needs no line of its own.
            if !unknown.keys().any(|known| why.ends_with(known)) {
                report.failed(
                    "cloud",
                    format!(
                        "{name} cannot tell about machines that it does not see (asked about {CHECK_NODE_NAME}, which \
                         nobody has): {why}"
                    ),
                );
            }
        }
        Some(InstanceLookup::Present(_)) => report.warning(
            "cloud",
            format!(
                "{name} has an instance even for {CHECK_NODE_NAME}, a machine that nobody has: it would initialise any Node"
            ),
        ),
        _ if unknown.is_empty() => {
            let of_nodes = match nodes {
                None => "no node was looked up, since the API server does not say which there are".to_owned(),
                Some(_) if count == 0 => "there is no node to look up".to_owned(),
                Some(_) => format!("it has instances for {present} of {count} nodes"),
            };
            let probe = format!("asked about {CHECK_NODE_NAME} too, which nobody has");
            report.works("cloud", format!("{name} answers; {of_nodes} ({probe})"));
        }
        _ => {}
    }
    if !absent.is_empty() {
        report.warning(
            "cloud",
            format!(
                "{name} has no instance for {} of {count} nodes: {} (see: explain NODE)",
                absent.len(),
                shown(&absent)
            ),
        );
    }
    if !foreign.is_empty() {
        let names: Vec<_> = foreign.iter().map(|node| node.name()).collect();
        report.works(
            "cloud",
            format!(
                "{} more, whose provider IDs are not of {name}, are left alone: {}",
                foreign.len(),
                shown(&names)
            ),
        );
    }
}

/// The first few of these names.
fn shown(names: &[&str]) -> String {
    let more = if names.len() > NAMES_SHOWN { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(NAMES_SHOWN).copied().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;

//! `check`: reports whether a daemon with these flags would work, without changing anything.

mod permissions;
mod report;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::Args;
use cloudprovider::{
    CHECK_NODE_NAME, CloudProvider, Error, ErrorKind, InstanceLookup, Registry, machines::Kinds,
};
use component::{api_client::describe, files::FilesRead};
use futures::FutureExt as _;
use kube::Client;

use super::tools::{self, Output};
use crate::{
    cloud::{self, Cloud},
    cloud_config::{CloudConfig, Reading},
    controllers::{
        machine::{self, told::states::all_states},
        route::ClusterCidrs,
    },
    daemon,
    flags::{Flags, MACHINE_CONTROLLER, NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER, ROUTE_CONTROLLER},
    nodes::{self, Node},
    permissions::Permission,
};
#[cfg(feature = "serving")]
use crate::{serving::ServingOptions, webhooks};
pub use report::{Finding, Report, Verdict};

/// Timeout for one request to the API server.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What concerns the configuration of a provider.
const CONFIGURATION: &str = "cloud configuration";

/// What concerns the machine controller.
const MACHINES: &str = "machines";

/// Maximum number of names in a message.
const NAMES_SHOWN: usize = 5;

/// Maximum number of reported reasons why the cloud cannot tell.
const REASONS_SHOWN: usize = 5;

/// Check what a daemon with these flags could do: its flags and its cloud configuration, the cloud, the API server and
/// every permission there. Nothing is changed. Ends with 0 if all that is needed works, with 1 otherwise.
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// How to print what was found: table or json.
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true, value_name = "FORM")]
    pub output: Output,

    /// The flags of the daemon.
    #[command(flatten)]
    pub flags: Flags,
}

/// Checks everything that can be checked.
pub async fn check(flags: &Flags, registry: &Registry) -> Report {
    let mut report = Report::default();
    let faults = flags.faults();
    for fault in &faults {
        report.failed("flags", fault);
    }
    for warning in flags.warnings() {
        report.warning("flags", warning);
    }
    if faults.is_empty() {
        report.works("flags", "every value can be used");
    }
    let provider = provider(flags, registry, &mut report);
    let others = machine_providers(flags, registry, &mut report);
    let of_main = provider.iter().filter(|_| flags.served_machines().of_main);
    let served: Vec<_> = of_main.chain(&others).cloned().collect();
    #[cfg(feature = "serving")]
    check_files(flags, &served, registry, &mut report).await;
    let mut for_cloud = Vec::new();
    for all in provider.iter().chain(&others) {
        for_cloud.extend(permissions::for_secrets(&**all));
    }
    for_cloud.extend(provider.iter().flat_map(|provider| permissions::for_services(flags, &**provider)));
    for_cloud
        .extend(served.iter().flat_map(|provider| permissions::for_machines(flags, &**provider, registry)));
    let kinds: Vec<_> = served.iter().filter_map(|provider| cloud::machine_kinds_of(&**provider)).collect();
    let nodes = check_api_server(flags, for_cloud, &kinds, &mut report).await;
    check_machines(flags, &served, &mut report);
    match provider {
        Some(provider) => check_cloud(flags, provider, Served::Nodes(nodes.as_deref()), &mut report).await,
        None if flags.cloud_provider().is_none() && !flags.machine_providers().is_empty() => {}
        None => report.skipped("cloud", "there is no provider to ask"),
    }
    for provider in others {
        check_cloud(flags, provider, Served::Machines, &mut report).await;
    }
    report
}

/// Whether the files of the ports can be used. The daemon ends where they cannot.
#[cfg(feature = "serving")]
async fn check_files(
    flags: &Flags,
    served: &[Arc<dyn CloudProvider>],
    registry: &Registry,
    report: &mut Report,
) {
    let of_port = Some(ServingOptions::from(flags)).filter(|options| options.secure_port != 0);
    if let Some(options) = of_port.filter(ServingOptions::names_files) {
        say_files("secure port", options.faults_of_files().await, report);
    }
    let types = served.iter().filter_map(|provider| registry.machines(provider.name()));
    if let Some(certificates) = webhooks::certificates(flags, types) {
        say_files("webhook port", certificates.faults_of_files(), report);
    }
}

#[cfg(feature = "serving")]
fn say_files(what: &'static str, faults: Vec<String>, report: &mut Report) {
    if faults.is_empty() {
        report.works(what, "the files that its flags name can be used");
    }
    for fault in faults {
        report.failed(what, fault);
    }
}

/// Whether these providers, whose machines are to be served, have some, and no kind twice.
fn check_machines(flags: &Flags, served: &[Arc<dyn CloudProvider>], report: &mut Report) {
    let is_main = |name: &str| flags.cloud_provider() == Some(name);
    let mut kinds = Vec::new();
    for provider in served {
        let name = provider.name();
        match cloud::machine_kinds_of(&**provider) {
            Some(found) => kinds.push((name, found)),
            None if is_main(name) && !flags.served_machines().is_main_named => report.warning(
                MACHINES,
                format!("{name} does not support machines, so {MACHINE_CONTROLLER} does not run"),
            ),
            None => report.failed(MACHINES, daemon::no_machines(name)),
        }
    }
    if let Some(fault) = daemon::fault_of_kinds(kinds) {
        report.failed(MACHINES, fault);
    }
}

/// The providers of `--machine-provider` that are not the one of `--cloud-provider`.
fn machine_providers(flags: &Flags, registry: &Registry, report: &mut Report) -> Vec<Arc<dyn CloudProvider>> {
    let others = flags.served_machines().others;
    others.iter().filter_map(|one| read(&CloudConfig::of_machines(one, registry), report)).collect()
}

fn provider(flags: &Flags, registry: &Registry, report: &mut Report) -> Option<Arc<dyn CloudProvider>> {
    if flags.cloud_provider().is_none() {
        if flags.machine_providers().is_empty() {
            report.skipped(CONFIGURATION, "--cloud-provider does not say which provider");
        }
        return None;
    }
    read(&CloudConfig::new(flags, registry), report)
}

/// Makes a provider from its configuration.
fn read(cloud_config: &CloudConfig, report: &mut Report) -> Option<Arc<dyn CloudProvider>> {
    const WHAT: &str = CONFIGURATION;
    // A provider's factory that panics must not end the report.
    let read =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cloud_config.read(&FilesRead::new())));
    let Ok(Reading { outcome, warnings }) = read else {
        report.failed(WHAT, "the provider panicked while it read it");
        return None;
    };
    match &outcome {
        Ok(_) => {
            let read = match (cloud_config.path(), warnings.len()) {
                (Some(path), 0) => format!("{} is good", path.display()),
                (Some(path), 1) => format!("{} can be used; one thing in it is to look at", path.display()),
                (Some(path), count) => {
                    format!("{} can be used; {count} things in it are to look at", path.display())
                }
                (None, 0) => "none is given, and none is needed".to_owned(),
                (None, _) => "none is given; what is there beside it is to look at".to_owned(),
            };
            report.works(WHAT, read);
        }
        Err(error) => report.failed(WHAT, format!("{error:#}")),
    }
    for warning in warnings {
        report.warning(WHAT, warning.to_string());
    }
    outcome.ok()
}

/// Checks the API server. Also returns the Nodes, if they can be listed.
async fn check_api_server(
    flags: &Flags,
    for_cloud: Vec<Permission>,
    kinds: &[Kinds],
    report: &mut Report,
) -> Option<Vec<Arc<Node>>> {
    let (client, url) = match tools::connect(flags).await {
        Ok(connected) => connected,
        Err(why) => {
            report.failed("API server", why);
            report.skipped("permissions", "there is no API server to ask");
            return None;
        }
    };
    match tokio::time::timeout(ANSWER_WITHIN, client.apiserver_version()).await {
        Ok(Ok(version)) => report.works("API server", format!("{url} is {}", version.git_version)),
        Ok(Err(error)) => {
            report.failed("API server", answer_of(&url, &error));
            report.skipped("permissions", "the API server cannot be asked");
            return None;
        }
        Err(_) => {
            report.failed("API server", format!("{url} did not answer within {ANSWER_WITHIN:?}"));
            report.skipped("permissions", "the API server cannot be asked");
            return None;
        }
    }
    permissions::check(flags, for_cloud, &client, report).await;
    for kinds in kinds {
        check_kinds(flags, &client, kinds, report).await;
    }
    // Without a provider for Nodes there is no right to list them.
    flags.cloud_provider()?;
    list_nodes(client).await
}

/// Whether the API server serves what the machine controller needs, and can convert it.
async fn check_kinds(flags: &Flags, client: &Client, kinds: &Kinds, report: &mut Report) {
    let namespace = Some(flags.controllers.machine.namespace.as_str()).filter(|name| !name.is_empty());
    let asked = async {
        let version = machine::served_kinds(client, kinds).await?;
        machine::read_one_of_each(client, kinds, namespace).await.map(|()| version)
    };
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(version)) => {
            let (machine, cluster) = (kinds.machine.kind, kinds.cluster.kind);
            report.works(MACHINES, format!("{machine}, {cluster} and Cluster API's {version} are served"));
            check_told(client, kinds, namespace, report).await;
        }
        Ok(Err(missing)) => report.failed(MACHINES, missing),
        Err(_) => report.failed(MACHINES, format!("the API server did not answer within {ANSWER_WITHIN:?}")),
    }
}

/// Whether the objects beside machines about which the machine controller says something are ready.
async fn check_told(client: &Client, kinds: &Kinds, namespace: Option<&str>, report: &mut Report) {
    let states = match tokio::time::timeout(ANSWER_WITHIN, all_states(client, kinds, namespace)).await {
        Ok(Ok(states)) => states,
        Ok(Err(why)) => return report.warning(MACHINES, why),
        Err(_) => {
            return report
                .warning(MACHINES, format!("the API server did not answer within {ANSWER_WITHIN:?}"));
        }
    };
    let mut ready = BTreeMap::<&str, usize>::new();
    for state in &states {
        if state.flaw.is_some() {
            report.warning(MACHINES, state.to_string());
        } else {
            *ready.entry(state.kind).or_default() += 1;
        }
    }
    for (kind, count) in ready {
        report.works(MACHINES, format!("{kind}: {count} ready"));
    }
}

fn answer_of(url: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            format!("{url} refuses our credentials (401 Unauthorized)")
        }
        kube::Error::Api(_) => format!("{url} answers: {}", describe(error)),
        other => format!("{url} cannot be reached: {}", describe(other)),
    }
}

async fn list_nodes(client: Client) -> Option<Vec<Arc<Node>>> {
    let listed = tokio::time::timeout(ANSWER_WITHIN, nodes::read_nodes(client)).await;
    // If this fails, the check of permissions reports the reason.
    Some(listed.ok()?.ok()?.into_iter().map(Arc::new).collect())
}

/// What a provider is there for.
#[derive(Clone, Copy)]
enum Served<'a> {
    /// These Nodes, if they can be listed.
    Nodes(Option<&'a [Arc<Node>]>),
    /// Machines alone.
    Machines,
}

async fn check_cloud(
    flags: &Flags,
    provider: Arc<dyn CloudProvider>,
    served: Served<'_>,
    report: &mut Report,
) {
    let name = provider.name().to_owned();
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
        }
        Served::Machines if started.has_instances() => {
            check_look_ups(&name, flags, &started, Some(&[]), report).await;
        }
        Served::Machines => report.works("cloud", format!("{name} started")),
    }
    started.stop().await;
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
mod tests {
    use cloudprovider::{
        ConfigProblem, Error, FactoryInput, NodeIdentity,
        testing::{FakeCloud, FakeInstance, Fault, Operation},
    };
    use component::metrics::MetricSet as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        cloud::{CloudMetrics, Started},
        flags,
    };

    fn found(text: &str) -> Vec<(Verdict, String)> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let mut registry = Registry::new();
        let factory = |input: &FactoryInput| {
            let text = input.config.as_deref().unwrap_or_default();
            for line in text.lines().filter(|line| line.starts_with('?')) {
                input.warn(ConfigProblem::new(line, "is odd"));
            }
            let problem = ConfigProblem::new("!", "is bad");
            if text.contains('!') {
                return Err(Error::invalid_configuration(vec![problem]));
            }
            Ok(FakeCloud::named("x").provider())
        };
        registry.register("x", factory).expect("free");
        let config = format!("--cloud-config={}", file.path().display());
        let flags = flags::parse(["ccm", "--cloud-provider=x", &config]).expect("a good command line");
        let mut report = Report::default();
        let provider = provider(&flags, &registry, &mut report);
        assert_eq!(provider.is_some(), !text.contains('!'));
        let place = file.path().display().to_string();
        let findings = report.findings().iter();
        findings.map(|finding| (finding.verdict, finding.detail.replace(&place, "FILE"))).collect()
    }

    /// What is said about a Node with this answer of the cloud.
    async fn said_of(answer: Answer) -> Vec<(Verdict, String)> {
        let fake = FakeCloud::named("x");
        match answer {
            Answer::Incomplete(why) => {
                fake.put("u1", FakeInstance::running("10.0.0.1").named("one").with_incomplete(why));
            }
            Answer::Fails(error) => fake.fail(Operation::Lookup, Fault::Error(error)),
        }
        let identity = NodeIdentity { name: "one".to_owned(), ..NodeIdentity::default() };
        let nodes = [Arc::new(Node { identity, ..Node::default() })];
        let started = Started::new(fake.provider(), CancellationToken::new());
        let cloud = Cloud::new(started, CloudMetrics::unregistered().expect("metrics"));
        let flags = flags::parse(["ccm", "--cloud-provider=x"]).expect("a good command line");
        let mut report = Report::default();
        check_look_ups("x", &flags, &cloud, Some(&nodes), &mut report).await;
        report.findings().iter().map(|finding| (finding.verdict, finding.detail.clone())).collect()
    }

    enum Answer {
        Incomplete(Error),
        Fails(Error),
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_a_node_from_being_initialised_is_shown() {
        let untagged = Error::new(ErrorKind::NotFound, "no tag of the category \"zone\"");
        let found = said_of(Answer::Incomplete(untagged)).await;
        let words = "what x knows of 1 of 1 nodes is incomplete (one): no tag of the category";
        assert!(
            found.iter().any(|(verdict, said)| *verdict == Verdict::Warning && said.starts_with(words)),
            "{found:?}"
        );
        assert!(found.iter().all(|(verdict, _)| *verdict != Verdict::Failed), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_a_setting_keeps_is_no_failure() {
        let kept = Error::new(ErrorKind::NotFound, "SKIP_NODE_DELETION is set, so it is kept");
        let found = said_of(Answer::Fails(kept)).await;
        let is_told = |(verdict, said): &(Verdict, String)| {
            *verdict == Verdict::Warning
                && said.starts_with("x finds no instance for 1 of 1 nodes (one): SKIP_NODE_DELETION")
        };
        assert!(
            found.iter().any(is_told) && found.iter().all(|(verdict, _)| *verdict != Verdict::Failed),
            "{found:?}"
        );
        let away = Error::new(ErrorKind::PermissionDenied, "no");
        let found = said_of(Answer::Fails(away)).await;
        assert!(found.iter().any(|(verdict, _)| *verdict == Verdict::Failed), "{found:?}");
    }

    #[test]
    fn every_warning_of_a_configuration_is_shown() {
        let row = |verdict, detail: &str| (verdict, detail.to_owned());
        assert_eq!(found(""), [row(Verdict::Ok, "FILE is good")]);
        assert_eq!(
            found("?a\n"),
            [
                row(Verdict::Ok, "FILE can be used; one thing in it is to look at"),
                row(Verdict::Warning, "?a: is odd")
            ]
        );
        assert_eq!(
            found("?a\n?b\n"),
            [
                row(Verdict::Ok, "FILE can be used; 2 things in it are to look at"),
                row(Verdict::Warning, "?a: is odd"),
                row(Verdict::Warning, "?b: is odd")
            ]
        );
    }

    #[test]
    fn a_refusal_shows_the_warnings_too() {
        let found = found("!\n?a\n");
        assert!(found[0].0 == Verdict::Failed && found[0].1.contains("!: is bad"), "{found:?}");
        assert_eq!(found[1..], [(Verdict::Warning, "?a: is odd".to_owned())]);
    }
}

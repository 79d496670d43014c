//! `check`: reports whether a daemon with these flags would work, without changing anything.

mod cloud;
mod lifecycle;
mod permissions;
mod report;
mod stored;

use std::{collections::BTreeMap, sync::Arc};

use clap::Args;
use cloudprovider::{CloudProvider, MachineTypes, Registry, machines::Kinds};
use component::{api_client::describe, files::FilesRead};
use controller_kit::{
    cloud::machine_kinds_of,
    nodes::{self, Node},
};
use kube::Client;
use machine_controller::{misconfigured, read_one_of_each, served_kinds, status_only::states::all_states};

use self::{
    cloud::{Served, check_cloud},
    report::MACHINES,
};
use super::tools::{self, ANSWER_WITHIN, Output};
use crate::{
    cloud_config::{CloudConfig, Reading},
    daemon,
    flags::{Flags, MACHINE_CONTROLLER},
    permissions::Permission,
};
#[cfg(feature = "serving")]
use crate::{serving::ServingOptions, webhooks};
pub use report::{Finding, Report, Verdict};

/// What concerns the configuration of a provider.
const CONFIGURATION: &str = "cloud configuration";

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
    let kinds: Vec<_> = served.iter().filter_map(|provider| machine_kinds_of(&**provider)).collect();
    let types: Vec<_> = served.iter().filter_map(|provider| registry.machines(provider.name())).collect();
    let nodes = check_api_server(flags, for_cloud, (&kinds, &types), &mut report).await;
    check_machines(flags, &served, &mut report);
    match provider {
        Some(provider) => check_cloud(flags, provider, Served::Nodes(nodes.as_deref()), &mut report).await,
        None if flags.cloud_provider().is_none() && needs_no_cloud(flags) => {}
        None => report.skipped("cloud", "there is no provider to ask"),
    }
    for provider in others {
        check_cloud(flags, provider, Served::Machines, &mut report).await;
    }
    report
}

/// Whether something runs without `--cloud-provider`: machines of other providers, or Cluster API's own controllers.
fn needs_no_cloud(flags: &Flags) -> bool {
    !flags.machine_providers().is_empty() || flags.runs_lifecycle()
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
        match machine_kinds_of(&**provider) {
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
        if !needs_no_cloud(flags) {
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
    (kinds, types): (&[Kinds], &[MachineTypes]),
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
    lifecycle::check_definitions(flags, &client, report).await;
    for types in types {
        stored::check_stored(&client, types, report).await;
    }
    // Without a provider for Nodes there is no right to list them.
    flags.cloud_provider()?;
    list_nodes(client).await
}

/// Whether the API server serves what the machine controller needs, and can convert it.
async fn check_kinds(flags: &Flags, client: &Client, kinds: &Kinds, report: &mut Report) {
    let namespace = Some(flags.controllers.machine.namespace.as_str()).filter(|name| !name.is_empty());
    let asked = async {
        let version = served_kinds(client, kinds).await?;
        read_one_of_each(client, kinds, namespace).await.map(|()| version)
    };
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(version)) => {
            let (machine, cluster) = (kinds.machine.kind, kinds.cluster.kind);
            report.works(MACHINES, format!("{machine}, {cluster} and Cluster API's {version} are served"));
            check_told(client, kinds, namespace, report).await;
            check_misconfigured(client, kinds, namespace, report).await;
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

/// Whether machines and clusters wait for another configuration.
async fn check_misconfigured(client: &Client, kinds: &Kinds, namespace: Option<&str>, report: &mut Report) {
    /// How many are named.
    const SHOWN: usize = 5;
    let found = match tokio::time::timeout(ANSWER_WITHIN, misconfigured(client, kinds, namespace)).await {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return report.warning(MACHINES, why),
        Err(_) => {
            return report
                .warning(MACHINES, format!("the API server did not answer within {ANSWER_WITHIN:?}"));
        }
    };
    for words in found.iter().take(SHOWN) {
        report.warning(MACHINES, words);
    }
    if let Some(more) = found.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        report.warning(MACHINES, format!("{more} more objects wait for another configuration"));
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

#[cfg(test)]
mod tests;

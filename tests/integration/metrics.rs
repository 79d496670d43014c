//! `/metrics`, compared with that of the Go framework's own binary.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context, ensure};
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;
use test_env::FrameworkCcm;
use tokio::time::sleep;

use crate::{
    api::Api,
    daemon::{DaemonProcess, binary},
    scenarios::Trials,
    serving::curl::Curl,
    support::*,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Metrics that only a Go program, an API server's library, or a controller that does not exist here has.
const ONLY_THERE: [&str; 10] = [
    "go_",
    "apiserver_",
    "aggregator_",
    "authentication_token_cache_",
    "cardinality_enforcement_",
    "disabled_metrics_",
    "hidden_metrics_",
    "registered_metrics_",
    "rest_client_transport_",
    "service_controller_",
];

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("metrics::as_the_go_framework_shows_them", compare)
}

/// The UUID of the only machine of libvirt's test driver.
const MACHINE: &str = "6695eb01-f6a4-8304-79aa-97f2502e193f";

async fn compare(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let arguments = ["--leader-elect-resource-name=theirs"];
    let cloud = json!({"instances": {"test": {"providerID": format!("libvirt:///{MACHINE}")}}});
    let theirs = FrameworkCcm::start(control_plane.kubeconfig(), &cloud.to_string(), &arguments)?;
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let kubeconfig = control_plane.kubeconfig().display();
    let (port, token) = (test_env::free_port()?, control_plane.admin_token());
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=100".to_owned(),
    ];
    let ours = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    kubelet::register(&api.client, &kubelet::node("test", MACHINE)).await?;
    kubelet::heartbeat(&api.client, "test", true).await?;
    // The metrics of requests, queues and controllers appear one after another.
    let problem = RefCell::new(String::new());
    let outcome = eventually(LIMIT, "both show the same", || async {
        sleep(Duration::from_millis(500)).await;
        let here = Curl::get(&format!("https://127.0.0.1:{port}/metrics")).token(token).send().await?;
        let found = theirs.get("/metrics", token).and_then(|there| differences(&there, &here.text()));
        let now = found.map_or_else(|error| format!("{error:#}"), |differences| differences.join("\n"));
        let same = now.is_empty().then_some(());
        problem.replace(now);
        Ok(same)
    })
    .await;
    ensure!(outcome.is_ok(), "{}\n{}", problem.into_inner(), ours.log());
    ours.terminate()
}

/// A metric without its values.
#[derive(Debug, Default, PartialEq)]
struct Shape {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
    bounds: BTreeSet<String>,
}

fn shapes(text: &str) -> BTreeMap<String, Shape> {
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut current);
            help.clone_into(&mut shapes.entry(current.clone()).or_default().help);
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut shapes.entry(current.clone()).or_default().kind);
        } else if let Some((labels, _)) = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')) {
            let shape = shapes.entry(current.clone()).or_default();
            for (name, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                if name == "le" {
                    shape.bounds.insert(value.trim_end_matches('"').to_owned());
                } else {
                    shape.labels.insert(name.to_owned());
                }
            }
        }
    }
    shapes
}

fn differences(theirs: &str, ours: &str) -> anyhow::Result<Vec<String>> {
    let (theirs, ours) = (shapes(theirs), shapes(ours));
    ensure!(theirs.len() > 40, "the Go framework shows only {} metrics", theirs.len());
    Ok(theirs
        .iter()
        .filter(|(name, _)| !ONLY_THERE.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|(name, shape)| ours.get(*name) != Some(*shape))
        .map(|(name, shape)| format!("{name} is {shape:?} there and here {:?}", ours.get(name)))
        .collect())
}

//! `/metrics` beside that of the Go framework's own binary.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use ccm::api_client::ClientOptions;
use futures::FutureExt;
use libtest_mimic::Trial;
use sandbox::kubelet;
use test_env::{FrameworkCcm, StartError};

use crate::{
    api::{Api, Target},
    clients::from_file,
    daemon::InProcess,
    fake_cloud::FakeCloud,
    support::*,
    trial::{Outcome, runtime, trial},
};

const LIMIT: Duration = Duration::from_secs(60);

/// What only a Go program, an API server's library, or a controller that is not there yet has.
const ONLY_THERE: [&str; 12] = [
    "go_",
    "apiserver_",
    "aggregator_",
    "authenticated_",
    "authentication_",
    "authorization_",
    "cardinality_enforcement_",
    "disabled_metrics_",
    "hidden_metrics_",
    "registered_metrics_",
    "rest_client_transport_",
    "service_controller_",
];

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("apiserver::metrics::as_the_go_framework_shows_them", beside)]
}

fn beside() -> Outcome {
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        let control_plane = api.control_plane.as_ref().context("the control plane")?;
        let arguments = ["--leader-elect-resource-name=theirs"];
        let theirs = FrameworkCcm::start(control_plane.kubeconfig(), "{}", &arguments)?;
        compare(&api, &theirs).boxed_local().await.map_err(StartError::from)
    })
}

async fn compare(api: &Api, theirs: &FrameworkCcm) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let options = ClientOptions { limit: Some((100.0, 100)), ..ClientOptions::default() };
    let parts = from_file(control_plane.kubeconfig(), options, FakeCloud::new().provider()).await?;
    let ours = InProcess::run_parts(parts, &[], true)?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    // What each request, queue and controller brings comes one by one.
    let mut problem = String::new();
    let outcome = eventually(LIMIT, "both show the same", || {
        let found = theirs
            .get("/metrics", control_plane.admin_token())
            .and_then(|theirs| differences(&theirs, &ours.metrics.text()));
        problem = match &found {
            Ok(differences) => differences.join("\n"),
            Err(error) => format!("{error:#}"),
        };
        let same = problem.is_empty().then_some(());
        async move { Ok(same) }
    })
    .await;
    ensure!(outcome.is_ok(), "{problem}");
    ours.stop().await
}

/// How a metric looks, without its values.
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

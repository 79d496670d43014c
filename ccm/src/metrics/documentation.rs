//! Makes docs/reference/metrics.md from the registered metrics, and checks that dashboard and alerts name only
//! these.
//! `UPDATE_DOCS=1 cargo test -p ccm --lib metrics::documentation` writes the page.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use component::{api_client::ClientMetrics, serving::AccessMetrics, work_queue::WorkQueueMetrics};
use http::StatusCode;
use serde_json::Value;

use super::{Described, new_metrics};

/// Taken from the Go framework's own `/metrics`: name, type, labels, bounds of buckets, help. What only a Go program or
/// an API server can have is left out.
const UPSTREAM: &str = include_str!("upstream.tsv");

const HEAD: &str = "# Metrics

<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p ccm --lib metrics::documentation`; do not edit. -->

What `/metrics` on the secure port shows. Names, labels, buckets and help texts of the first table are those of a Go
cloud-controller-manager, so dashboards and alerts go on working; what belongs to the Go runtime (`go_*`,
`rest_client_transport_*`) or to an API server's library (`apiserver_*`, `authentication_token_cache_*`) is not there.
A Grafana dashboard and alert rules are in [deploy/](../../deploy/). Histograms have classic buckets only: the format is text, in
which a Go program with the gate `NativeHistograms` shows no others either. `route_controller_route_sync_total` has upstream's
`outcome` and `trigger`: [routes.md](routes.md#metrics) says what they mean here. `service_controller_nodesync_latency_seconds`
is the time from a change of the set of Nodes until the last load balancer has it.

`controller_runtime_*` are those of Cluster API's managers, for the lifecycle controllers, whose names are the same: `machine`,
`machineset`, `machinedeployment` and so on. Their queues are `lifecycle-machine` and the like, since `workqueue_*` are of all controllers
of the daemon.

Two of the first table count what upstream does one Node at a time:

- `cloud_node_lifecycle_controller_monitor_nodes_duration_seconds` is a pass of the period, `--node-monitor-period`, with its writes.
  What is looked at in between, because the cloud or a Node changed, is none.
- `cloud_node_lifecycle_controller_cloud_provider_calls_total` counts each Node of a look-up, since one look-up answers for all of them
  what upstream asks about each in two calls. `instance_exists` is `success` where there is an instance, `instance_not_found` where
  there is none, `not_implemented` where the provider cannot tell, `canceled` where the controller stopped meanwhile, and
  `error` otherwise. `instance_shutdown` is `success` for each instance that there is. Ready Nodes are asked about too, in every twelfth pass.
  There is no `instance_metadata`: a Node without a provider ID is not judged. The calls themselves, by kind of
  error, are in `cloud_controller_manager_provider_calls_total`.
";

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

fn described() -> Vec<Described> {
    new_metrics().expect("metrics").described()
}

fn table(metrics: &[Described]) -> String {
    let mut text = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind,
            labels.join(", "),
            metric.help.replace('|', "\\|")
        )
        .expect("text");
    }
    text
}

#[test]
fn the_page_is_not_stale() {
    let (own, upstream): (Vec<_>, Vec<_>) = described().into_iter().partition(|metric| metric.is_own);
    let page = format!("{HEAD}\n## As upstream\n\n{}\n## Only here\n\n{}", table(&upstream), table(&own));
    let path = repository("docs/reference/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs/reference/metrics.md can be written");
    }
    assert_eq!(
        fs::read_to_string(path).unwrap_or_default(),
        page,
        "docs/reference/metrics.md is stale: UPDATE_DOCS=1 cargo test -p ccm --lib metrics::documentation"
    );
}

#[test]
fn upstreams_metrics_byte_for_byte() {
    let metrics = new_metrics().expect("metrics");
    // Each metric with labels is used once, so that it is shown.
    let client = metrics.get::<ClientMetrics>().expect("metrics");
    client.answered("GET", "h", Some(StatusCode::OK), true);
    client.took("GET", "h", std::time::Duration::ZERO);
    client.rate_limited("GET", "h", std::time::Duration::ZERO);
    client.request_size("GET", "h", 0);
    client.response_size("GET", "h").observe(0.0);
    let access = metrics.get::<AccessMetrics>().expect("metrics");
    access.authenticated(Some("u"), std::time::Duration::ZERO);
    access.authorized("allowed", std::time::Duration::ZERO);
    let _queue = metrics.get::<WorkQueueMetrics>().expect("metrics").named("Nodes");
    let described = metrics.described();
    let text = metrics.text();
    for line in UPSTREAM.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, kind, labels, bounds, help] = fields[..] else { panic!("{line}") };
        let ours = described.iter().find(|d| d.name == name);
        let ours = ours.unwrap_or_else(|| panic!("there is no {name}"));
        assert_eq!((ours.kind, ours.help.as_str()), (kind, help), "{name}");
        let wanted: BTreeSet<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
        assert_eq!(ours.labels.iter().map(String::as_str).collect::<BTreeSet<_>>(), wanted, "{name}");
        let bucket = format!("{name}_bucket{{");
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&bucket))
            .filter_map(|line| Some(line.split_once("le=\"")?.1.split_once('"')?.0))
            .collect();
        assert_eq!(found.join(","), bounds, "{name}");
    }
}

/// Keywords of `PromQL` that are followed by a list of labels.
const GROUPINGS: [&str; 5] = ["by", "without", "on", "ignoring", "group_left"];

/// Labels that are not the metric's own: the label of buckets, and those that Prometheus adds when it
/// scrapes.
const ADDED_LABELS: [&str; 6] = ["le", "job", "instance", "namespace", "pod", "cluster"];

/// Metrics of Prometheus itself.
const PROMETHEUS: [&str; 1] = ["up"];

/// Checks that every metric that an expression names exists, and that every label is one of these metrics'
/// labels.
fn check(expression: &str) {
    let described = described();
    let mut labels: BTreeSet<String> = ADDED_LABELS.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = expression
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.contains('_') && !word.starts_with("__"))
        .collect();
    let mut found = PROMETHEUS.iter().any(|name| expression.contains(name));
    for word in names {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end));
        let histogram =
            base.and_then(|base| described.iter().find(|d| d.name == base && d.kind == "histogram"));
        if let Some(metric) = described.iter().find(|d| d.name == word && d.kind != "histogram").or(histogram)
        {
            labels.extend(metric.labels.iter().cloned());
            found = true;
        } else {
            let is_function =
                ["_over_time", "_quantile", "_left", "_values"].iter().any(|end| word.ends_with(end));
            let is_quoted = expression.contains(&format!("\"{word}")) || expression.contains("$__");
            assert!(is_function || is_quoted || word.starts_with("DS_"), "no metric {word} in {expression}");
        }
    }
    assert!(found, "no metric at all in {expression}");
    for matcher in expression.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
        for pair in matcher.0.split("\",") {
            let label = pair.split(['=', '!']).next().unwrap_or_default().trim();
            assert!(label.is_empty() || labels.contains(label), "no label {label} in {expression}");
        }
    }
    for grouping in GROUPINGS {
        for list in expression.split(&format!("{grouping} (")).skip(1).filter_map(|rest| rest.split_once(')'))
        {
            for label in list.0.split(',').map(str::trim).filter(|label| !label.is_empty()) {
                assert!(labels.contains(label), "no label {label} in {expression}");
            }
        }
    }
}

#[test]
fn the_dashboard_names_what_exists() {
    let text = fs::read_to_string(repository("deploy/grafana-dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().expect("an expression"))
        .collect();
    assert!(expressions.len() > 15, "{}", expressions.len());
    expressions.into_iter().for_each(check);
}

#[test]
fn the_alerts_name_what_exists() {
    let text = fs::read_to_string(repository("deploy/prometheus-rules.yaml")).expect("the rules");
    let rules: Value = serde_saphyr::from_str(&text).expect("YAML");
    let groups = rules["spec"]["groups"].as_array().expect("groups");
    let rules: Vec<&Value> = groups.iter().flat_map(|g| g["rules"].as_array().expect("rules")).collect();
    assert!(rules.len() > 8, "{}", rules.len());
    let operate = fs::read_to_string(repository("docs/guides/operate.md")).expect("the page about operating");
    for rule in rules {
        let alert = rule["alert"].as_str().and_then(|name| name.strip_prefix("CloudControllerManager"));
        let alert = alert.expect("the name of an alert");
        assert!(operate.contains(&format!("`{alert}`")), "docs/guides/operate.md does not name {alert}");
        check(rule["expr"].as_str().expect("an expression"));
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].is_string(), "{rule} has no {key}");
        }
        assert!(
            ["critical", "warning", "info"]
                .contains(&rule["labels"]["severity"].as_str().expect("a severity"))
        );
    }
}

//! The definitions of a provider's kinds: what the API server accepts, refuses and prints.

use anyhow::{Context, Result, anyhow, ensure};
use cloudprovider::machines::DynMachines;
use kube::api::PatchParams;
use machine_controller::crds::Definitions;
use serde_json::{Value, json};

use super::{
    kinds::{Kinds, eventually, refused},
    provider::{GROUP, Provider},
};
use crate::api::Api;

const DRY_RUN: &str = "topology.cluster.x-k8s.io/dry-run";

pub(super) async fn checked(api: &Api) -> Result<()> {
    let provider = Provider::default();
    let definitions = Definitions::new("example", &provider.kinds(), &provider.schemas())?;
    let kinds = Kinds::new(api.client.clone());
    kinds.establish(&definitions).await?;
    let outcome = check(api, &kinds).await;
    kinds.remove(&definitions).await?;
    outcome
}

/// Checks everything, and reports everything that is wrong.
async fn check(api: &Api, kinds: &Kinds) -> Result<()> {
    let outcomes = [
        good_objects_are_accepted(kinds).await,
        wrong_objects_are_refused(kinds).await,
        some_fields_are_set_once(kinds).await,
        the_status_is_apart(kinds).await,
        wrong_statuses_are_refused(kinds).await,
        templates_stay_as_they_are(kinds).await,
        // Other tests remove kinds of the same category meanwhile.
        eventually(async || columns(api)).await,
    ];
    all_of(outcomes)
}

/// One error of all errors.
fn all_of(outcomes: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let errors: Vec<String> =
        outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

async fn good_objects_are_accepted(kinds: &Kinds) -> Result<()> {
    let made = kinds.apply("ExampleMachine", "small", &json!({"spec": {"cpus": 1}})).await?;
    ensure!(made["spec"] == json!({"cpus": 1, "powerOffMode": "hard"}), "{made}");
    for (name, spec) in [
        ("big", json!({"cpus": 4_294_967_295_u32, "powerOffMode": "soft", "disks": [{"sizeGiB": 20}]})),
        ("from-url", json!({"cpus": 1, "source": {"url": {"address": "http://a"}}})),
        (
            "from-volume",
            json!({"cpus": 1, "source": {"volume": "a"}, "nameServers": ["10.0.0.1", "10.0.0.2"]}),
        ),
        ("on-network", json!({"cpus": 1, "interface": {"type": "network", "network": "a"}})),
        ("on-bridge", json!({"cpus": 1, "interface": {"type": "bridge", "bridge": "a"}})),
        ("moved", json!({"cpus": 1, "providerID": "example:///1"})),
    ] {
        kinds.apply("ExampleMachine", name, &json!({"spec": spec})).await.with_context(|| name.to_owned())?;
    }
    let cluster = kinds.apply("ExampleCluster", "without-spec", &json!({})).await?;
    ensure!(cluster["spec"] == json!({}), "{cluster}");
    let endpoint = json!({"controlPlaneEndpoint": {"host": "api.example.com", "port": 6443}});
    kinds.apply("ExampleCluster", "prod", &json!({"spec": endpoint})).await?;
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
    let template = json!({"spec": {"template": {"metadata": metadata, "spec": {"cpus": 2}}}});
    kinds.apply("ExampleMachineTemplate", "workers", &template).await?;
    let template = json!({"spec": {"template": {"spec": {"pools": ["a"]}}}});
    kinds.apply("ExampleClusterTemplate", "prod", &template).await?;
    Ok(())
}

async fn wrong_objects_are_refused(kinds: &Kinds) -> Result<()> {
    let mut outcomes = Vec::new();
    let machine = |spec: Value| json!({"spec": spec});
    let endpoint = |endpoint: Value| json!({"spec": {"controlPlaneEndpoint": endpoint}});
    let long = "x".repeat(513);
    for (kind, object, words) in [
        ("ExampleMachine", json!({}), &["spec: Required value"][..]),
        ("ExampleMachine", machine(json!({})), &["spec.cpus: Required value"]),
        ("ExampleMachine", machine(json!({"cpus": 0})), &["spec.cpus", "greater than or equal to 1"]),
        (
            "ExampleMachine",
            machine(json!({"cpus": 4_294_967_296_u64})),
            &["spec.cpus", "less than or equal to 4294967295"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": "2"})),
            &["spec.cpus", "expected numeric (int or float), got string"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "cpu": 1})),
            &[".spec.cpu", "field not declared in schema"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "powerOffMode": "x"})),
            &["spec.powerOffMode", "\"hard\", \"soft\""],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "disks": [{"sizeGiB": 0}]})),
            &["spec.disks[0].sizeGiB", "a disk has a size"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "source": {"url": {}}})),
            &["spec.source.url.address: Required value"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "source": {"url": {"address": "a"}, "volume": "b"}})),
            &["spec.source", "oneOf"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "interface": {"type": "bridge", "network": "a"}})),
            &["spec.interface", "oneOf"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "interface": {"network": "a"}})),
            &["spec.interface.type: Required value"],
        ),
        (
            "ExampleMachine",
            machine(json!({"cpus": 1, "nameServers": ["a", "a"]})),
            &["spec.nameServers", "uplicate"],
        ),
        ("ExampleMachine", machine(json!({"cpus": 1, "providerID": ""})), &["spec.providerID", "at least 1"]),
        ("ExampleMachine", machine(json!({"cpus": 1, "providerID": long})), &["spec.providerID", "512"]),
        ("ExampleCluster", endpoint(json!({})), &["spec.controlPlaneEndpoint", "at least 1 properties"]),
        (
            "ExampleCluster",
            endpoint(json!({"host": "", "port": 0})),
            &["controlPlaneEndpoint.host", "controlPlaneEndpoint.port"],
        ),
        (
            "ExampleCluster",
            endpoint(json!({"host": "a", "port": 65536})),
            &["spec.controlPlaneEndpoint.port", "65535"],
        ),
        ("ExampleMachineTemplate", json!({}), &["spec: Required value"]),
        ("ExampleMachineTemplate", json!({"spec": {}}), &["spec.template: Required value"]),
        (
            "ExampleMachineTemplate",
            json!({"spec": {"template": {}}}),
            &["spec.template.spec: Required value"],
        ),
        (
            "ExampleMachineTemplate",
            json!({"spec": {"template": {"spec": {"cpus": 0}}}}),
            &["spec.template.spec.cpus", "greater than or equal to 1"],
        ),
        (
            "ExampleMachineTemplate",
            json!({"spec": {"template": {"spec": {"cpus": 1, "providerID": "example:///1"}}}}),
            &[".spec.template.spec.providerID", "field not declared in schema"],
        ),
        (
            "ExampleClusterTemplate",
            json!({"spec": {"template": {}}}),
            &["spec.template.spec: Required value"],
        ),
    ] {
        outcomes.push(refused(&format!("{kind} {object}"), kinds.apply(kind, "wrong", &object).await, words));
    }
    all_of(outcomes)
}

async fn some_fields_are_set_once(kinds: &Kinds) -> Result<()> {
    let machine = |id: Option<&str>| match id {
        Some(id) => json!({"spec": {"cpus": 1, "providerID": id}}),
        None => json!({"spec": {"cpus": 1}}),
    };
    kinds.apply("ExampleMachine", "once", &machine(None)).await?;
    kinds.apply("ExampleMachine", "once", &machine(Some("example:///1"))).await?;
    kinds.apply("ExampleMachine", "once", &machine(Some("example:///1"))).await?;
    let words = ["spec.providerID", "providerID cannot change once it is set"];
    for id in [Some("example:///2"), None] {
        refused(&format!("{id:?}"), kinds.apply("ExampleMachine", "once", &machine(id)).await, &words)?;
    }
    let at = |port: u16| json!({"spec": {"controlPlaneEndpoint": {"host": "a", "port": port}}});
    kinds.apply("ExampleCluster", "once", &json!({})).await?;
    let half = |part: Value| json!({"spec": {"controlPlaneEndpoint": part}});
    for (part, missing) in [(json!({"host": "b"}), "port"), (json!({"port": 6444}), "host")] {
        let words = [&*format!("spec.controlPlaneEndpoint.{missing}: Required value")];
        refused(&part.to_string(), kinds.apply("ExampleCluster", "once", &half(part.clone())).await, &words)?;
    }
    kinds.apply("ExampleCluster", "once", &at(6443)).await?;
    kinds.apply("ExampleCluster", "once", &at(6443)).await?;
    let words = ["spec.controlPlaneEndpoint", "controlPlaneEndpoint cannot change once it is set"];
    for changed in [at(6444), json!({"spec": {}}), json!({})] {
        refused(&changed.to_string(), kinds.apply("ExampleCluster", "once", &changed).await, &words)?;
    }
    Ok(())
}

fn condition(condition_type: &str) -> Value {
    json!({
        "type": condition_type, "status": "True", "reason": "Provisioned", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    })
}

async fn the_status_is_apart(kinds: &Kinds) -> Result<()> {
    let wrong = json!({"spec": {"cpus": 1}, "status": {"ready": true}});
    let made = kinds.apply("ExampleMachine", "shown", &wrong).await?;
    ensure!(made.get("status").is_none(), "{made}");
    kinds.apply("ExampleMachine", "shown", &json!({
        "metadata": {
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "prod-1", "uid": "u"},
            ],
        },
        "spec": {"cpus": 1, "providerID": "example:///shown"},
    }))
    .await?;
    let status = json!({
        "initialization": {"provisioned": true}, "ready": true, "failureDomain": "rack-a", "taskRef": "task-1",
        "addresses": [{"type": "Hostname", "address": "shown"}, {"type": "InternalIP", "address": "10.0.0.7"}],
        "conditions": [condition("Ready"), condition("Paused")],
    });
    let with_spec = json!({"spec": {"cpus": 9}, "status": status});
    let written = kinds.apply_status("ExampleMachine", "shown", &with_spec).await?;
    ensure!(written["status"] == status, "{written}");
    ensure!(written["spec"]["cpus"] == 1 && written["metadata"]["generation"] == 2, "{written}");
    let written = kinds
        .apply_status(
            "ExampleCluster",
            "prod",
            &json!({"status": {
                "initialization": {"provisioned": true}, "ready": true, "conditions": [condition("Ready")],
                "failureDomains": [
                    {"name": "rack-a", "controlPlane": true, "attributes": {"room": "1"}}, {"name": "rack-b"},
                ],
            }}),
        )
        .await?;
    ensure!(written["status"]["failureDomains"][0]["attributes"]["room"] == "1", "{written}");
    let status = json!({
        "capacity": {"cpu": 2, "memory": "8Gi", "nvidia.com/gpu": "1"},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
    });
    let written = kinds.apply_status("ExampleMachineTemplate", "workers", &json!({"status": status})).await?;
    ensure!(written["status"] == status, "{written}");
    Ok(())
}

async fn wrong_statuses_are_refused(kinds: &Kinds) -> Result<()> {
    let mut outcomes = Vec::new();
    let without_reason = |mut condition: Value| {
        condition.as_object_mut().map(|fields| fields.remove("reason"));
        condition
    };
    let in_state = |state: &str| {
        let mut condition = condition("Ready");
        condition["status"] = state.into();
        condition
    };
    for (kind, name, status, words) in [
        (
            "ExampleMachine",
            "shown",
            json!({"initialization": {"provisioned": "yes"}}),
            &["status.initialization.provisioned"][..],
        ),
        (
            "ExampleMachine",
            "shown",
            json!({"conditions": [without_reason(condition("Ready"))]}),
            &["status.conditions[0].reason: Required value"],
        ),
        (
            "ExampleMachine",
            "shown",
            json!({"conditions": [in_state("Maybe")]}),
            &["status.conditions[0].status", "\"True\", \"False\", \"Unknown\""],
        ),
        (
            "ExampleMachine",
            "shown",
            json!({"addresses": [{"type": "IP", "address": "a"}]}),
            &["status.addresses[0].type", "\"InternalIP\""],
        ),
        ("ExampleMachine", "shown", json!({"failureDomain": ""}), &["status.failureDomain"]),
        (
            "ExampleCluster",
            "prod",
            json!({"failureDomains": [{"controlPlane": true}]}),
            &["failureDomains", "name"],
        ),
        (
            "ExampleMachineTemplate",
            "workers",
            json!({"capacity": {"memory": "much"}}),
            &["status.capacity.memory"],
        ),
        (
            "ExampleMachineTemplate",
            "workers",
            json!({"nodeInfo": {"architecture": "x86"}}),
            &["status.nodeInfo.architecture", "\"amd64\""],
        ),
    ] {
        let outcome = kinds.apply_status(kind, name, &json!({"status": status})).await;
        outcomes.push(refused(&format!("{kind} {status}"), outcome, words));
    }
    all_of(outcomes)
}

async fn templates_stay_as_they_are(kinds: &Kinds) -> Result<()> {
    let words = ["spec.template.spec of a template cannot change"];
    for (kind, before, after) in [
        ("ExampleMachineTemplate", json!({"cpus": 2}), json!({"cpus": 3})),
        ("ExampleClusterTemplate", json!({"pools": ["a"]}), json!({"pools": ["b"]})),
    ] {
        let template = |annotations: Value, room: &str, spec: &Value| {
            let template = json!({"metadata": {"labels": {"room": room}}, "spec": spec});
            json!({"metadata": {"annotations": annotations}, "spec": {"template": template}})
        };
        let of_topology = json!({DRY_RUN: ""});
        let dry_run = || PatchParams { dry_run: true, ..PatchParams::apply("test") };
        kinds.apply(kind, "fixed", &template(json!({}), "1", &before)).await?;
        // A policy is in force some time after it was made.
        eventually(async || {
            let changed = template(json!({}), "1", &after);
            refused(kind, kinds.apply_with(dry_run(), kind, "fixed", &changed).await, &words)
        })
        .await?;
        refused(kind, kinds.apply(kind, "fixed", &template(json!({}), "1", &after)).await, &words)?;
        refused(kind, kinds.apply(kind, "fixed", &template(of_topology.clone(), "1", &after)).await, &words)?;
        let asked = kinds.apply_with(dry_run(), kind, "fixed", &template(of_topology, "1", &after)).await?;
        let field = if kind == "ExampleMachineTemplate" { "cpus" } else { "pools" };
        ensure!(asked["spec"]["template"]["spec"][field] == after[field], "{asked}");
        kinds.apply(kind, "fixed", &template(json!({}), "2", &before)).await.context("other labels")?;
    }
    Ok(())
}

/// The real `kubectl` prints the columns, and knows the short names and the category.
fn columns(api: &Api) -> Result<()> {
    let control_plane = api.control_plane.as_ref().ok_or_else(|| anyhow!("no real API server"))?;
    // What kubectl has learned before may be gone.
    let folder = tempfile::tempdir()?;
    let cache = format!("--cache-dir={}", folder.path().display());
    let get = |arguments: &[&str]| -> Result<Vec<Vec<String>>> {
        let arguments = [&["get", "-n", "default", &cache], arguments].concat();
        let table = control_plane.kubectl_output(&arguments)?;
        Ok(table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect())
    };
    let same = |found: Vec<Vec<String>>, heads: &str, row: &str| -> Result<()> {
        let (found_heads, rows) = found.split_first().context("no table")?;
        ensure!(found_heads.join(" ") == heads, "{found_heads:?}");
        // The age is different each time.
        let starts = |found: &Vec<String>| found.join(" ").starts_with(row);
        ensure!(rows.iter().any(starts), "{row} is not among {rows:?}");
        Ok(())
    };
    let heads = "NAME CLUSTER MACHINE READY REASON PROVIDERID AGE";
    same(get(&["exm"])?, heads, "shown prod prod-1 True Provisioned example:///shown ")?;
    let heads = "NAME CLUSTER MACHINE READY REASON PROVIDERID INTERNALIP FAILUREDOMAIN PAUSED AGE";
    let row = "shown prod prod-1 True Provisioned example:///shown 10.0.0.7 rack-a True ";
    same(get(&["exm", "-o", "wide"])?, heads, row)?;
    // A column without a value is empty.
    same(get(&["exc"])?, "NAME CLUSTER READY REASON ENDPOINT AGE", "prod True Provisioned api.example.com ")?;
    same(get(&["examplemachinetemplates"])?, "NAME CPU MEMORY AGE", "workers 2 8Gi ")?;
    same(get(&["exampleclustertemplates"])?, "NAME AGE", "prod ")?;
    let all = control_plane.kubectl_output(&["get", "-n", "default", &cache, "cluster-api", "-o", "name"])?;
    for kind in ["machine", "machinetemplate", "cluster", "clustertemplate"] {
        ensure!(all.contains(&format!("example{kind}.{GROUP}/")), "{all}");
    }
    Ok(())
}

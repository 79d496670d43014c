//! A real API server takes the definitions, lets good objects through and refuses bad ones with a clear message.
//!
//! It is the API server that estimates the cost of rules, so a rule that is too expensive fails here.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod cases;

use std::io::Write as _;
use std::process::{Output, Stdio};

use cluster_api::{KubeadmConfig, Machine, MachineDeployment, definitions::Provider};
use serde_json::{Value, json};
use test_env::{ControlPlane, ControlPlaneOptions, StartError};

use self::cases::{ACCEPTED, CHANGES, Case, HOSTILE, REFUSED};

#[test]
fn the_api_server_refuses_what_webhooks_refuse() {
    let control_plane = match ControlPlane::start(&ControlPlaneOptions::default()) {
        Ok(control_plane) => control_plane,
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    install(&control_plane);

    let accepted: Vec<Value> = objects("good", ACCEPTED);
    let output = kubectl(&control_plane, &["create", "--dry-run=server", "-f", "-"], accepted);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let refused = objects("bad", REFUSED);
    let output = kubectl(&control_plane, &["create", "--dry-run=server", "-f", "-"], refused);
    check("bad", REFUSED, &output);

    // what is let through is as the API server would store it
    let hostile = objects("hostile", HOSTILE);
    let output = kubectl(&control_plane, &["create", "--dry-run=server", "-o", "json", "-f", "-"], hostile);
    for object in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
        read(&object.unwrap());
    }

    let before: Vec<Value> =
        CHANGES.iter().enumerate().map(|(index, case)| base("changed", index, case)).collect();
    let output = kubectl(&control_plane, &["create", "-f", "-"], before);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = objects("changed", CHANGES);
    let output = kubectl(&control_plane, &["replace", "--dry-run=server", "-f", "-"], after);
    check("changed", CHANGES, &output);
}

/// Reads an object, or each object of a list, into its type. An object that cannot be read would hide all others of its kind
/// from a program that lists them.
fn read(object: &Value) {
    let result = match object["kind"].as_str().unwrap() {
        "List" => return object["items"].as_array().unwrap().iter().for_each(read),
        "Machine" => serde_json::from_value::<Machine>(object.clone()).map(drop),
        "MachineDeployment" => serde_json::from_value::<MachineDeployment>(object.clone()).map(drop),
        "KubeadmConfig" => serde_json::from_value::<KubeadmConfig>(object.clone()).map(drop),
        other => panic!("no type for {other}"),
    };
    result.unwrap_or_else(|error| panic!("{error}: {object:#}"));
}

fn install(control_plane: &ControlPlane) {
    let definitions: Vec<Value> = Provider::ALL
        .iter()
        .flat_map(|provider| provider.definitions().unwrap())
        .map(|definition| json!(definition))
        .map(|mut definition| {
            definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
            definition["kind"] = json!("CustomResourceDefinition");
            definition
        })
        .collect();
    let output = kubectl(control_plane, &["create", "-f", "-"], definitions);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    control_plane
        .kubectl_output(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])
        .unwrap();
}

fn kubectl(control_plane: &ControlPlane, arguments: &[&str], items: Vec<Value>) -> Output {
    let mut child = control_plane
        .kubectl()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    child.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn name(prefix: &str, index: usize) -> String {
    format!("{prefix}-{index:03}")
}

fn base(prefix: &str, index: usize, case: &Case) -> Value {
    let mut object: Value =
        serde_json::from_str(case.base).unwrap_or_else(|error| panic!("{error}: {}", case.base));
    object["metadata"] = json!({"name": name(prefix, index), "namespace": "default"});
    object
}

/// The bases of the cases with their changes.
fn objects(prefix: &str, cases: &[Case]) -> Vec<Value> {
    let changed = |(index, case): (usize, &Case)| {
        let mut object = base(prefix, index, case);
        for (field, value) in case.fields {
            set(&mut object, field, value);
        }
        object
    };
    cases.iter().enumerate().map(changed).collect()
}

/// Sets a field by its path with slashes, in JSON; an empty value removes it.
fn set(object: &mut Value, field: &str, value: &str) {
    let (parent, last) = field.rsplit_once('/').unwrap_or(("", field));
    let mut at = object;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    match (value, at) {
        ("", Value::Object(fields)) => {
            fields.remove(last).unwrap_or_else(|| panic!("no field {field}"));
        }
        (_, at) => at[last] = serde_json::from_str(value).unwrap_or_else(|error| panic!("{error}: {value}")),
    }
}

/// Whether each case was refused with its message.
fn check(prefix: &str, cases: &[Case], output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut failed = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        // what is said about an object begins with its name and ends where the next begins
        let said =
            errors.split(&format!("\"{prefix}-")).find(|said| said.starts_with(&format!("{index:03}")));
        if !said.is_some_and(|said| said.contains(case.message)) {
            failed.push(format!("{:?} {:?}: {}", case.fields, case.message, said.unwrap_or("let through")));
        }
    }
    assert!(failed.is_empty(), "{}\n--\n{errors}", failed.join("\n"));
}

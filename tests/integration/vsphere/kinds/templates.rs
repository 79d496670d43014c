//! The templates that users of Cluster API Provider vSphere start from, with plain values in the place of variables.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use cloudprovider::machines::GROUP;
use serde_json::Value;

/// Objects of the group in all templates, each with the name of its file. Those for VM Operator are left out: their
/// group is another one.
pub(in super::super) fn objects(folder: &Path) -> Result<Vec<(String, Value)>> {
    let mut objects = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = with_values(&fs::read_to_string(&path)?, |name| value(name).to_owned());
        for document in text.split("\n---\n") {
            if document.starts_with(&format!("apiVersion: {GROUP}/")) {
                let object = serde_saphyr::from_str(document).with_context(|| name.clone())?;
                objects.push((name.clone(), object));
            }
        }
    }
    Ok(objects)
}

/// The objects of a kind in a template, with these values.
pub(crate) fn objects_of_kind(
    template: &Path,
    kind: &str,
    values: impl Fn(&str) -> String,
) -> Result<Vec<Value>> {
    let text = with_values(&fs::read_to_string(template)?, values);
    let documents = text.split("\n---\n").filter(|one| one.contains(&format!("\nkind: {kind}\n")));
    documents.map(|one| serde_saphyr::from_str(one).context("an object")).collect()
}

/// `${NAME}` becomes a value, and `${NAME:=default}` the default.
fn with_values(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        text.push_str(before);
        let (variable, after) = after.split_once('}').unwrap_or((after, ""));
        rest = after;
        match variable.split_once(":=") {
            Some((_, default)) => text.push_str(default),
            None => text.push_str(&value(variable)),
        }
    }
    text.push_str(rest);
    text
}

fn value(variable: &str) -> &str {
    match variable {
        "NAMESPACE" => "default",
        "CONTROL_PLANE_ENDPOINT_IP" => "192.0.2.1",
        "NAMESERVER" => "192.0.2.53",
        "VSPHERE_SERVER" => "vcenter.example.org",
        "VSPHERE_DATACENTER" => "DC0",
        "VSPHERE_TLS_THUMBPRINT" => "AA:BB",
        name if name.ends_with("_COUNT") => "1",
        _ => "some",
    }
}

//! kubeadm itself accepts the configuration of each case, in the version of its API that it knows.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests may")]

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;
use support::cases;
use test_env::{StartError, built};

/// Cases whose content kubeadm refuses, with a part of its message.
const REFUSED: &[(&str, &str)] = &[
    ("init-cluster-configuration", "Gate9 is not a valid feature name"),
    ("init-configuration", "the BootstrapToken .TTL and .Expires fields are mutually exclusive"),
];

/// kubeadm, if this machine has it or can build it. With `CI` it must.
fn kubeadm() -> Option<PathBuf> {
    match built("kubeadm") {
        Ok(folder) => Some(folder.join("kubeadm")),
        Err(StartError::Unavailable(reason)) if env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// kubeadm's file in a cloud-config.
fn configuration(data: &[u8]) -> String {
    let text = str::from_utf8(data).expect("UTF-8");
    let document: Value = serde_saphyr::from_str(text).expect("YAML");
    let files = document["write_files"].as_array().expect("files");
    let file =
        files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.starts_with("/run/kubeadm/")));
    file.expect("kubeadm's file")["content"].as_str().expect("a text").to_owned()
}

/// The text as cloud-init renders it, with one value for every expression.
fn rendered(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (_, after) = after.split_once("}}").unwrap_or_default();
        out.push_str(before);
        out.push_str("rendered");
        rest = after;
    }
    out + rest
}

#[test]
fn kubeadm_accepts_each_configuration() {
    let Some(kubeadm) = kubeadm() else { return };
    let output = Command::new(&kubeadm).args(["version", "--output=short"]).output().expect("kubeadm runs");
    let version = String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    // kubeadm looks for the kubeconfig that the machine would have
    let kubeconfig = folder.path().join("discovery.conf");
    fs::write(&kubeconfig, "").expect("a file");
    let config = folder.path().join("kubeadm.yaml");
    let mut checked = 0;
    for (name, case) in cases() {
        let is_of_v1beta3 =
            (22..=30).any(|minor| case.version().trim_start_matches('v').starts_with(&format!("1.{minor}.")));
        let Ok(data) = case.data(&version) else { continue };
        if is_of_v1beta3 || data.format_name() == "ignition" {
            continue;
        }
        let text = rendered(&configuration(&data.bytes));
        let text: String = text
            .lines()
            .map(|line| match line.split_once("kubeConfigPath: ") {
                Some((before, _)) => format!("{before}kubeConfigPath: {}\n", kubeconfig.display()),
                None => format!("{line}\n"),
            })
            .collect();
        fs::write(&config, &text).expect("a file");
        let output = Command::new(&kubeadm).args(["config", "validate", "--config"]).arg(&config).output();
        let output = output.expect("kubeadm runs");
        let message = String::from_utf8_lossy(&output.stderr);
        match REFUSED.iter().find(|(case, _)| *case == name) {
            Some((_, reason)) => assert!(message.contains(reason), "{name}: {message}"),
            None => assert!(output.status.success(), "{name}: {message}\n{text}"),
        }
        checked += 1;
    }
    assert!(checked >= 40, "only {checked} cases");
}

//! Which crate may depend on which.

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use serde_json::Value;

/// A crate, the workspace's crates that it may depend on, and those that its tests may use as well.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Every crate of the workspace.
const RULES: [Rule; 11] = [
    ("basics", &[], &[]),
    ("cloudprovider", &["basics"], &[]),
    ("sandbox", &[], &[]),
    ("cloudprovider-libvirt", &["cloudprovider"], &[]),
    ("cloudprovider-vsphere", &["cloudprovider"], &["test-env"]),
    ("component", &["basics"], &["sandbox"]),
    ("ccm", &["cloudprovider", "component"], &["sandbox"]),
    // The only crate that knows the providers.
    (
        "cloud-controller-manager",
        &["ccm", "cloudprovider", "cloudprovider-libvirt", "cloudprovider-vsphere"],
        &["sandbox"],
    ),
    ("test-env", &[], &[]),
    (
        "bench",
        &["ccm", "cloudprovider", "cloudprovider-libvirt", "cloudprovider-vsphere", "sandbox", "test-env"],
        &[],
    ),
    (
        "integration-tests",
        &[],
        &["ccm", "cloudprovider", "cloudprovider-libvirt", "cloudprovider-vsphere", "sandbox", "test-env"],
    ),
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The packages of the workspace, as `cargo metadata` has them.
pub(crate) fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--format-version=1", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn no_crate_depends_on_more_of_ours_than_it_may() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(|package| text(&package["name"])).collect();
    let ruled: BTreeSet<&str> = RULES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(ours, ruled, "every crate of the workspace has a rule in {}", file!());
    for package in &packages {
        let name = text(&package["name"]);
        let (_, may, tests_may) = RULES.iter().find(|(ruled, ..)| *ruled == name).expect("a rule");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let of = text(&dependency["name"]);
            let is_for_tests = text(&dependency["kind"]) == "dev";
            let is_allowed = may.contains(&of) || (is_for_tests && tests_may.contains(&of));
            // A crate may depend on itself with other features, for its own tests.
            let is_itself = of == name && is_for_tests;
            assert!(
                !ours.contains(of) || is_itself || is_allowed,
                "{name} may not depend on {of}; of ours it may on {may:?}, and its tests on {tests_may:?} as well"
            );
        }
    }
}

//! Which crate may depend on which.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::Value;

/// A crate, the workspace's crates that it may depend on, and those that its tests may use as well.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Every crate of the workspace.
const RULES: [Rule; 22] = [
    // Knows neither clouds nor Kubernetes: addresses on this host.
    ("announcing", &["netlink"], &[]),
    ("address-pools", &["announcing", "cloudprovider", "provider-kit"], &[]),
    ("basics", &[], &[]),
    ("cloudprovider", &["basics"], &[]),
    // Pure: it decides, and knows no API server.
    ("lifecycle", &[], &["test-env"]),
    ("cluster-api", &[], &["test-env"]),
    // Pure: what a machine reads at its first boot.
    ("kubeadm-bootstrap", &["basics", "cluster-api"], &["test-env"]),
    (
        "lifecycle-controllers",
        &[
            "basics",
            "cloudprovider",
            "cluster-api",
            "component",
            "controller-kit",
            "kubeadm-bootstrap",
            "lifecycle",
        ],
        &["sandbox"],
    ),
    ("netlink", &[], &[]),
    ("provider-kit", &["cloudprovider"], &[]),
    ("sandbox", &[], &[]),
    ("cloudprovider-libvirt", &["address-pools", "cloudprovider", "netlink", "provider-kit"], &["test-env"]),
    ("cloudprovider-rancher", &["address-pools", "cloudprovider", "provider-kit"], &["test-env"]),
    ("cloudprovider-vsphere", &["address-pools", "cloudprovider", "provider-kit"], &["test-env"]),
    ("component", &["basics"], &["sandbox"]),
    ("controller-kit", &["cloudprovider", "component"], &["sandbox"]),
    ("machine-controller", &["cloudprovider", "component", "controller-kit"], &["sandbox"]),
    (
        "ccm",
        &[
            "cloudprovider",
            "cluster-api",
            "component",
            "controller-kit",
            "lifecycle-controllers",
            "machine-controller",
        ],
        &["sandbox"],
    ),
    // The only crate that knows the providers.
    (
        "cloud-controller-manager",
        &[
            "ccm",
            "cloudprovider",
            "cloudprovider-libvirt",
            "cloudprovider-rancher",
            "cloudprovider-vsphere",
            "machine-controller",
        ],
        &["sandbox"],
    ),
    ("test-env", &[], &[]),
    (
        "bench",
        &[
            "ccm",
            "cloudprovider",
            "cloudprovider-libvirt",
            "cloudprovider-vsphere",
            "controller-kit",
            "machine-controller",
            "sandbox",
            "test-env",
        ],
        &["announcing"],
    ),
    (
        "integration-tests",
        &[],
        &[
            "address-pools",
            "ccm",
            "cloudprovider",
            "cloudprovider-libvirt",
            "cloudprovider-rancher",
            "cloudprovider-vsphere",
            "cluster-api",
            "controller-kit",
            "machine-controller",
            "provider-kit",
            "sandbox",
            "test-env",
        ],
    ),
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// What cargo says, without asking any registry.
fn cargo(arguments: &[&str]) -> Vec<u8> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).arg("--offline").current_dir(root()).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The packages of the workspace, as `cargo metadata` has them.
pub(crate) fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Value = serde_json::from_slice(&metadata).expect("JSON");
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

/// What a provider's author never compiles because of the contract.
const NOT_IN_THE_CONTRACT: [&str; 5] = ["hyper", "k8s-openapi", "kube", "kube-core", "reqwest"];

#[test]
fn the_contract_has_no_client_of_kubernetes_and_no_http() {
    let tree =
        cargo(&["tree", "--locked", "-p=cloudprovider", "--edges=normal", "--prefix=none", "--all-features"]);
    let tree = String::from_utf8(tree).expect("text");
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("schemars"), "{tree}");
    let found: Vec<_> = NOT_IN_THE_CONTRACT.into_iter().filter(|name| crates.contains(name)).collect();
    assert!(found.is_empty(), "cloudprovider depends on {found:?}");
}

/// What only the secure port needs. The lifecycle controllers make certificates too.
const FOR_THE_PORT: [&str; 3] = ["flate2", "moka", "pprof"];

#[test]
fn a_program_without_the_secure_port_does_not_compile_what_only_that_needs() {
    let of_the_port = |feature: &str| {
        let tree = cargo(&["tree", "--locked", "-p=ccm", "--edges=normal,build", "--prefix=none", feature]);
        let tree = String::from_utf8(tree).expect("text");
        let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        FOR_THE_PORT.into_iter().filter(|name| crates.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(of_the_port("--features=serving"), FOR_THE_PORT);
    assert_eq!(of_the_port("--no-default-features"), <[&str; 0]>::default());
}

#[test]
fn no_crate_of_the_workspace_is_optimised_for_tests() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let profile = manifest.split("[profile.dev.package]\n").nth(1).expect("the profile of packages");
    let profile = profile.split("\n[").next().expect("a section");
    for (name, ..) in RULES {
        let line = format!("{name} = {{ opt-level = 0, debug = \"line-tables-only\" }}");
        assert!(profile.lines().any(|own| own == line), "[profile.dev.package] lacks {line}");
    }
}

/// What only the machines of libvirt need.
const FOR_LIBVIRTS_MACHINES: [&str; 3] = ["fatfs", "reqwest", "sha2"];

#[test]
fn a_daemon_without_machines_does_not_compile_what_only_they_need() {
    let of_machines = |feature: &str| {
        let package = "-p=cloudprovider-libvirt";
        let tree = cargo(&["tree", "--locked", package, "--edges=normal", "--prefix=none", feature]);
        let tree = String::from_utf8(tree).expect("text");
        let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        FOR_LIBVIRTS_MACHINES.into_iter().filter(|name| crates.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(of_machines("--features=machines"), FOR_LIBVIRTS_MACHINES);
    assert_eq!(of_machines("--no-default-features"), <[&str; 0]>::default());
}

/// What is logged by a crate that the daemon does not count among its own is shown as that of a library: warnings alone.
#[test]
fn the_daemon_shows_what_the_crates_of_its_controllers_log() {
    let app = fs::read_to_string(root().join("ccm/src/app.rs")).expect("a file");
    let ours =
        app.split("const OUR_CRATES").nth(1).and_then(|rest| rest.split(';').nth(1)).expect("the crates");
    let (_, crates, _) = RULES.iter().find(|(name, ..)| *name == "ccm").expect("a rule");
    // The log adds its own crate.
    for name in crates.iter().filter(|name| **name != "component") {
        let name = format!("{:?}", name.replace('-', "_"));
        assert!(ours.contains(&name), "OUR_CRATES of ccm/src/app.rs lacks {name}: {ours}");
    }
}

//! What any Kubernetes daemon needs knows nothing of clouds, Nodes and this daemon: these modules of `ccm` could be a crate
//! of their own.

use std::collections::BTreeSet;

use crate::{
    crates::root,
    modules::{Crate, Module},
};

/// The modules, each with what is below it.
const MACHINERY: [&str; 34] = [
    "api_client",
    "api_text",
    "backoff",
    "classified",
    "debug_state",
    "events",
    "files",
    "flags/authentication",
    "flags/authorization",
    "flags/debugging",
    "flags/feature_gates",
    "flags/global",
    "flags/leader_election",
    "flags/leader_migration",
    "flags/notes",
    "flags/pflag",
    "flags/secure_serving",
    "flags/shown",
    "flags/tls",
    "flags/values",
    "health",
    "inspection",
    "leader_election",
    "leader_migration",
    "logging",
    "metrics",
    "program",
    "reload",
    "seldom",
    "serving",
    "version",
    "watching",
    "work_queue",
    "yaml",
];

/// What of the contract has nothing to do with clouds.
const GENERAL: [&str; 3] =
    ["cloudprovider::error_chain", "cloudprovider::parse_duration", "cloudprovider::tls"];

fn is_machinery(module: &Module) -> bool {
    (1..=module.len()).any(|length| MACHINERY.contains(&module[..length].join("/").as_str()))
}

#[test]
fn the_machinery_knows_no_controller_and_no_cloud() {
    let ccm = Crate::read(&root().join("ccm/src")).expect("the sources of ccm");
    let mut wrong = BTreeSet::new();
    for (from, to) in ccm.arrows() {
        for (to, paths) in to {
            if is_machinery(&from) && !is_machinery(&to) {
                wrong.insert(format!("{} -> {paths:?}", from.join("/")));
            }
        }
    }
    for (from, path) in ccm.paths_into("cloudprovider") {
        if is_machinery(&from) && !GENERAL.iter().any(|general| path.starts_with(general)) {
            wrong.insert(format!("{} -> {path}", from.join("/")));
        }
    }
    assert!(wrong.is_empty(), "to be handed in as a value or a narrower type: {wrong:#?}");
}

#[test]
fn the_list_names_what_is_there() {
    for module in MACHINERY {
        let path = root().join("ccm/src").join(module);
        assert!(path.with_extension("rs").is_file(), "there is no {module}");
    }
}

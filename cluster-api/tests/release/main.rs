//! Compares the definitions, field by field, with those of a release of Cluster API.
//!
//! Whatever differs is wanted and has a line with its reason in [`DIFFERENCES`]. A line that nothing needs any more fails too.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod compare;
mod differences;
mod objects;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use cluster_api::definitions::Provider;
use serde_json::{Value, json};
use test_env::{ClusterApiManager, ClusterApiPrograms, StartError};

use self::differences::DIFFERENCES;

/// Both definitions of each of our kinds: ours and the release's. None if this machine cannot have a release, which CI refuses.
static PAIRS: LazyLock<Option<Vec<(Value, Value)>>> = LazyLock::new(|| {
    let programs = match ClusterApiPrograms::find() {
        Ok(programs) => programs,
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: {reason}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut pairs = Vec::new();
    for (provider, manager) in [
        (Provider::Core, ClusterApiManager::Core),
        (Provider::KubeadmBootstrap, ClusterApiManager::KubeadmBootstrap),
    ] {
        let file = std::fs::read_to_string(programs.components(manager).unwrap()).unwrap();
        // MachinePools are refused, so theirs is another definition altogether.
        let definitions = provider.definitions().unwrap().into_iter();
        for ours in definitions.filter(|one| one.spec.names.kind != "MachinePool") {
            let name = ours.metadata.name.clone().unwrap();
            pairs.push((json!(ours), definition(&file, &name)));
        }
    }
    Some(pairs)
});

/// The definition with this name, from a file of many objects. Only that one is read, since reading takes long.
fn definition(file: &str, name: &str) -> Value {
    let line = format!("\n  name: {name}\n");
    let text = file.split("\n---\n").find(|document| document.contains(&line));
    serde_saphyr::from_str(text.unwrap_or_else(|| panic!("{name} is not in the release"))).unwrap()
}

#[test]
fn the_definitions_are_those_of_the_release() {
    let Some(pairs) = &*PAIRS else {
        return;
    };
    let found: Vec<String> =
        pairs.iter().flat_map(|(ours, theirs)| compare::definitions(ours, theirs)).collect();
    let is_wanted = |line: &str| DIFFERENCES.iter().any(|(pattern, _)| matches(pattern, line));
    let unwanted: Vec<&String> = found.iter().filter(|line| !is_wanted(line)).collect();
    let unused: Vec<&str> = DIFFERENCES
        .iter()
        .map(|(pattern, _)| *pattern)
        .filter(|pattern| !found.iter().any(|line| matches(pattern, line)))
        .collect();
    assert!(unwanted.is_empty(), "{} differences:\n{unwanted:#?}", unwanted.len());
    assert!(unused.is_empty(), "lines that nothing needs: {unused:#?}");
}

/// Whether `line` is `pattern`, in which a `*` stands for anything.
fn matches(pattern: &str, line: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = &parts[..] else {
        return pattern == line;
    };
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn whole_objects_are_read_and_written_without_loss() {
    let Some(pairs) = &*PAIRS else {
        return;
    };
    let mut kinds = BTreeSet::new();
    for (_, theirs) in pairs {
        let kind = theirs["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let object = objects::whole(theirs);
        assert_eq!(objects::round_trip(&kind, &object), object, "{kind}");
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 10);
}

#[test]
fn small_objects_are_read_and_written_without_loss() {
    let Some(pairs) = &*PAIRS else {
        return;
    };
    for (_, theirs) in pairs {
        let kind = theirs["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let object = objects::smallest(theirs);
        assert_eq!(objects::round_trip(&kind, &object), object, "{kind}");
    }
}

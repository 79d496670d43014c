//! No modules depend on each other in a circle: neither files, nor folders.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    circles::circles,
    crates::{packages, root},
    modules::{Arrows, Crate, Module},
};

type Circles = BTreeSet<(String, BTreeSet<String>)>;

/// Asserts that there are no circles.
fn assert_none(found: &Circles, because: &[String]) {
    assert!(found.is_empty(), "modules depend on each other: {found:#?}\nbecause of {because:#?}");
}

/// The folders of all crates that have sources, relative to the root.
fn crates() -> Vec<String> {
    let root = root().canonicalize().expect("the root");
    let folder = |manifest: &str| {
        let folder = Path::new(manifest).parent()?.strip_prefix(&root).ok()?.to_path_buf();
        root.join(&folder).join("src").is_dir().then(|| folder.display().to_string())
    };
    let packages = packages();
    let manifests = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    manifests.filter_map(folder).collect()
}

fn arrows(of: &str) -> Arrows {
    let src: PathBuf = root().join(of).join("src");
    Crate::read(&src).unwrap_or_else(|error| panic!("{}: {error}", src.display())).arrows()
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("/") }
}

/// The arrows between top-level modules.
fn between_folders(arrows: &Arrows) -> BTreeMap<String, BTreeSet<String>> {
    let mut between: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in arrows {
        let first = |module: &Module| module.first().cloned().unwrap_or_else(|| "lib".to_owned());
        let others = to.keys().map(first).filter(|to| *to != first(from));
        between.entry(first(from)).or_default().extend(others);
    }
    between
}

#[test]
fn no_modules_of_the_first_level_depend_on_each_other() {
    let mut found = Circles::new();
    for of in crates() {
        found.extend(circles(&between_folders(&arrows(&of))).into_iter().map(|circle| (of.clone(), circle)));
    }
    assert_none(&found, &[]);
}

#[test]
fn no_files_depend_on_each_other() {
    let mut found = Circles::new();
    let mut because = Vec::new();
    for of in crates() {
        let arrows = arrows(&of);
        let names = |to: &BTreeMap<Module, BTreeSet<String>>| to.keys().map(shown).collect();
        let graph = arrows.iter().map(|(from, to)| (shown(from), names(to))).collect();
        for circle in circles(&graph) {
            let is_inside = |module: &Module| circle.contains(&shown(module));
            for (from, to) in arrows.iter().filter(|(from, _)| is_inside(from)) {
                let inside = to.iter().filter(|(to, _)| is_inside(to));
                because.extend(
                    inside.map(|(to, by)| format!("{of}: {} -> {} by {by:?}", shown(from), shown(to))),
                );
            }
            found.insert((of.clone(), circle));
        }
    }
    assert_none(&found, &because);
}

//! Checks that the pages of each provider explain the reasons that its machines have beside those of the contract.

use std::{collections::BTreeSet, fs, path::Path};

use crate::crates::root;

/// What a provider calls with a reason of its own.
const CALL: &str = ".with_reason(";

#[test]
fn the_pages_explain_the_reasons_of_the_providers() {
    let mut found = 0;
    for provider in fs::read_dir(root().join("providers")).expect("providers") {
        let provider = provider.expect("a provider");
        let name = provider.file_name().to_string_lossy().into_owned();
        let mut reasons = BTreeSet::new();
        collect(&provider.path().join("src"), &mut reasons);
        let page = pages(&name);
        let missing: Vec<_> =
            reasons.iter().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
        assert!(missing.is_empty(), "docs/providers/{name} does not explain {missing:?}");
        found += reasons.len();
    }
    assert!(found > 3, "only {found} reasons were found");
}

/// What the page of a provider says, and the pages in its folder, if it has one.
fn pages(name: &str) -> String {
    let docs = root().join("docs/providers");
    let mut text = fs::read_to_string(docs.join(format!("{name}.md"))).expect("the page of the provider");
    for page in fs::read_dir(docs.join(name)).into_iter().flatten() {
        text += &fs::read_to_string(page.expect("a page").path()).expect("a page of the provider");
    }
    text
}

/// The reasons in the files of a folder, apart from tests.
fn collect(folder: &Path, reasons: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "testing");
        if is_test {
            continue;
        }
        if path.is_dir() {
            collect(&path, reasons);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let words = code
            .split(CALL)
            .skip(1)
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        reasons.extend(words.map(str::to_owned));
    }
}

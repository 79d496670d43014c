//! Checks that every file exists that `docs/architecture.md` names.

use std::{fs, path::Path};

use crate::crates::root;

#[test]
fn what_the_page_names_is_there() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let between_backticks = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> =
        between_backticks.filter(|text| Path::new(text).extension().is_some_and(|end| end == "rs")).collect();
    assert!(named.len() > 30, "{named:?}");
    let gone: Vec<&str> = named.into_iter().filter(|path| !root().join(path).is_file()).collect();
    assert!(gone.is_empty(), "docs/architecture.md names files that are not there: {gone:#?}");
}

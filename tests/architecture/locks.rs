//! Checks that locks are those of `parking_lot`, which a panic does not poison. An example shows what an author outside of this
//! workspace would write.

use std::{fs, path::Path};

use crate::crates::root;

/// What somebody writes who uses the standard library's locks.
const OF_STD: &str = concat!("Poison", "Error");

#[test]
fn there_is_one_kind_of_lock() {
    let mut found = Vec::new();
    let mut read = 0;
    search(&root(), &mut found, &mut read);
    assert!(found.is_empty(), "use parking_lot's locks in {found:?}");
    assert!(read > 1_000, "only {read} files were read");
}

fn search(folder: &Path, found: &mut Vec<String>, read: &mut usize) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "examples", "fuzz"].contains(&&*name) {
                search(&path, found, read);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            *read += 1;
            if fs::read_to_string(&path).is_ok_and(|text| text.contains(OF_STD)) {
                found.push(path.display().to_string());
            }
        }
    }
}

//! Checks that locks are those of `parking_lot`, which a panic does not poison. The examples of the contract show what an author
//! outside of this workspace would write.

use std::{fs, path::Path};

use crate::{crates::root, lexer::tokens};

const LOCKS: [&str; 3] = ["Condvar", "Mutex", "RwLock"];

/// Folders that are not searched, by their paths from the root.
const ELSEWHERE: [&str; 3] = ["cloudprovider/examples", "fuzz", "target"];

#[test]
fn there_is_one_kind_of_lock() {
    let mut found = Vec::new();
    let read = search(&root(), &root(), &mut found);
    assert!(found.is_empty(), "use parking_lot's locks in {found:?}");
    assert!(read > 1_000, "only {read} files were read");
}

#[test]
fn locks_of_the_standard_library_are_seen() {
    for (source, expected) in [
        ("use std::sync::Mutex;", true),
        ("use std::{fmt, sync::{Arc, RwLock}};", true),
        ("static A: std::sync::Mutex<u8> = std::sync::Mutex::new(0);", true),
        ("use std::sync::Arc; use parking_lot::Mutex;", false),
        ("use tokio::sync::{Mutex, RwLock};", false),
        ("// use std::sync::Mutex;", false),
    ] {
        assert_eq!(has_lock_of_std(source), expected, "{source}");
    }
}

/// Collects the files in a folder that use other locks. Gives the number of files that were read.
fn search(root: &Path, folder: &Path, found: &mut Vec<String>) -> usize {
    let mut read = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        let short = path.strip_prefix(root).expect("below the root").display().to_string();
        if path.is_dir() {
            if !short.starts_with('.') && !ELSEWHERE.contains(&&*short) {
                read += search(root, &path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            read += 1;
            if has_lock_of_std(&fs::read_to_string(&path).expect("a source file")) {
                found.push(short);
            }
        }
    }
    read
}

/// Whether a source text imports a lock of the standard library, or names one by its path.
fn has_lock_of_std(source: &str) -> bool {
    let tokens = tokens(source);
    let is_imported = tokens.split(|token| *token == ";").any(|statement| {
        let from_std = statement.windows(2).position(|two| two == ["use", "std"]);
        let imported = from_std.map(|at| &statement[at..]).unwrap_or_default();
        imported.contains(&"sync") && imported.iter().any(|token| LOCKS.contains(token))
    });
    let is_named =
        tokens.windows(5).any(|five| five[..4] == ["std", "::", "sync", "::"] && LOCKS.contains(&five[4]));
    is_imported || is_named
}

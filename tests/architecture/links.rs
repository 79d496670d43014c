//! Checks that every link in the documentation leads to a file that exists, and to a heading of it, and that every page
//! exists that code, manifests and messages name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::crates::root;

/// Folders that hold no files of this repository.
const OTHERS: [&str; 4] = ["target", ".git", ".cache", "node_modules"];

/// The ends of files that may name a page.
const NAMING: [&str; 8] = ["md", "rs", "sh", "toml", "yaml", "yml", "tpl", "json"];

#[test]
fn every_link_leads_somewhere() {
    let pages: BTreeMap<PathBuf, Vec<String>> = files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .map(|path| (path.clone(), prose(&read(&path))))
        .collect();
    assert!(pages.len() > 25, "only {} pages were found", pages.len());
    let anchors: BTreeMap<&PathBuf, BTreeSet<String>> =
        pages.iter().map(|(path, lines)| (path, headings(lines))).collect();
    let mut broken = Vec::new();
    for (page, lines) in &pages {
        for (at, line) in lines.iter().enumerate() {
            for link in links(line) {
                if let Err(why) = follow(page, &link, &anchors) {
                    broken.push(format!("{}:{}: {link}: {why}", page.display(), at + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_that_is_named_exists() {
    let mut missing = Vec::new();
    for path in files() {
        let is_naming = path.extension().is_none_or(|end| NAMING.iter().any(|one| end == *one));
        let Some(text) = is_naming.then(|| fs::read_to_string(root().join(&path)).ok()).flatten() else {
            continue;
        };
        for name in named(&text) {
            if !root().join(&name).is_file() {
                missing.push(format!("{} names {name}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What is wrong with a link of this page.
fn follow(
    page: &Path,
    link: &str,
    anchors: &BTreeMap<&PathBuf, BTreeSet<String>>,
) -> Result<(), &'static str> {
    let is_elsewhere =
        link.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphabetic));
    if is_elsewhere {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_owned() } else { normal(&page.with_file_name("").join(path)) };
    if !root().join(&target).exists() {
        return Err("no such file");
    }
    match anchors.get(&target) {
        Some(headings) if !anchor.is_empty() && !headings.contains(anchor) => Err("no such heading"),
        _ => Ok(()),
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The lines of a page. Those of fenced blocks of code are empty.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let lines = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { String::new() } else { line.to_owned() }
    });
    lines.collect()
}

/// The targets of the links in a line.
fn links(line: &str) -> Vec<String> {
    let outside_of_code: String = line.split('`').step_by(2).collect();
    let targets = outside_of_code.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors that GitHub gives to headings.
fn headings(lines: &[String]) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in lines {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        let anchor =
            title.trim().to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let before = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// The pages below `docs/` that a text names by their path from the root.
fn named(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("docs/") {
        let before = text[..at].chars().next_back();
        let is_part = before.is_some_and(|c| c.is_alphanumeric() || "/-_.".contains(c));
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "/-_.".contains(c))).unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('.');
        if !is_part && Path::new(name).extension().is_some_and(|end| end == "md") {
            names.insert(name.to_owned());
        }
    }
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).expect("a page")
}

/// All files of the repository, by their paths from its root.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let (name, kind) = (entry.file_name(), entry.file_type().expect("a type"));
            if kind.is_dir() && !OTHERS.iter().any(|other| name == *other) {
                folders.push(folder.join(name));
            } else if kind.is_file() {
                found.push(folder.join(name));
            }
        }
    }
    found
}

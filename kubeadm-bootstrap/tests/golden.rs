//! The data of each case in `cases/` are those that Cluster API's own controller makes, byte for byte. `golden.sh` writes
//! `golden/` anew.

#![allow(clippy::expect_used, clippy::panic, reason = "tests may")]

mod support;

use std::fs;

use support::{cases, folder};

/// Where our data are different on purpose: the case, what Cluster API's controller writes, what we write in its
/// place, and why. Three dots as one character stand for any text.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &[
    ("users", "passwd: *\n", "passwd: '*'\n", "a star begins a reference"),
    (
        "init-external-etcd",
        NAMELESS_KEY,
        "",
        "the machine does not get the key of an external CA, and the file had no name",
    ),
    ("init-external-etcd-v1beta3", NAMELESS_KEY, "", "the same"),
    ("join-control-plane-external-etcd", NAMELESS_KEY, "", "the same"),
    ("hostile-path", "/etc/a: b # c\n", "'/etc/a: b # c'\n", "it was a mapping and a comment"),
    (
        "hostile-path",
        "root:root\npath: /etc/shadow\n",
        "\"root:root\\npath: /etc/shadow\"\n",
        "it was a key of the document",
    ),
    ("hostile-path", "'06'40'", "'06''40'", "the quote ended the text"),
    (
        "hostile-content-begins-with-spaces",
        "|\n        ind",
        "|2\n        ind",
        "the second line ended the block",
    ),
    (
        "hostile-content-with-line-separator",
        "|\n      a\u{2028}- path: /etc/shadow\n",
        "\"a\\u2028- path: /etc/shadow\"\n",
        "it was a file of its own",
    ),
    (
        "hostile-content-with-carriage-return",
        "|\n      a\rb \u{1b}\n",
        "\"a\\rb \\x1b\"\n",
        "YAML does not allow the character",
    ),
    ("hostile-user", "name: a\nruncmd: [x]\n", "name: \"a\\nruncmd: [x]\"\n", "it was a key of the document"),
    ("hostile-user", "gecos: x # y\n", "gecos: 'x # y'\n", "it was a comment"),
    ("hostile-user", "shell: [a]\n", "shell: '[a]'\n", "it was a list"),
    ("hostile-user", "sudo: - b\n", "sudo: '- b'\n", "it was a list"),
    ("hostile-user", "AAAA x\n\n", "AAAA x\n", "a line break around a text has no meaning"),
    ("hostile-user", "- {k: v}\n", "- '{k: v}'\n", "it was a mapping"),
    ("hostile-key", "  /dev/sdb: x:\n", "  '/dev/sdb: x':\n", "it was a mapping"),
    ("hostile-mount", "- a: b\n", "- 'a: b'\n", "it was a mapping"),
    ("hostile-mount", "- \tc\n", "- c\n", "white space around a text has no meaning"),
    ("hostile-mount", "- 'd' e\n", "- '''d'' e'\n", "the quote ended the text"),
    ("hostile-mount", "- \"f\\\n", "- '\"f\\'\n", "the text had no end"),
    ("hostile-kubelet-argument", "'a\u{2028}      b'", "\"a\\Lb\"", "the line break ended the block"),
    ("hostile-file-of-bytes", "\"gzip\"\n", "\"gzip+base64\"\n", "bytes cannot stand in YAML"),
    ("hostile-file-of-bytes", GZIP, "H4sIAAAAAAAA/w==", "the same"),
    (
        "hostile-file-of-bytes",
        BYTES,
        "bytes\n    encoding: \"base64\"\n    content: |\n      /wD+",
        "the same",
    ),
    (
        "hostile-ignition-permissions",
        "\"mode\":640",
        "\"mode\":416",
        "permissions are octal with and without a leading zero",
    ),
    (
        "ignition-ntp-disabled",
        ",{\"filesystem\":\"root\",\"path\":\"/etc/ntp.conf\"…\"mode\":420}",
        "",
        "it was enabled although the spec says that it is not",
    ),
    ("ignition-ntp-disabled", ",{\"enabled\":true,\"name\":\"ntpd.service\"}", "", "the same"),
];

/// The key of an external etcd's CA.
const NAMELESS_KEY: &str = "-   path: \n    owner: root:root\n    permissions: '0600'\n    content: |\n      (the key of etcd)\n      \n";
/// The bytes of the case `hostile-file-of-bytes`, as far as they are UTF-8.
const GZIP: &str = "\u{1f}\u{fffd}\u{8}\0\0\0\0\0\0\u{fffd}";
const BYTES: &str = "bytes\n    content: |\n      \u{fffd}\0\u{fffd}";

/// Cases in which Cluster API's controller fails and ours does not, and why.
const THEIRS_FAIL: &[(&str, &str)] = &[
    ("ignition-files-without-permissions", "Ignition's own default counts, 0644"),
    ("ignition-filesystem-without-overwrite", "a flag that is not set is off"),
    ("hostile-ignition-texts", "texts are never read as YAML"),
];

/// Cases in which ours fails and Cluster API's controller does not: the case, our error, and why.
const OURS_FAIL: &[(&str, &str, &str)] = &[(
    "ignition-mount-of-unknown-label",
    "spec.mounts[0][0]: is not the label of a file system of spec.diskSetup.filesystems",
    "the unit had no device, and the machine did not boot",
)];

#[test]
fn the_data_are_those_of_cluster_api() {
    let cases = cases();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let mut failures = Vec::new();
    for (name, case) in &cases {
        let theirs = fs::read(folder("golden").join(name));
        let theirs = theirs.unwrap_or_else(|error| panic!("{name}: {error}: run golden.sh"));
        let mut expected = String::from_utf8_lossy(&theirs).into_owned();
        let ours = match case.data(case.version()) {
            Ok(data) => String::from_utf8(data.bytes).expect("the data are UTF-8"),
            Err(error) => format!("error: {error}\n"),
        };
        if THEIRS_FAIL.iter().any(|(case, _)| case == name) {
            assert!(
                expected.starts_with("error: ") && !ours.starts_with("error: "),
                "{name}: {expected}{ours}"
            );
            continue;
        }
        for (_, theirs, ours, _) in DIFFERENCES.iter().filter(|(case, ..)| case == name) {
            let replaced = replace(&expected, theirs, ours);
            expected = replaced.unwrap_or_else(|| panic!("{name}: Cluster API does not write {theirs:?}"));
        }
        if let Some((_, error, _)) = OURS_FAIL.iter().find(|(case, ..)| case == name) {
            expected = format!("error: {error}\n");
        }
        if ours != expected {
            failures.push(format!("{name}:\n{}", first_difference(&expected, &ours)));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases differ\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn replace(text: &str, old: &str, new: &str) -> Option<String> {
    let (begin, end) = old.split_once('…').unwrap_or((old, ""));
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{new}{after}"))
}

#[test]
fn every_golden_file_has_a_case() {
    let cases = cases();
    for entry in fs::read_dir(folder("golden")).expect("the folder of the golden files") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        assert!(cases.contains_key(&name), "golden/{name} has no case: run golden.sh");
    }
    let known = DIFFERENCES.iter().map(|(case, ..)| *case).chain(THEIRS_FAIL.iter().map(|(case, _)| *case));
    for name in known.chain(OURS_FAIL.iter().map(|(case, ..)| *case)) {
        assert!(cases.contains_key(name), "a difference is for the case {name}, which does not exist");
    }
}

/// The controller that made the golden files is the version that the other tests run.
#[test]
fn the_golden_files_are_of_the_version_of_the_peers() {
    let version = |path: &str| {
        let text = fs::read_to_string(folder(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut versions =
            text.lines().filter_map(|line| line.trim().strip_prefix("sigs.k8s.io/cluster-api v"));
        versions
            .next()
            .and_then(|rest| rest.split(' ').next())
            .map(str::to_owned)
            .expect("a version of Cluster API")
    };
    assert_eq!(version("oracle/go.mod"), version("../../tests/env/cluster-api/go.mod"));
}

/// Some characters before the first one that differs, and what follows there.
fn first_difference(expected: &str, actual: &str) -> String {
    let same = expected.bytes().zip(actual.bytes()).take_while(|(left, right)| left == right).count();
    let from = (0..=same.saturating_sub(60)).rev().find(|at| expected.is_char_boundary(*at)).unwrap_or(0);
    let part = |text: &str| text[from..].chars().take(160).collect::<String>();
    format!("  expected {:?}\n  actual   {:?}", part(expected), part(actual))
}

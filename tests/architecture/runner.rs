//! What `make test` runs by `tests/run.sh` and reports by `tests/summary.awk`, with test binaries that only record that they ran;
//! and `tests/flaky.sh`, with a `cargo` that fails in one run.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::json;
use tempfile::TempDir;

use crate::crates::root;

/// A `cargo` whose test binaries are shell scripts, each of a package of its own.
struct Cargo {
    folder: TempDir,
    artifacts: String,
}

impl Cargo {
    fn new() -> Self {
        let cargo = Self { folder: TempDir::new().expect("a folder"), artifacts: String::new() };
        let artifacts = cargo.path("artifacts");
        cargo.script(
            "cargo",
            &format!(
                "case \" $* \" in\n*' --no-run '*) cat '{}' ;;\n*' --doc '*) echo \"documentation $*\" >>'{}' ;;\nesac",
                artifacts.display(),
                cargo.path("ran").display()
            ),
        );
        cargo
    }

    /// With a test binary from this source. It ends with this status.
    fn with(mut self, package: &str, source: &str, status: u8) -> Self {
        fs::create_dir(self.path(package)).expect("a folder");
        let ran = self.path("ran");
        let record = format!(
            "echo \"${{PWD##*/}} ${{CCM_TRIALS:-}} $*\" >>'{}'\necho 'of {package}'\nexit {status}",
            ran.display()
        );
        let executable = self.script(&format!("{package}/binary"), &record);
        for (is_test, executable) in [(true, Some(&executable)), (false, Some(&executable)), (true, None)] {
            let artifact = json!({
                "reason": "compiler-artifact",
                "manifest_path": self.path(package).join("Cargo.toml"),
                "target": {"kind": ["test"], "name": package, "src_path": self.path(source), "test": true},
                "profile": {"opt_level": "0", "debuginfo": "line-tables-only", "test": is_test},
                "features": ["testing"],
                "executable": executable,
                "fresh": true,
            });
            self.artifacts += &in_the_order_of_cargo(&artifact);
            self.artifacts.push('\n');
        }
        self
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `tests/run.sh`. Returns its output, and what ran, sorted.
    fn run(&self, arguments: &[&str]) -> (Output, Vec<String>) {
        fs::write(self.path("artifacts"), &self.artifacts).expect("a file");
        let mut command = Command::new(root().join("tests/run.sh"));
        command
            .args(arguments)
            .env("CARGO", self.path("cargo"))
            .env_remove("CCM_TRIALS")
            .env_remove("FILTER");
        let output = command.stdin(Stdio::null()).output().expect("bash");
        let ran = fs::read_to_string(self.path("ran")).unwrap_or_default();
        let mut ran: Vec<_> = ran.lines().map(|line| line.trim_end().to_owned()).collect();
        ran.sort();
        (output, ran)
    }
}

/// The keys that the script reads, in the order in which cargo writes them.
fn in_the_order_of_cargo(artifact: &serde_json::Value) -> String {
    let keys = ["reason", "manifest_path", "target", "profile", "features", "executable", "fresh"];
    let parts: Vec<_> = keys.iter().map(|key| format!("\"{key}\":{}", artifact[*key])).collect();
    format!("{{{}}}", parts.join(","))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const INTEGRATION: &str = "tests/integration/main.rs";

#[test]
fn every_binary_runs_once_in_its_folder_and_the_integration_tests_in_two_parts() {
    let cargo = Cargo::new().with("all", INTEGRATION, 0).with("one", "one.rs", 0).with("two", "two.rs", 0);
    let (output, ran) = cargo.run(&[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let documentation = "documentation test --locked --workspace --exclude bench --doc --no-fail-fast --";
    assert_eq!(ran, ["all alone", "all together", documentation, "one", "two"]);
    // The output of each stands below its line.
    for (source, its_output) in [("one.rs: ", "of one"), ("two.rs: ", "of two")] {
        let mut lines = said.split(source).nth(1).unwrap_or_default().lines();
        assert!(lines.next().is_some_and(|times| times.ends_with(" CPU seconds")), "{said}");
        assert_eq!(lines.next(), Some(its_output), "{said}");
    }
    assert!(said.rfind("of all") > said.rfind("of two"), "those that run alone come last: {said}");
}

#[test]
fn a_filter_is_for_all() {
    let cargo = Cargo::new().with("all", INTEGRATION, 0).with("one", "one.rs", 0);
    let (output, ran) = cargo.run(&["vsphere::"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let documentation =
        "documentation test --locked --workspace --exclude bench --doc --no-fail-fast -- vsphere::";
    assert_eq!(ran, ["all alone vsphere::", "all together vsphere::", documentation, "one  vsphere::"]);
}

#[test]
fn a_binary_that_fails_fails_the_run_and_the_others_still_run() {
    for (all, one) in [(0, 3), (101, 0)] {
        let cargo =
            Cargo::new().with("all", INTEGRATION, all).with("one", "one.rs", one).with("two", "two.rs", 0);
        let (output, ran) = cargo.run(&[]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(ran.len(), 5, "{ran:?}");
        let said = text(&output.stdout);
        assert!(said.contains(&format!(" CPU seconds, exit status {}\n", all.max(one))), "{said}");
    }
}

#[test]
fn a_run_without_tests_fails() {
    let (output, ran) = Cargo::new().with("one", "one.rs", 0).run(&[]);
    assert_eq!((output.status.code(), ran.len()), (Some(1), 0));
    assert_eq!(text(&output.stderr), "run.sh: cargo built no tests\n");
}

fn summary(log: &str) -> String {
    let mut awk = Command::new("awk");
    awk.arg("-f").arg(root().join("tests/summary.awk")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut awk = awk.spawn().expect("awk");
    awk.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("awk reads");
    let said = text(&awk.wait_with_output().expect("awk").stdout);
    let end = said.strip_prefix(log).unwrap_or_else(|| panic!("the log itself is not passed on: {said}"));
    end.to_owned()
}

#[test]
fn the_summary_counts_the_tests_of_all_binaries() {
    let log = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
               CPU seconds: 3\n\
               test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9s\n";
    assert_eq!(summary(log), "\ntotal: 42 passed, 0 failed, 1 skipped\n");
}

#[test]
fn the_summary_repeats_each_failure_with_its_message() {
    let log = "\nfailures:\n\n\
               ---- node::follows stdout ----\n\
               thread 'node::follows' panicked at a.rs:1:1:\n\
               the label is wrong\n\
               stack backtrace:\n   0: begin\n\n\
               ---- node::stays ----\n\
               not within 40s: it stays\n\n\n\
               failures:\n    node::follows\n    node::stays\n\n\
               test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";
    let expected = "\ntotal: 1 passed, 2 failed, 0 skipped\n\
                    failed: node::follows: thread 'node::follows' panicked at a.rs:1:1: the label is wrong\n\
                    failed: node::stays: not within 40s: it stays\n";
    assert_eq!(summary(log), expected);
}

#[test]
fn the_summary_shows_both_ends_of_a_long_message() {
    let log = format!(
        "failures:\n---- long ----\nit did not start\n{}the reason\n\nfailures:\n    long\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n",
        "a line of the log\n".repeat(1_000)
    );
    let end = summary(&log);
    assert!(end.ends_with("a line of the log the reason\n"), "{end}");
    assert!(end.contains("failed: long: it did not start a line"), "{end}");
    assert!(end.len() < 900, "{}", end.len());
}

#[test]
fn a_test_that_failed_in_one_run_of_many_is_named_with_that_run() {
    let cargo = Cargo::new();
    cargo.script("stress-ng", "exec sleep infinity");
    let (ran, failed) =
        (cargo.path("ran"), "failures:\\n---- node::follows ----\\nnot within 40s\\n\\nfailures:");
    cargo.script(
        "cargo",
        &format!(
            "echo \"$*\" >>'{0}'\n[ $(wc -l <'{0}') -eq 2 ] || exit 0\nprintf '{failed}\\n'\necho 'NOT JUDGED a time'\nexit 101",
            ran.display()
        ),
    );
    let path = format!("{}:{}", cargo.folder.path().display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new(root().join("tests/flaky.sh"));
    command.args(["3", "node::"]).env("PATH", path).env("CARGO", cargo.path("cargo"));
    let output =
        command.env("CARGO_TARGET_DIR", cargo.folder.path()).stdin(Stdio::null()).output().expect("bash");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(
        said.contains("\nrun 2: failed: node::follows: not within 40s\nrun 2: NOT JUDGED a time\n"),
        "{said}"
    );
    assert!(said.ends_with("\n1 of 3 runs failed\n"), "{said}");
    assert_eq!(said.matches(" passed after ").count(), 2, "{said}");
    let ran = fs::read_to_string(ran).expect("cargo ran");
    assert_eq!(ran, "test --locked --workspace --test integration -- node::\n".repeat(3));
}

//! Namespaces that keep a peer's mounts, network and processes apart from the machine's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::StartError;
use crate::process::run;

/// `unshare` into new mount and process namespaces, and those of `more`. The command to run there follows.
/// When the `unshare` process dies, everything in the namespaces dies with it.
pub(crate) fn command(more: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]).args(more).arg("--");
    command
}

/// Whether this process may make such namespaces.
pub(crate) fn need() -> Result<(), StartError> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let refusal =
        ANSWER.get_or_init(|| run(command(&["--net"]).arg("true")).err().map(|error| format!("{error:#}")));
    match refusal {
        None => Ok(()),
        Some(error) => Err(StartError::Unavailable(format!(
            "no right to make namespaces: run as root, in a container with --privileged ({error})"
        ))),
    }
}

/// A script of this crate.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

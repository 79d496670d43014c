//! Finds the peers' programs, building them on first use.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};

use crate::StartError;

/// Exit status of `build.sh` if this machine lacks a requirement.
const UNAVAILABLE: i32 = 3;

/// The programs of a control plane.
#[derive(Debug, Clone)]
pub struct ControlPlanePrograms {
    /// The store.
    pub etcd: PathBuf,
    /// The API server.
    pub api_server: PathBuf,
    /// The command-line client of the same version.
    pub kubectl: PathBuf,
}

impl ControlPlanePrograms {
    /// The programs in `KUBEBUILDER_ASSETS` if that is set, or those of the cache folder. They are built if
    /// they are missing (minutes).
    pub fn find() -> Result<Self, StartError> {
        let folder = built("kubernetes")?;
        Ok(Self {
            etcd: folder.join("etcd"),
            api_server: folder.join("kube-apiserver"),
            kubectl: folder.join("kubectl"),
        })
    }

    /// The same, with the API server of the previous minor version.
    pub fn find_previous() -> Result<Self, StartError> {
        let api_server = built("kubernetes-previous")?.join("kube-apiserver");
        Ok(Self { api_server, ..Self::find()? })
    }
}

/// Runs what it is given, which waits.
pub type Around = fn(&mut dyn FnMut());

static AROUND_BUILDS: OnceLock<Around> = OnceLock::new();

/// From now on each wait for a peer that is not in the cache takes place in `around`, on the thread that wants the peer. Only the
/// first call has an effect.
pub fn around_builds(around: Around) {
    let _ = AROUND_BUILDS.set(around);
}

/// The folder of the peer `name`, one that `build.sh` knows (`kubernetes`, `leader`, `guest`, ...).
/// `build.sh` builds it if it is not in the cache. Progress goes to standard error.
pub fn built(name: &str) -> Result<PathBuf, StartError> {
    if let Ok(folder) = build_script(&["--built", name]) {
        return Ok(folder);
    }
    let mut outcome = None;
    let mut build = || outcome = Some(build_script(&[name]));
    match AROUND_BUILDS.get() {
        Some(around) => around(&mut build),
        None => build(),
    }
    outcome.context("nothing was built")?
}

/// The folder that `build.sh` prints.
fn build_script(arguments: &[&str]) -> Result<PathBuf, StartError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.sh");
    let mut child = Command::new(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", script.display()))?;
    // A first build takes minutes, so its output is shown at once. The last line is the reason of a failure.
    let mut last = String::new();
    for line in child.stderr.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        last = line?;
        writeln!(io::stderr(), "{last}")?;
    }
    // the output is a few lines, which the pipe can hold
    let output = child.wait_with_output()?;
    if output.status.code() == Some(UNAVAILABLE) {
        return Err(StartError::Unavailable(last.trim_start_matches("test-env: ").to_owned()));
    }
    if !output.status.success() {
        let arguments = arguments.join(" ");
        return Err(anyhow!("tests/env/build.sh {arguments} ended with {}: {last}", output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let folder = text.lines().last().context("tests/env/build.sh printed no folder")?;
    Ok(PathBuf::from(folder))
}

//! A Go cloud-controller-manager: upstream's framework over a cloud that is a JSON file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::built;
use crate::error::{StartError, need_programs};
use crate::ports::free_port;
use crate::process::{Process, run};
use crate::scratch::Scratch;

const SERVES_WITHIN: Duration = Duration::from_secs(30);
const CLOUD: &str = "cloud.json";

/// `k8s.io/cloud-provider`'s binary as a process, ended and removed when dropped.
///
/// It is what the providers' own binaries are: default controllers and client names, no signal handler. SIGTERM ends it
/// at once and leaves the Lease to expire. Its cloud, called `memory`, is a JSON object, looked at again for each call:
///
/// ```json
/// {
///   "instances": {
///     "NODE": {
///       "providerID": "memory://1", "type": "t", "zone": "z", "region": "r", "labels": {}, "shutdown": false,
///       "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "NODE"}]
///     }
///   },
///   "delayMillis": 0,
///   "error": "what each call fails with",
///   "loadBalancers": false, "routes": false
/// }
/// ```
///
/// Everything may be left out. The last two say what else the cloud has, and count at the start alone. With `-v=2` the
/// log has a line `Cloud is asked` for each call.
#[derive(Debug)]
pub struct FrameworkCcm {
    // the process before the folder it lives in: fields drop in this order
    process: Process,
    port: u16,
    scratch: Scratch,
}

impl FrameworkCcm {
    /// Starts it and waits until it serves, leading or not. `arguments` come last and win over what is given already:
    /// the provider, `--kubeconfig` and the two others for the reviews of who asks, and a port on 127.0.0.1. The program
    /// is built first when it is not in the cache, which takes a minute or more.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] when the program cannot be had on this machine, [`StartError::Failed`] when it does
    /// not serve within 30 s.
    pub fn start(kubeconfig: &Path, cloud: &str, arguments: &[&str]) -> Result<Self, StartError> {
        need_programs(&["curl", "setpriv"])?;
        let program = Self::program()?;
        let scratch = Scratch::new("framework")?;
        let cloud = scratch.write(CLOUD, cloud)?;
        let (kubeconfig, port) = (kubeconfig.display(), free_port()?);
        let mut command = Command::new(program);
        command
            .args(["--cloud-provider=memory", &format!("--cloud-config={}", cloud.display())])
            .arg(format!("--kubeconfig={kubeconfig}"))
            .arg(format!("--authentication-kubeconfig={kubeconfig}"))
            .arg(format!("--authorization-kubeconfig={kubeconfig}"))
            .arg("--authentication-tolerate-lookup-failure=true")
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .args(arguments);
        let process = Process::spawn("framework", &command, scratch.join("framework.log"))?;
        let mut started = Self { process, port, scratch };
        let health = format!("{}/healthz", started.url());
        // Any answer will do: whether it is well is the test's question.
        started.process.wait_until(SERVES_WITHIN, || run(curl().arg(&health)).is_ok())?;
        Ok(started)
    }

    /// The program, built first when it is not in the cache.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] when it cannot be had on this machine.
    pub fn program() -> Result<PathBuf, StartError> {
        Ok(built("framework")?.join("framework"))
    }

    /// Where it serves health, metrics and configuration, with a self-signed certificate: `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The body of the answer to a GET of `path` by who has this bearer token, whatever its status.
    ///
    /// # Errors
    /// If nobody answers within 10 s.
    pub fn get(&self, path: &str, token: &str) -> Result<String> {
        run(curl()
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("{}{path}", self.url())))
    }

    /// The process, to be frozen, killed and waited for.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// Changes its cloud, from one call to the next.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set_cloud(&self, cloud: &str) -> Result<()> {
        let new = self.scratch.write("cloud.json.new", cloud)?;
        // in one step: a call must not read half of it
        fs::rename(new, self.scratch.join(CLOUD)).context("cannot replace the cloud")
    }
}

fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--insecure", "--noproxy", "*", "--max-time", "10"]);
    command
}

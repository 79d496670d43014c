//! A Go cloud-controller-manager: upstream's framework with a cloud that is a JSON file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::PATIENCE;
use crate::built;
use crate::error::{StartError, need_programs};
use crate::ports::free_port;
use crate::process::{Process, run};
use crate::scratch::Scratch;

const CLOUD: &str = "cloud.json";

/// A binary of `k8s.io/cloud-provider` as a process. Stopped and removed when dropped.
///
/// It is wired like the providers' own binaries: default controllers and client names, no signal handler.
/// SIGTERM ends it at once, and its Lease stays until it expires. Its cloud, called `memory`, is a JSON
/// object that is read again for each call:
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
/// All fields are optional. The last two add features to the cloud, and are read at the start only. With
/// `-v=2` the log has a line `Cloud is asked` for each call.
#[derive(Debug)]
pub struct FrameworkCcm {
    // Fields drop in this order: the process before its folder
    process: Process,
    port: u16,
    scratch: Scratch,
}

impl FrameworkCcm {
    /// Starts it and waits until it serves, whether or not it leads. `arguments` come last and override the
    /// defaults: the provider, `--kubeconfig` and the two kubeconfigs for authentication and authorization
    /// reviews, and a port on 127.0.0.1. If the program is not in the cache, it is built first, which takes a
    /// minute or more.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it does
    /// not serve within [`PATIENCE`].
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
        // Any response is enough: checking its health is up to the test.
        started.process.wait_until(PATIENCE, || run(curl().arg(&health)).is_ok())?;
        Ok(started)
    }

    /// The program. If it is not in the cache, it is built first.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run it.
    pub fn program() -> Result<PathBuf, StartError> {
        Ok(built("framework")?.join("framework"))
    }

    /// The URL of health, metrics and configuration, with a self-signed certificate:
    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The response body of a GET of `path` with this bearer token, whatever its status.
    ///
    /// # Errors
    /// If there is no response within 60 s.
    pub fn get(&self, path: &str, token: &str) -> Result<String> {
        run(curl()
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("{}{path}", self.url())))
    }

    /// The process, to freeze it, kill it or wait for it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// Changes its cloud. The next call sees the change.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set_cloud(&self, cloud: &str) -> Result<()> {
        let new = self.scratch.write("cloud.json.new", cloud)?;
        // atomically, so that no call reads half of it
        fs::rename(new, self.scratch.join(CLOUD)).context("cannot replace the cloud")
    }
}

fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--insecure", "--noproxy", "*", "--max-time", "60"]);
    command
}

//! vSphere's own cloud-controller-manager, CPI: the program that this project replaces.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::Result;

use crate::built;
use crate::error::{StartError, need_programs};
use crate::process::Process;
use crate::scratch::Scratch;

/// CPI's binary as a process. Stopped and removed when dropped.
///
/// Like all programs of the Go framework, it exits at once with a log entry if its configuration cannot be
/// read, and when that file changes.
#[derive(Debug)]
pub struct Cpi {
    // Fields drop in this order: the process before its folder
    process: Process,
    _scratch: Scratch,
}

impl Cpi {
    /// Starts it with this configuration file, without a Lease and without a port, and does not wait.
    /// `variables` are its environment; variables of this process that CPI reads are not inherited.
    /// `arguments` come last and override the defaults. If the program is not in the cache, it is built
    /// first, which takes two minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it does
    /// not start.
    pub fn start(
        kubeconfig: &Path,
        config: &Path,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Self, StartError> {
        need_programs(&["setpriv"])?;
        let program = built("cpi")?.join("vsphere-cloud-controller-manager");
        let scratch = Scratch::new("cpi")?;
        let mut command = Command::new(program);
        let read_by_it = |name: &str| {
            ["VSPHERE_", "VCENTER_", "NSXT_"].iter().any(|prefix| name.starts_with(prefix))
                || ["SKIP_NODE_DELETION", "ENABLE_ALPHA_DUAL_STACK"].contains(&name)
        };
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(read_by_it)) {
            command.env_remove(name);
        }
        command
            .arg(format!("--cloud-config={}", config.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(arguments)
            .envs(variables.iter().copied());
        let process = Process::spawn("cpi", &command, scratch.join("cpi.log"))?;
        Ok(Self { process, _scratch: scratch })
    }

    /// The process, to stop it or wait for it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }
}

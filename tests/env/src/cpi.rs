//! vSphere's own cloud-controller-manager, CPI: the program that ours takes the place of.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::Result;

use crate::built;
use crate::error::{StartError, need_programs};
use crate::process::Process;
use crate::scratch::Scratch;

/// CPI's binary as a process, ended and removed when dropped.
///
/// Like all that are made with the Go framework it ends at once, with an entry in its log, when its configuration
/// cannot be read, and when that file changes.
#[derive(Debug)]
pub struct Cpi {
    // the process before the folder it lives in: fields drop in this order
    process: Process,
    _scratch: Scratch,
}

impl Cpi {
    /// Starts it with this configuration file, alone (without a Lease) and without a port, and does not wait. `variables`
    /// are its environment, of which nothing is handed down that CPI reads; `arguments` come last and win over what is
    /// given already. The program is built first when it is not in the cache, which takes two minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] when the program cannot be had on this machine, [`StartError::Failed`] when it does
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

    /// The process, to be ended and waited for.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }
}

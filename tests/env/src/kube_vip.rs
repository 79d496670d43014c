//! kube-vip's allocator of load balancer addresses: the program that our address pools are compared with.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::built;
use crate::error::{StartError, need_programs};
use crate::process::Process;
use crate::scratch::Scratch;

/// `kube-vip-cloud-provider` as a process. Stopped and removed when dropped.
///
/// It gives addresses of the ConfigMap `kubevip` in `kube-system` to Services, and writes them to the annotation
/// `kube-vip.io/loadbalancerIPs` and to `spec.loadBalancerIP`. It never writes a Service's status: that is left
/// to kube-vip.
#[derive(Debug)]
pub struct KubeVip {
    // Fields drop in this order: the process before its folder
    process: Process,
    _scratch: Scratch,
}

impl KubeVip {
    /// Starts it as this user, without a Lease and without ports, and does not wait. `variables` are its
    /// environment, such as `KUBEVIP_ENABLE_LOADBALANCERCLASS`; variables of this process that it reads are not
    /// inherited. `arguments` come last and override the defaults. If the program is not in the cache, it is
    /// built first: seconds after the Go framework, else a minute or more.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it does
    /// not start.
    pub fn start(
        kubeconfig: &Path,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Self, StartError> {
        need_programs(&["setpriv"])?;
        let program = built("kube-vip")?.join("kube-vip-cloud-provider");
        let scratch = Scratch::new("kube-vip")?;
        // Outside of a cluster it ignores --kubeconfig for its own client, and reads the home folder's.
        let home = scratch.make("home/.kube")?;
        fs::copy(kubeconfig, home.join("config"))
            .with_context(|| format!("cannot copy {}", kubeconfig.display()))?;
        let mut command = Command::new(program);
        let read_by_it = |name: &str| name.starts_with("KUBEVIP_");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(read_by_it)) {
            command.env_remove(name);
        }
        command
            .env("HOME", scratch.join("home"))
            .arg("--OutSideCluster")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--leader-elect=false", "--secure-port=0", "--webhook-secure-port=0"])
            .args(arguments)
            .envs(variables.iter().copied());
        let process = Process::spawn("kube-vip", &command, scratch.join("kube-vip.log"))?;
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

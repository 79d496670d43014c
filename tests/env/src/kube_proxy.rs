//! kube-proxy in nftables mode, in the network namespace of a Node.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use crate::PATIENCE;
use crate::built;
use crate::error::{StartError, need_programs};
use crate::network::Netns;
use crate::process::Process;
use crate::scratch::Scratch;

/// A kube-proxy as a process. Stopped and removed when dropped; its rules stay in the namespace.
#[derive(Debug)]
pub struct KubeProxy {
    // Fields drop in this order: the process before its folder
    process: Process,
    _scratch: Scratch,
}

impl KubeProxy {
    /// Starts it for the Node `node`, which must exist in the API server and have an address, and waits until
    /// its rules are in place. `kubeconfig` must work inside the namespace, see
    /// [`Netns::relay`](crate::Netns::relay). `cluster_cidr` holds the addresses of all pods, one CIDR for each
    /// family. If the program is not in the cache, it is built first: seconds after the API server, else
    /// minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it is not
    /// ready within [`PATIENCE`].
    pub fn start(
        netns: &Netns,
        node: &str,
        kubeconfig: &Path,
        cluster_cidr: &str,
    ) -> Result<Self, StartError> {
        need_programs(&["setpriv", "nft", "curl"])?;
        let program = built("kube-proxy")?.join("kube-proxy");
        let scratch = Scratch::new("kube-proxy")?;
        let configuration = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": kubeconfig},
            "hostnameOverride": node,
            "clusterCIDR": cluster_cidr,
            // the namespace may not change the kernel's settings for connections
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            // a change is seen at once
            "nftables": {"minSyncPeriod": "100ms"},
        });
        // JSON is YAML
        let file = scratch.write("config.yaml", &configuration.to_string())?;
        let mut command = netns.command(program);
        command.arg(format!("--config={}", file.display())).arg("-v=2");
        let process = Process::spawn("kube-proxy", &command, scratch.join("kube-proxy.log"))?;
        let mut started = Self { process, _scratch: scratch };
        started.process.wait_until(PATIENCE, || is_ready(netns))?;
        Ok(started)
    }

    /// The process, to freeze it or stop it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }
}

/// Whether the health port, which each namespace has for itself, says that the rules are in place.
fn is_ready(netns: &Netns) -> bool {
    let mut curl: Command = netns.command("curl");
    curl.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "20", "http://127.0.0.1:10256/healthz"]);
    curl.output().is_ok_and(|output| output.status.success())
}

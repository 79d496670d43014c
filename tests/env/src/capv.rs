//! Cluster API Provider vSphere, CAPV: the program whose machines ours takes over.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::PATIENCE;
use crate::error::need_programs;
use crate::network::Netns;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{ControlPlane, StartError, Vcsim, built, keys};

const NAMESPACE: &str = "capv-system";
const ACCOUNT: &str = "capv-manager";

// Ports in its network namespace.
const HEALTH: u16 = 9440;
const DIAGNOSTICS: u16 = 9441;
const WEBHOOKS: u16 = 9443;

/// CAPV's manager as a process, with an account that may do everything. Stopped and removed when dropped; its objects stay.
///
/// It is in a network namespace of its own, since its webhooks listen on all addresses. Nobody calls them.
#[derive(Debug)]
pub struct Capv {
    // Fields drop in this order: the process before its network and its folder
    process: Process,
    _netns: Netns,
    _scratch: Scratch,
}

impl Capv {
    /// Its user name, as the audit log has it.
    pub const USER: &str = "system:serviceaccount:capv-system:capv-manager";

    /// Applies its definitions, with the label of the contract that they fulfil, and its account.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot fetch them, [`StartError::Failed`] if the API server refuses them.
    pub fn install(control_plane: &ControlPlane) -> Result<(), StartError> {
        let folder = built("capv")?.join("crds");
        let scratch = Scratch::new("capv")?;
        let account = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            },
        ]});
        let account = scratch.write("account.json", &account.to_string())?;
        for path in [&folder, &account] {
            let path = path.display().to_string();
            control_plane.kubectl_output(&["apply", "--server-side", "--filename", &path])?;
        }
        for entry in fs::read_dir(&folder).map_err(anyhow::Error::from)? {
            let path = entry.map_err(anyhow::Error::from)?.path().display().to_string();
            let label = "cluster.x-k8s.io/v1beta1=v1beta1";
            control_plane.kubectl_output(&["label", "--overwrite", "--filename", &path, label])?;
        }
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
        control_plane.kubectl_output(&wait)?;
        Ok(())
    }

    /// Starts it for the machines of this vCenter, whose credentials it has, and waits up to 60 s until it is ready.
    /// `arguments` come last. If the program is not in the cache, it is built first, which takes four minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the program, [`StartError::Failed`] if it does not become ready.
    pub fn start(
        control_plane: &ControlPlane,
        vcsim: &Vcsim,
        arguments: &[&str],
    ) -> Result<Self, StartError> {
        need_programs(&["openssl", "setpriv", "curl"])?;
        let program = built("capv-manager")?.join("cluster-api-provider-vsphere");
        let scratch = Scratch::new("capv")?;
        keys::server(&scratch, &[])?;
        let certificates = scratch.make("certificates")?;
        for (file, name) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
            fs::copy(scratch.join(file), certificates.join(name)).map_err(anyhow::Error::from)?;
        }
        let credentials = json!({"username": vcsim.user(), "password": vcsim.password()});
        // JSON is YAML
        let credentials = scratch.write("credentials.yaml", &credentials.to_string())?;
        let netns = Netns::new("capv")?;
        netns.relay(control_plane.port())?;
        netns.relay(vcsim.port())?;
        let kubeconfig = control_plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT)?;
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = netns.command(program);
        command
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", ACCOUNT)
            .env("POD_UID", ACCOUNT)
            .arg(flag("kubeconfig", &kubeconfig))
            .arg(flag("webhook-cert-dir", &certificates))
            .arg(flag("credentials-file", &credentials))
            .arg(format!("--webhook-port={WEBHOOKS}"))
            .arg(format!("--health-addr=127.0.0.1:{HEALTH}"))
            .arg(format!("--diagnostics-address=127.0.0.1:{DIAGNOSTICS}"))
            .args(["--insecure-diagnostics", "--leader-elect=false"])
            .args(arguments);
        let mut process = Process::spawn("capv", &command, scratch.join("capv.log"))?;
        process.wait_until(PATIENCE, || {
            let mut curl = netns.command("curl");
            curl.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "20"]);
            curl.arg(format!("http://127.0.0.1:{HEALTH}/readyz"));
            curl.output().is_ok_and(|output| output.status.success())
        })?;
        Ok(Self { process, _netns: netns, _scratch: scratch })
    }

    /// The process, to stop it or to see what it uses.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }
}

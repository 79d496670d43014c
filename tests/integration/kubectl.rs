//! The real `kubectl` on the sandbox over HTTP.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use sandbox::{Sandbox, kubelet};
use tempfile::TempDir;
use test_env::ControlPlanePrograms;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::{
    scenarios::Trials,
    trial::{Outcome, runtime},
};

pub(crate) fn trials() -> Trials {
    Trials::new().trial("kubectl::everyday_commands_work_on_the_sandbox", everyday_commands)
}

struct Kubectl {
    program: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // A separate HOME: kubectl keeps discovery in it
        command.env("HOME", &self.home).arg("--kubeconfig").arg(self.home.join("kubeconfig")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs kubectl and returns its output, or both outputs if it failed.
    async fn run(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = self.command(args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stdout = text(&output.stdout);
        if output.status.success() { Ok(stdout) } else { Err(format!("{stdout}{}", text(&output.stderr))) }
    }

    async fn ok(&self, args: &[&str]) -> String {
        self.run(args, "").await.unwrap_or_else(|output| panic!("kubectl {args:?}: {output}"))
    }
}

fn everyday_commands() -> Outcome {
    let program = ControlPlanePrograms::find()?.kubectl;
    let home = TempDir::new()?;
    runtime(false)?.block_on(everyday(program, home.path()));
    Ok(())
}

async fn everyday(program: PathBuf, home: &Path) {
    let sandbox = Sandbox::new();
    let server = sandbox.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    std::fs::write(home.join("kubeconfig"), server.kubeconfig()).unwrap();
    let kubectl = Kubectl { program, home: home.to_owned() };
    let client = sandbox.client();
    kubelet::register(&client, &kubelet::node("worker-1", "u")).await.unwrap();
    kubelet::heartbeat(&client, "worker-1", true).await.unwrap();
    kubelet::renew_lease(&client, "worker-1").await.unwrap();

    let table = kubectl.ok(&["get", "nodes", "-o", "wide"]).await;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..5], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"], "{table}");
    assert_eq!(lines[0][5..7], ["INTERNAL-IP", "EXTERNAL-IP"], "{table}");
    assert_eq!(lines[1][..3], ["worker-1", "Ready", "<none>"], "{table}");

    let mut watch = kubectl.command(&["get", "nodes", "-w"]).spawn().unwrap();
    let mut watched = BufReader::new(watch.stdout.take().unwrap()).lines();
    for start in ["NAME", "worker-1"] {
        assert!(watched.next_line().await.unwrap().unwrap().starts_with(start));
    }
    assert_eq!(kubectl.ok(&["cordon", "worker-1"]).await, "node/worker-1 cordoned\n");
    let line = tokio::time::timeout(test_env::PATIENCE, watched.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("Ready,SchedulingDisabled"), "{line}");
    watch.kill().await.unwrap();

    kubectl.ok(&["uncordon", "worker-1"]).await;
    kubectl.ok(&["label", "node", "worker-1", "node-role.kubernetes.io/worker="]).await;
    kubectl.ok(&["annotate", "node", "worker-1", "example.com/a=b"]).await;
    kubectl.ok(&["taint", "node", "worker-1", "example.com/t=v:NoSchedule"]).await;
    kubectl.ok(&["taint", "node", "worker-1", "node.cloudprovider.kubernetes.io/uninitialized-"]).await;
    kubectl.ok(&["patch", "node", "worker-1", "-p", r#"{"spec":{"providerID":"test://1"}}"#]).await;
    let refused = [
        "patch",
        "node",
        "worker-1",
        "--type=json",
        "-p",
        r#"[{"op":"test","path":"/spec/providerID","value":"x"}]"#,
    ];
    assert!(kubectl.run(&refused, "").await.unwrap_err().contains("the server rejected our request"));
    let described = kubectl.ok(&["describe", "node", "worker-1"]).await;
    for part in
        ["test://1", "Roles:              worker", "example.com/t=v:NoSchedule", "HolderIdentity:  worker-1"]
    {
        assert!(described.contains(part), "no {part:?} in\n{described}");
    }

    let manifest = |size: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: \"{size}\"\n")
    };
    for (size, result) in [("1", "created"), ("1", "unchanged"), ("2", "configured")] {
        let applied = kubectl.run(&["apply", "-f", "-"], &manifest(size)).await.unwrap();
        assert_eq!(applied, format!("configmap/settings {result}\n"));
    }
    let applied =
        kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifest("3")).await;
    assert_eq!(applied.unwrap(), "configmap/settings serverside-applied\n");
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data.size}"]).await, "3");
    assert_eq!(
        kubectl.ok(&["get", "leases", "-A", "--no-headers"]).await.split_whitespace().nth(2),
        Some("worker-1")
    );
    let fresh = kubectl.run(&["create", "-f", "-"], &manifest("4")).await.unwrap_err();
    assert!(fresh.contains("AlreadyExists"), "{fresh}");
    kubectl.ok(&["delete", "node/worker-1", "--timeout=20s"]).await;
    assert!(kubectl.run(&["get", "node", "worker-1"], "").await.unwrap_err().contains("NotFound"));
    server.shutdown().await;
}

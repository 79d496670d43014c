//! Two signals to the binary: after the first one a write in progress is completed; after the second one it
//! exits at once.

use std::{fs, ops::Range, time::Duration};

use anyhow::{Context, ensure};
use kube::{Client, api::DeleteParams};
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;
use test_env::Signal;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{NAME, leases, record};
use crate::{
    api::Api,
    daemon::{DaemonProcess, binary},
    hypervisors::{name, test_driver_file},
    manifest,
    scenarios::Trials,
    shipped_roles,
    support::*,
};

/// Differs from the exit codes of a bad command line and of a lost lease.
const ABORTED: i32 = 255;
const SOON: Duration = Duration::from_secs(30);
const MACHINES: Range<usize> = 0..200;
/// The name of an admission webhook that never answers.
const WEBHOOK: &str = "never-answers";

pub(super) fn trials() -> Trials {
    Trials::new().api_server("leader_election::a_second_signal_aborts_at_once", second_signal)
}

async fn second_signal(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let domains = folder.path().join("domains.xml");
    fs::write(&domains, test_driver_file(MACHINES)?)?;
    let config = folder.path().join("cloud.yaml");
    let text = format!("hypervisors: [{{name: kvm1, uri: 'test://{}'}}]\n", domains.display());
    fs::write(&config, text)?;
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", shipped_roles::kubeconfig(control_plane).await?.display()),
    ];

    let mut machines = MACHINES;
    for (first, second) in [(Signal::Term, Signal::Int), (Signal::Int, Signal::Term)] {
        let log = folder.path().join(format!("{first:?}"));
        let mut daemon = DaemonProcess::start(&arguments, &log)?;
        let outcome = abort(api, &mut daemon, &mut machines, first, second).await;
        // The next test on this control plane writes Nodes as well.
        delete_webhook(&api.client).await?;
        outcome.with_context(|| daemon.log())?;
        // The next round must not wait for the Lease to expire.
        leases(&api.client).delete(NAME, &DeleteParams::default()).await?;
    }
    Ok(())
}

async fn abort(
    api: &Api,
    daemon: &mut DaemonProcess,
    machines: &mut impl Iterator<Item = usize>,
    first: Signal,
    second: Signal,
) -> anyhow::Result<()> {
    let number = machines.next().context("machines")?;
    kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    node_becomes(&api.client, &name(number), SOON, "initialized", is_initialized).await?;

    let webhook = TcpListener::bind(("127.0.0.1", 0)).await?;
    make_webhook(&api.client, webhook.local_addr()?.port()).await?;
    let _held = write_under_way(api, &webhook, machines).await?;

    daemon.process().signal(first)?;
    eventually(SOON, "the first signal is heard", || async {
        Ok(daemon.log().contains("signal received").then_some(()))
    })
    .await?;
    ensure!(daemon.process().is_running(), "it lets the write under way end");
    ensure!(!record(&api.client).await?.holder.is_empty(), "and leads until then");

    daemon.process().signal(second)?;
    let code = daemon.wait(SOON)?;
    ensure!(code == Some(ABORTED), "exit code {code:?}");
    let log = daemon.log();
    ensure!(log.contains("second signal") && !log.contains("did not end within"), "it waited");
    let left = record(&api.client).await?;
    ensure!(!left.holder.is_empty(), "the write may still be on its way: {left:?}");
    Ok(())
}

/// Registers Nodes until the API server uses the webhook: then it calls the webhook about a write of the
/// daemon, and that write is in progress as long as the connection is open.
async fn write_under_way(
    api: &Api,
    webhook: &TcpListener,
    machines: &mut impl Iterator<Item = usize>,
) -> anyhow::Result<TcpStream> {
    for number in machines {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
        if let Ok(asked) = timeout(Duration::from_millis(500), webhook.accept()).await {
            return Ok(asked?.0);
        }
    }
    anyhow::bail!("the webhook is not asked")
}

/// Makes the API server call the server on this port about every change of a Node.
async fn make_webhook(admin: &Client, port: u16) -> anyhow::Result<()> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK},
        "webhooks": [{
            "name": "never.answers.example",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": ["nodes", "nodes/status"],
            }],
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"],
        }],
    });
    manifest::apply(admin, &configuration.to_string()).await
}

async fn delete_webhook(admin: &Client) -> anyhow::Result<()> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK},
    });
    manifest::delete(admin, &configuration.to_string()).await
}

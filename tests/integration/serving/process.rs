//! The binary with its flags, compared with a Go cloud-controller-manager with the same flags.

use std::{fs, net::TcpListener, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::FrameworkCcm;

use super::curl::Curl;
use crate::{
    api::Api,
    clients::allow,
    daemon::{DaemonProcess, binary},
    forwarder::Forwarder,
    scenarios::Trials,
    support::eventually,
};

const SOON: Duration = Duration::from_secs(30);

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("serving::configz_and_health_as_a_go_ccm", beside_go)
        .api_server("serving::a_taken_port_ends_the_binary", taken_port)
        .api_server("serving::the_binarys_verbosity_is_changed_while_it_runs", verbosity)
        .api_server("serving::a_standby_waits_for_the_api_server_for_as_long_as_it_takes", without_api_server)
        .api_server("serving::a_leader_that_may_not_work_ends", useless_leader)
}

pub(super) fn arguments(api: &Api, folder: &TempDir, port: u16) -> anyhow::Result<Vec<String>> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let kubeconfig = control_plane.kubeconfig().display();
    Ok(vec![
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
    ])
}

async fn beside_go(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let port = test_env::free_port()?;
    let same = [
        "--leader-elect-lease-duration=20s",
        "--concurrent-node-syncs=3",
        "--kube-api-qps=7.5",
        "--kube-api-burst=9",
        "--controllers=*,-service-lb-controller",
        "--node-monitor-period=1500ms",
        "--concurrent-node-lifecycle-syncs=3",
        "--cluster-name=beside",
        "--profiling=true",
    ];
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let token = control_plane.admin_token();
    let go = {
        let kubeconfig = control_plane.kubeconfig().to_owned();
        tokio::task::spawn_blocking(move || FrameworkCcm::start(&kubeconfig, "{}", &same)).await?
    };
    let go = go.map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut arguments = arguments(api, &folder, port)?;
    arguments.extend(same.map(str::to_owned));
    let ours = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let get = |path: &str| Curl::get(&format!("https://127.0.0.1:{port}{path}"));
    eventually(SOON, "it serves", || async {
        Ok((get("/healthz").send().await?.status == 200).then_some(()))
    })
    .await
    .with_context(|| ours.log())?;

    let theirs: Value = serde_json::from_str(&go.get("/configz", token)?)?;
    let own = get("/configz").token(token).expect(200).await?.json()?;
    let differences = differences(&theirs, &own);
    // The provider differs, we send JSON to the API server, routes follow changes of Nodes, so their period is longer,
    // Services are worked on in parallel, and there are more controllers.
    let expected = [
        "/cloudcontrollermanager.config.k8s.io/Generic/ClientConnection/contentType",
        "/cloudcontrollermanager.config.k8s.io/KubeCloudShared/CloudProvider/CloudConfigFile",
        "/cloudcontrollermanager.config.k8s.io/KubeCloudShared/CloudProvider/Name",
        "/cloudcontrollermanager.config.k8s.io/KubeCloudShared/RouteReconciliationPeriod",
        "/cloudcontrollermanager.config.k8s.io/Lifecycle",
        "/cloudcontrollermanager.config.k8s.io/MachineController",
        "/cloudcontrollermanager.config.k8s.io/ServiceController/ConcurrentServiceSyncs",
    ];
    for difference in &differences {
        ensure!(expected.contains(&difference.as_str()), "{differences:?}\n{theirs:#}\n{own:#}");
    }

    // Both respond equally on common paths. We have more paths, and one more check.
    for path in ["/metrics", "/configz", "/", "/nope", "/debug/pprof/", "/healthz/ping"] {
        let (their, our) = (go.get(path, "")?, get(path).send().await?);
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
        ensure!(json(&their) == json(&our.text()), "{path}: {their}\n{}", our.text());
    }
    for path in ["/", "/nope"] {
        let (their, our) = (go.get(path, token)?, get(path).token(token).send().await?);
        ensure!(their == our.text(), "{path}: {their} {}", our.text());
    }
    ensure!(go.get("/healthz", "")? == get("/healthz").send().await?.text());
    let their = go.get("/healthz?verbose&exclude=x&exclude=a", "")?;
    let our = get("/healthz?verbose&exclude=x&exclude=a").send().await?.text();
    let without_ping = our.replace("[+]ping ok\n", "");
    let election = "[+]leaderElection ok\n";
    ensure!(their.contains(election) && without_ping.contains(election), "{their}\n{our}");
    let tail = |text: &str| text.rsplit_once("warn: ").map(|(_, tail)| tail.to_owned());
    ensure!(tail(&their) == tail(&our) && tail(&our).is_some(), "{their}\n{our}");
    let bad = |text: String| serde_json::from_str::<Value>(&text).ok();
    ensure!(
        bad(go.get("/healthz", "wrong")?) == bad(get("/healthz").token("wrong").expect(401).await?.text())
    );
    ours.terminate()
}

/// The differences between two documents, as JSON pointers.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter()
                .flat_map(|key| {
                    match (one.get(key), other.get(key)) {
                        (Some(one), Some(other)) => differences(one, other),
                        _ => vec![String::new()],
                    }
                    .into_iter()
                    .map(move |rest| format!("/{key}{rest}"))
                })
                .collect()
        }
        // Go writes 7 for 7.0.
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => Vec::new(),
        _ if one == other => Vec::new(),
        _ => vec![String::new()],
    }
}

async fn taken_port(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let port = test_env::free_port()?;
    let _taken = TcpListener::bind(("127.0.0.1", port))?;
    let arguments = arguments(api, &folder, port)?;
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let code = tokio::task::spawn_blocking(move || {
        let code = daemon.wait(SOON);
        (code, daemon.log())
    })
    .await?;
    ensure!(code.0? == Some(1), "{}", code.1);
    ensure!(code.1.contains("--secure-port") && code.1.contains(&port.to_string()), "{}", code.1);
    Ok(())
}

async fn verbosity(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let port = test_env::free_port()?;
    let token = api.control_plane.as_ref().context("the control plane")?.admin_token();
    let daemon = DaemonProcess::start(&arguments(api, &folder, port)?, &folder.path().join("log"))?;
    let get = |path: &str| Curl::get(&format!("https://127.0.0.1:{port}{path}"));
    eventually(SOON, "it serves", || async {
        Ok((get("/healthz").send().await?.status == 200).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    // Refusals are logged at level 4, before the response.
    let refusals = async || {
        get("/metrics").expect(403).await?;
        anyhow::Ok(daemon.log().lines().filter(|line| line.contains("\"Forbidden\"")).count())
    };
    ensure!(refusals().await? == 0, "{}", daemon.log());
    let put = |level: &str| get("/debug/flags/v").method("PUT").token(token).args(["--data", level]);
    let answer = put("4").expect(200).await?.text();
    ensure!(answer == "successfully set klog.logging.verbosity to 4\n", "{answer}");
    ensure!(refusals().await? == 1, "{}", daemon.log());
    put("0").expect(200).await?;
    ensure!(refusals().await? == 1, "{}", daemon.log());
    // Only authorized clients may change it, and only to a number.
    get("/debug/flags/v").method("PUT").args(["--data", "9"]).expect(403).await?;
    put("much").expect(400).await?;
    ensure!(refusals().await? == 1, "{}", daemon.log());
    daemon.terminate()
}

/// A kubelet must not restart a daemon that waits for its API server. As upstream, the daemon stands by
/// however long that takes.
async fn without_api_server(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let (port, later) = (test_env::free_port()?, test_env::free_port()?);
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    // No server listens there yet.
    let away = format!("https://127.0.0.1:{later}");
    let path = folder.path().join("kubeconfig");
    let kubeconfig = fs::read_to_string(control_plane.kubeconfig())?;
    fs::write(&path, kubeconfig.replace(&control_plane.url(), &away))?;
    let mut arguments = arguments(api, &folder, port)?;
    for argument in &mut arguments {
        if let Some((flag, _)) = argument.split_once("kubeconfig=") {
            *argument = format!("{flag}kubeconfig={}", path.display());
        }
    }
    let get = |path: &str| Curl::get(&format!("https://127.0.0.1:{port}{path}"));
    let is_healthy = async |daemon: &DaemonProcess| {
        for path in ["/livez", "/healthz", "/readyz"] {
            eventually(SOON, path, || async { Ok((get(path).send().await?.status == 200).then_some(())) })
                .await
                .with_context(|| daemon.log())?;
        }
        anyhow::Ok(())
    };

    let daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    is_healthy(&daemon).await?;
    // Longer than a leader waits.
    tokio::time::sleep(Duration::from_secs(12)).await;
    is_healthy(&daemon).await?;
    let log = daemon.log();
    ensure!(log.contains(&away) && !log.contains("became leader"), "{log}");
    let there = Forwarder::listen(later, control_plane.port()).await?;
    eventually(SOON * 2, "the controllers start", || async {
        let log = daemon.log();
        Ok((log.contains("became leader") && log.contains("\"started\"")).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    let admin = control_plane.kubeconfig_for("root", &["system:masters"])?.with_extension("crt");
    eventually(SOON, "it knows whom the cluster trusts", || async {
        Ok((get("/metrics").certificate(&admin).send().await?.status == 200).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    daemon.terminate()?;
    drop(there);

    // Without an election, the daemon does not wait forever.
    arguments.push("--leader-elect=false".to_owned());
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log-alone"))?;
    is_healthy(&daemon).await?;
    let daemon = tokio::task::spawn_blocking(move || daemon.wait(SOON).map(|code| (code, daemon.log())));
    let (code, log) = daemon.await??;
    ensure!(code == Some(255) && log.contains("cannot reach the API server"), "{log}");
    Ok(())
}

/// A leader that cannot work exits after ten seconds and releases the Lease.
async fn useless_leader(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let rule = "- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: ['*']}";
    allow(&api.client, "elects-only", rule).await?;
    let kubeconfig = control_plane.kubeconfig_for("elects-only", &[])?;
    let mut arguments = arguments(api, &folder, test_env::free_port()?)?;
    arguments.retain(|argument| !argument.contains("kubeconfig="));
    arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
    arguments.push("--leader-elect-resource-name=elects-only".to_owned());
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let ended = tokio::task::spawn_blocking(move || daemon.wait(SOON).map(|code| (code, daemon.log())));
    let (code, log) = ended.await??;
    ensure!(code == Some(255) && log.contains("does not list nodes"), "{log}");
    ensure!(log.contains("became leader") && log.contains("lease given back"), "{log}");
    Ok(())
}

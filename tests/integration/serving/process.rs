//! The binary with its flags, beside a Go cloud-controller-manager with the same ones.

use std::{fs, net::TcpListener, time::Duration};

use anyhow::{Context, ensure};
use futures::FutureExt;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::FrameworkCcm;

use super::{curl::Curl, free_port};
use crate::{
    api::{Api, Target},
    daemon::{DaemonProcess, binary},
    support::eventually,
    trial::{Outcome, on, runtime, trial},
};

const SOON: Duration = Duration::from_secs(30);

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on(Target::ApiServer, "serving::configz_and_health_as_a_go_ccm", |api| beside_go(api).boxed_local()),
        on(Target::ApiServer, "serving::a_taken_port_ends_the_binary", |api| taken_port(api).boxed_local()),
        on(Target::ApiServer, "serving::the_binarys_verbosity_is_changed_while_it_runs", |api| {
            verbosity(api).boxed_local()
        }),
        trial("apiserver::serving::health_is_answered_before_the_api_server_is_there", without_api_server),
    ]
}

fn arguments(api: &Api, folder: &TempDir, port: u16) -> anyhow::Result<Vec<String>> {
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
    let port = free_port()?;
    let same = [
        "--leader-elect-lease-duration=20s",
        "--concurrent-node-syncs=3",
        "--kube-api-qps=7.5",
        "--kube-api-burst=9",
        "--controllers=*,-service-lb-controller",
        "--node-monitor-period=1500ms",
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
    // The provider is another one, and what is sent to the API server is JSON.
    let expected = [
        "/cloudcontrollermanager.config.k8s.io/Generic/ClientConnection/contentType",
        "/cloudcontrollermanager.config.k8s.io/KubeCloudShared/CloudProvider/CloudConfigFile",
        "/cloudcontrollermanager.config.k8s.io/KubeCloudShared/CloudProvider/Name",
    ];
    for difference in &differences {
        ensure!(expected.contains(&difference.as_str()), "{differences:?}\n{theirs:#}\n{own:#}");
    }

    // What both have is answered alike; we have more paths, and one check more.
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

/// Where two documents differ, as JSON pointers.
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
    let port = free_port()?;
    let _taken = TcpListener::bind(("127.0.0.1", port))?;
    let arguments = arguments(api, &folder, port)?;
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let code = tokio::task::spawn_blocking(move || {
        let code = daemon.wait(SOON);
        (code, daemon.log())
    })
    .await?;
    ensure!(code.0? == Some(255), "{}", code.1);
    ensure!(code.1.contains("--secure-port") && code.1.contains(&port.to_string()), "{}", code.1);
    Ok(())
}

async fn verbosity(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let port = free_port()?;
    let token = api.control_plane.as_ref().context("the control plane")?.admin_token();
    let daemon = DaemonProcess::start(&arguments(api, &folder, port)?, &folder.path().join("log"))?;
    let get = |path: &str| Curl::get(&format!("https://127.0.0.1:{port}{path}"));
    eventually(SOON, "it serves", || async {
        Ok((get("/healthz").send().await?.status == 200).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    // What is refused is said at 4, before the answer.
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
    // Not for everybody, and not with anything.
    get("/debug/flags/v").method("PUT").args(["--data", "9"]).expect(403).await?;
    put("much").expect(400).await?;
    ensure!(refusals().await? == 1, "{}", daemon.log());
    daemon.terminate()
}

/// A kubelet must not restart a daemon that waits for its API server.
fn without_api_server() -> Outcome {
    binary()?;
    let folder = TempDir::new()?;
    let [config, kubeconfig] = ["cloud.yaml", "kubeconfig"].map(|name| folder.path().join(name));
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    // Nobody listens there.
    let server = format!("https://127.0.0.1:{}", free_port()?);
    fs::write(
        &kubeconfig,
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        })
        .to_string(),
    )?;
    let (port, kubeconfig) = (free_port()?, kubeconfig.display());
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
    ];
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    runtime(false)?.block_on(async {
        for path in ["/livez", "/healthz", "/readyz"] {
            let url = format!("https://127.0.0.1:{port}{path}");
            eventually(SOON, path, || async {
                Ok((Curl::get(&url).send().await?.status == 200).then_some(()))
            })
            .await
            .with_context(|| daemon.log())?;
        }
        anyhow::Ok(())
    })?;
    let log = daemon.log();
    ensure_that(log.contains(&server) && !log.contains("configmap"), &log)?;
    // It does not wait for ever.
    let code = daemon.wait(SOON)?;
    ensure_that(code == Some(255) && daemon.log().contains("cannot reach the API server"), &daemon.log())?;
    Ok(())
}

fn ensure_that(holds: bool, log: &str) -> anyhow::Result<()> {
    ensure!(holds, "{log}");
    Ok(())
}

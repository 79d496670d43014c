//! The binary's log, line by line.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use sandbox::kubelet;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    api::{Api, delete_node},
    daemon::{DaemonProcess, binary},
    scenarios::Trials,
    support::*,
};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("logging::klogs_text_is_the_default", || Ok(text()?))
        .trial("logging::json_has_kubernetes_keys", || Ok(json()?))
        .api_server("logging::verbosities_show_what_the_page_says", verbosities)
}

/// The log at `-v=4`, `-v=6` and the highest level, with a password in the API server's address.
async fn verbosities(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let kubeconfig = folder.path().join("kubeconfig");
    let text = fs::read_to_string(control_plane.kubeconfig())?;
    ensure!(text.contains("https://"), "the API server's address");
    fs::write(&kubeconfig, text.replace("https://", "https://somebody:hunter2@"))?;
    for verbosity in [4, 6, 10] {
        // One machine that libvirt's test driver has, and one that it does not have.
        for name in ["test", "nobody"] {
            kubelet::register(&api.client, &kubelet::node(name, "")).await?;
        }
        let arguments = [
            "--cloud-provider=libvirt".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!("-v={verbosity}"),
        ];
        let daemon = DaemonProcess::start(&arguments, &folder.path().join(format!("log-{verbosity}")))?;
        node_becomes(&api.client, "test", SOON, "initialized", is_initialized).await?;
        node_becomes(&api.client, "nobody", SOON, "waits", |node| {
            condition_status(node, "CloudProviderInitialized").as_deref() == Some("False")
        })
        .await?;
        let log = daemon.log();
        let has = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        ensure!(has(&["node=\"test\"", "asking the cloud"]), "decisions at {verbosity}: {log}");
        ensure!(has(&["node=\"nobody\"", "InstanceNotFound", "trying again in"]), "retries: {log}");
        ensure!(has(&["\"node not initialized\"", "why=\"cloud provider libvirt has no"]), "reasons: {log}");
        let response = has(&[
            "\"Response\" verb=\"PATCH\" path=\"/api/v1/nodes/test/status\"",
            "status=\"200 OK\" milliseconds=",
        ]);
        ensure!(response == (verbosity >= 6), "requests at {verbosity}: {log}");
        let libraries = ["worker.rs", "pool.rs", "connect.rs", "builder.rs", "watcher.rs"];
        let noise = libraries.into_iter().find(|file| log.contains(&format!(" {file}:")));
        ensure!(noise.is_none() || verbosity >= 8, "{noise:?} at {verbosity}: {log}");
        ensure!(!log.contains("hunter2"), "a password at {verbosity}: {log}");
        daemon.terminate()?;
        for name in ["test", "nobody"] {
            delete_node(&api.client, name).await?;
        }
    }
    Ok(())
}

/// The log of a daemon that needs no Lease and whose API server is unreachable: events, warnings, and an
/// error.
fn lines(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    std::fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let output = Command::new(binary()?)
        .args([
            "--cloud-provider=libvirt",
            "--master=http://127.0.0.1:1",
            "--secure-port=0",
            "--leader-elect=false",
        ])
        .arg(format!("--cloud-config={}", config.display()))
        .args(arguments)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .output()?;
    ensure!(output.stdout.is_empty(), "on stdout: {}", String::from_utf8_lossy(&output.stdout));
    ensure!(output.status.code() == Some(255), "{output:?}");
    let text = String::from_utf8(output.stderr)?;
    ensure!(text.ends_with('\n') && text.lines().count() > 3, "{text}");
    Ok(text.lines().map(str::to_owned).collect())
}

fn text() -> anyhow::Result<()> {
    let lines = lines(&[])?;
    let heads: Vec<Head<'_>> = lines
        .iter()
        .map(|line| head(line).with_context(|| format!("not klog's form: {line}")))
        .collect::<anyhow::Result<_>>()?;
    for letter in ["I", "W", "E"] {
        ensure!(heads.iter().any(|head| head.letter == letter), "no {letter} in {lines:?}");
    }
    ensure!(heads.last().is_some_and(|head| head.letter == "E"), "{lines:?}");
    ensure!(heads.windows(2).all(|two| two[0].process == two[1].process), "{lines:?}");
    let start = lines.iter().find(|line| line.contains("\"starting\""));
    ensure!(start.is_some_and(|line| line.ends_with("cloud_provider=\"libvirt\"")), "{lines:?}");
    Ok(())
}

struct Head<'a> {
    letter: &'a str,
    process: u32,
}

/// Parses `Lmmdd hh:mm:ss.uuuuuu   pid file.rs:line] "message" ...`.
fn head(line: &str) -> Option<Head<'_>> {
    let is_digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let (head, message) = line.split_once("] ")?;
    let mut words = head.split_whitespace();
    let (date, time, process, place) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (letter, date) = date.split_at_checked(1)?;
    let (clock, micros) = time.split_once('.')?;
    let mut parts = clock.split(':');
    let is_time = is_digits(micros, 6) && parts.clone().count() == 3 && parts.all(|part| is_digits(part, 2));
    let (file, number) = place.rsplit_once(':')?;
    let file = file.strip_suffix(".rs")?;
    let is_place = !file.is_empty() && !file.contains('/') && number.parse::<u32>().is_ok();
    // klog pads the process ID to seven characters.
    let is_padded = head.get(21..)?.starts_with(&format!(" {process:>7} "));
    let is_whole = words.next().is_none() && "IWE".contains(letter) && is_digits(date, 4);
    let process = process.parse().ok()?;
    (is_whole && is_time && is_place && is_padded && message.starts_with('"'))
        .then_some(Head { letter, process })
}

fn json() -> anyhow::Result<()> {
    let before = Timestamp::now().as_millisecond();
    let lines = lines(&["--logging-format=json"])?;
    let after = Timestamp::now().as_millisecond();
    for line in &lines {
        let record: Value = serde_json::from_str(line).with_context(|| line.clone())?;
        let text = |key: &str| record[key].as_str().filter(|text| !text.is_empty());
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds")]
        let time = record["ts"].as_f64().context("ts")? as i64;
        ensure!((before - 1..=after + 1).contains(&time), "{line}");
        let (_, number) =
            text("caller").and_then(|caller| caller.split_once(".rs:")).context(line.clone())?;
        ensure!(number.parse::<u32>().is_ok() && text("msg").is_some(), "{line}");
        // an error has no verbosity; a warning may have both
        ensure!(record["v"].is_u64() || record.get("err").is_some(), "{line}");
    }
    let errors = lines.iter().filter(|line| !line.contains("\"v\":")).count();
    let warnings = lines.iter().filter(|line| line.contains("\"severity\":\"warning\"")).count();
    ensure!(errors == 1 && warnings > 0, "{lines:?}");
    Ok(())
}

//! The log as the binary prints it, line by line.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::{daemon::binary, trial::trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("logging::klogs_text_is_the_default", || Ok(text()?)),
        trial("logging::json_has_kubernetes_keys", || Ok(json()?)),
    ]
}

/// The lines of a daemon whose API server is away: some that say what happens, warnings, and an error.
fn lines(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    std::fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let output = Command::new(binary()?)
        .args(["--cloud-provider=libvirt", "--master=http://127.0.0.1:1", "--secure-port=0"])
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

/// Reads `Lmmdd hh:mm:ss.uuuuuu   pid file.rs:line] "message" ...`.
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
    // klog pads the process to seven places.
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
        ensure!(record["v"].is_u64() != record.get("err").is_some(), "{line}");
    }
    let errors = lines.iter().filter(|line| line.contains("\"err\"")).count();
    let warnings = lines.iter().filter(|line| line.contains("\"severity\":\"warning\"")).count();
    ensure!(errors == 1 && warnings > 0, "{lines:?}");
    Ok(())
}

//! How large the program is, and how soon it answers.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::{IDEAL, Manager, Values, Working, number, values};
use crate::{cluster::Cluster, statistics::Summary};

#[derive(Clone, Debug)]
pub(crate) struct Startup;

const VERSIONS: usize = 10;
const SERVES_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

impl Startup {
    /// `binary_bytes`, `version_seconds` for `--version`, `healthy_seconds` from the start to `/healthz`.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let program = manager.program()?;
        let mut versions = Vec::new();
        for _ in 0..VERSIONS {
            let began = Instant::now();
            let status = Command::new(&program).arg("--version").stdout(Stdio::null()).status()?;
            ensure!(status.success(), "{} --version: {status}", program.display());
            versions.push(began.elapsed().as_secs_f64());
        }
        let cluster = Cluster::start().await?;
        let began = Instant::now();
        let working = Working::start(manager, &cluster, IDEAL, &["--leader-elect=false"])?;
        while !is_healthy(working.port)? {
            ensure!(began.elapsed() < SERVES_WITHIN, "no /healthz within {SERVES_WITHIN:?}");
            sleep(POLL).await;
        }
        let healthy = began.elapsed();
        working.end()?;
        Ok(values([
            ("binary_bytes", number(std::fs::metadata(&program)?.len())),
            ("version_seconds", Summary::of(&versions).map_or(0.0, |summary| summary.median)),
            ("healthy_seconds", healthy.as_secs_f64()),
        ]))
    }
}

fn is_healthy(port: u16) -> Result<bool> {
    let status = Command::new("curl")
        .args(["--silent", "--insecure", "--fail", "--noproxy", "*", "--max-time", "5"])
        .arg(format!("https://127.0.0.1:{port}/healthz"))
        .stdout(Stdio::null())
        .status()?;
    Ok(status.success())
}

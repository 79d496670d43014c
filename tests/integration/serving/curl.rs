//! Requests with curl.

use std::path::Path;

use anyhow::{Context, ensure};
use tokio::process::Command;

/// One request. It accepts any server certificate by default.
pub(crate) struct Curl {
    command: Command,
    checks_server: bool,
}

/// The response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 if there was no response.
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    /// curl's error message.
    pub(crate) error: String,
    /// Whether the whole response arrived.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }
}

impl Curl {
    pub(crate) fn get(url: &str) -> Self {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "30"]);
        command.args([
            "--dump-header",
            "/dev/stderr",
            "--write-out",
            "%{stderr}HTTP-STATUS=%{http_code}",
            url,
        ]);
        Self { command, checks_server: false }
    }

    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn method(self, method: &str) -> Self {
        self.args(["--request", method])
    }

    pub(crate) fn token(self, token: &str) -> Self {
        let header = format!("Authorization: Bearer {token}");
        self.args(["--header", &header])
    }

    /// Uses a client certificate; its key is beside it.
    pub(crate) fn certificate(mut self, certificate: &Path) -> Self {
        self.command.arg("--cert").arg(certificate).arg("--key").arg(certificate.with_extension("key"));
        self
    }

    /// Accepts only certificates that this authority signed, and only for the requested name.
    pub(crate) fn authority(mut self, authority: &Path) -> Self {
        self.command.arg("--cacert").arg(authority);
        self.checks_server = true;
        self
    }

    pub(crate) async fn send(mut self) -> anyhow::Result<Answer> {
        if !self.checks_server {
            self.command.arg("--insecure");
        }
        let output = self.command.kill_on_drop(true).output().await.context("curl")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let (headers, status) = error.rsplit_once("HTTP-STATUS=").context(error.clone())?;
        let status = status.get(..3).and_then(|status| status.parse().ok()).context(error.clone())?;
        Ok(Answer {
            status,
            headers: headers.to_lowercase(),
            body: output.stdout,
            error: headers.to_owned(),
            is_whole: output.status.success(),
        })
    }

    /// Sends the request and expects this status.
    pub(crate) async fn expect(self, status: u16) -> anyhow::Result<Answer> {
        let answer = self.send().await?;
        ensure!(
            answer.status == status,
            "{} instead of {status}: {} {}",
            answer.status,
            answer.error,
            answer.text()
        );
        Ok(answer)
    }
}

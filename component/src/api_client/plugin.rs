//! Credential plugins: programs that a kubeconfig names (`exec`), which print credentials.
//!
//! One run serves all connections until its credentials are about to end.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::credentials::checked_token;

/// Time limit of a plugin. It cannot ask questions, since no person is there to answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// A plugin and its arguments.
#[derive(Clone, Debug)]
pub(super) struct Plugin(ExecConfig);

/// What is known about credentials that a plugin printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity {
    /// When they expire, if they do.
    pub end: Option<Timestamp>,
    /// Whether they are a certificate.
    pub is_certificate: bool,
}

#[derive(Deserialize)]
struct Printed {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<SecretString>,
    client_certificate_data: Option<String>,
    client_key_data: Option<SecretString>,
}

impl Plugin {
    /// Takes the plugin of a user. As in client-go, other credentials of the user take precedence over a
    /// plugin.
    ///
    /// # Errors
    /// The plugin names no program, or needs interactive input.
    pub(super) fn take(auth: &mut AuthInfo) -> anyhow::Result<Option<Self>> {
        let Some(exec) = auth.exec.take() else { return Ok(None) };
        if auth.token.is_some() || auth.username.is_some() {
            return Ok(None);
        }
        ensure!(
            exec.command.as_ref().is_some_and(|command| !command.is_empty()),
            "the user's credential plugin (exec) has no command"
        );
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            bail!("the user's credential plugin (exec) is interactive, and there is nobody to answer it");
        }
        Ok(Some(Self(exec)))
    }

    /// Runs the plugin and puts the printed credentials into `auth`. Dropping the future ends the program.
    ///
    /// # Errors
    /// The plugin cannot be run, fails, takes longer than a minute, or prints something else. The errors
    /// contain neither its output nor its input, since these may contain credentials.
    pub(super) async fn run(&self, auth: &mut AuthInfo) -> anyhow::Result<Validity> {
        let output = tokio::time::timeout(DEADLINE, self.command()?.output())
            .await
            .map_err(|_| anyhow!("the kubeconfig's credential plugin took longer than {DEADLINE:?}"))?
            .context("the kubeconfig's credential plugin cannot be run")?;
        if !output.status.success() {
            bail!("the kubeconfig's credential plugin failed with {}", output.status);
        }
        let nonsense = || anyhow!("what the kubeconfig's credential plugin printed is not an ExecCredential");
        // YAML includes JSON, and client-go accepts both.
        let text = std::str::from_utf8(&output.stdout).map_err(|_| nonsense())?;
        let printed: Printed = serde_saphyr::from_str(text).map_err(|_| nonsense())?;
        let status = printed.status.ok_or_else(nonsense)?;
        let token = status.token.filter(|token| !token.expose_secret().is_empty());
        let certificate = status.client_certificate_data.filter(|text| !text.is_empty());
        let key = status.client_key_data.filter(|text| !text.expose_secret().is_empty());
        ensure!(
            certificate.is_some() == key.is_some() && (certificate.is_some() || token.is_some()),
            "the kubeconfig's credential plugin printed neither a token nor a certificate with its key"
        );
        let is_certificate = certificate.is_some();
        if let (Some(certificate), Some(key)) = (certificate, key) {
            auth.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
            auth.client_key_data = Some(BASE64_STANDARD.encode(key.expose_secret()).into());
        }
        if let Some(token) = token {
            let token = checked_token(token.expose_secret());
            auth.token = Some(token.context("the token of the kubeconfig's credential plugin")?);
        }
        Ok(Validity { end: status.expiration_timestamp, is_certificate })
    }

    fn command(&self) -> anyhow::Result<Command> {
        let Self(exec) = self;
        let mut spec = json!({ "interactive": false });
        if exec.provide_cluster_info {
            spec["cluster"] = serde_json::to_value(&exec.cluster)?;
        }
        let told = json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
        let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
        command.args(exec.args.iter().flatten());
        let variable = |pair: &std::collections::HashMap<String, String>| {
            Some((pair.get("name")?.clone(), pair.get("value")?.clone()))
        };
        command.envs(exec.env.iter().flatten().filter_map(variable));
        command.env("KUBERNETES_EXEC_INFO", told.to_string());
        // As in client-go, the plugin's error messages go to the daemon's stderr.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> (Option<Plugin>, AuthInfo) {
        let mut auth = AuthInfo {
            exec: serde_json::from_value(json!({
                "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            }))
            .expect("a plugin"),
            ..AuthInfo::default()
        };
        (Plugin::take(&mut auth).expect("a plugin"), auth)
    }

    async fn run(script: &str) -> anyhow::Result<(Validity, AuthInfo)> {
        let (plugin, mut auth) = plugin(script);
        Ok((plugin.expect("a plugin").run(&mut auth).await?, auth))
    }

    #[tokio::test]
    async fn it_is_told_for_whom_it_runs() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 1;; esac
            echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
            "status":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}'"#;
        let (validity, auth) = run(script).await.expect("a token");
        assert_eq!(auth.token.expect("a token").expose_secret(), "t");
        let end = Some("2030-01-01T00:00:00Z".parse().expect("a time"));
        assert_eq!(validity, Validity { end, is_certificate: false });
    }

    #[tokio::test]
    async fn a_certificate_is_taken_as_a_kubeconfig_holds_it() {
        let (validity, auth) = run("echo 'status: {clientCertificateData: cert, clientKeyData: key}'")
            .await
            .expect("a certificate");
        assert!(validity.is_certificate && validity.end.is_none());
        assert_eq!(auth.client_certificate_data.as_deref(), Some("Y2VydA=="));
        assert_eq!(auth.client_key_data.expect("a key").expose_secret(), "a2V5");
    }

    #[tokio::test]
    async fn what_it_printed_is_not_told() {
        for script in [
            "echo hunter2; exit 1",
            "echo 'hunter2: ['",
            "echo 'status: {token: [hunter2]}'",
            "echo 'status: {clientKeyData: hunter2}'",
            r#"echo 'status: {token: "hunter2\nx"}'"#,
            "echo '{}'",
        ] {
            let error = format!("{:#}", run(script).await.expect_err(script));
            assert!(error.contains("credential plugin") && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_answers_its_questions_and_nobody_waits_for_ever() {
        let (_, mut auth) = plugin("");
        auth.exec = serde_json::from_value(json!({ "command": "sh", "interactiveMode": "Always" }))
            .expect("a plugin");
        assert!(Plugin::take(&mut auth).expect_err("interactive").to_string().contains("interactive"));
        auth.exec = serde_json::from_value(json!({ "args": ["x"] })).expect("a plugin");
        assert!(Plugin::take(&mut auth).expect_err("no command").to_string().contains("command"));
        tokio::time::pause();
        let error = run("read line; sleep 1000").await.expect_err("too long").to_string();
        assert!(error.contains("took longer than 60s"), "{error}");
    }
}

//! Refused credentials are not tried again, and new ones are tried at once.

use std::time::Duration;

use anyhow::ensure;
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::VcsimOptions;
use tokio::time::sleep;

use super::*;
use crate::{daemon::InProcess, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new().api_server("vsphere::a_wrong_password_does_not_lock_the_account", wrong)
}

async fn wrong(api: &Api) -> anyhow::Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).map_err(|error| anyhow::anyhow!("{error}"))?;
    let folder = TempDir::new()?;
    let write = |password: &str| -> anyhow::Result<()> {
        std::fs::write(folder.path().join("127.0.0.1.username"), vcsim.user())?;
        Ok(std::fs::write(folder.path().join("127.0.0.1.password"), password)?)
    };
    write("hunter2\n")?;
    let text = format!(
        "global:\n  secretsDirectory: {}\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    port: {}\n    caFile: {}\n",
        folder.path().display(),
        vcsim.port(),
        vcsim.ca_file().display()
    );
    let provider = provider(&text)?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    let refused = |node: &Node| {
        condition(node, "CloudProviderInitialized").is_some_and(|(status, _, words)| {
            status == "False" && words.contains("refused the credentials") && !words.contains("hunter2")
        })
    };
    node_becomes(&api.client, &name(0), LIMIT, "says that the password is wrong", refused).await?;
    let told = event(&api.client, "default", &name(0), "InitializationFailed").await?;
    let words = told.message.unwrap_or_default();
    ensure!(words.contains("refused the credentials") && !words.contains("hunter2"), "{words}");
    sleep(Duration::from_secs(5)).await;
    let counts = vcsim.counts()?;
    println!("with a wrong password: {counts:?}");
    ensure!(counts["soap:Login"] <= 3, "{counts:?}");
    write(&format!("{}\n", vcsim.password()))?;
    followed(api, &name(0), "the right password", || Ok(()), is_initialized).await?;
    daemon.stop().await
}

//! The URL of the server and its API key change while the daemon runs.

use std::fs;

use anyhow::ensure;
use cloudprovider::Registry;
use sandbox::kubelet;
use serde_json::json;

use super::{
    LIMIT, SOON,
    fake_cattle::{ACCESS_KEY, FakeCattle, SECRET_KEY},
};
use crate::{api::Api, daemon::InProcess, support::*};

pub(super) async fn reload(api: &Api) -> anyhow::Result<()> {
    // Two addresses of one installation. Each has both hosts, under different zones so that they can be told apart.
    let (first, second) = (FakeCattle::start().await, FakeCattle::start().await);
    for (server, zone) in [(&first, "first"), (&second, "second")] {
        for number in 0..2 {
            let id = server.add_host(&format!("node-{number}"), &format!("10.0.0.{number}"));
            server.change_host(&id, json!({"labels": {"topology.kubernetes.io/zone": zone}}));
        }
    }
    let folder = tempfile::tempdir()?;
    let (config, secret) = (folder.path().join("config.yaml"), folder.path().join("secret-key"));
    let text = |server: &FakeCattle| {
        format!("url: {}\naccessKey: {ACCESS_KEY}\nsecretKeyFile: secret-key\n", server.url())
    };
    fs::write(&config, text(&first))?;
    fs::write(&secret, format!("{SECRET_KEY}\n"))?;
    let mut registry = Registry::new();
    registry.register("test", cloudprovider_rancher::factory)?;
    let path = format!("--cloud-config={}", config.display());
    let flags: Vec<_> = SOON.iter().copied().chain([path.as_str()]).collect();
    let daemon = InProcess::start_configured(&api.daemon_client, &registry, &flags, false)?;
    kubelet::register(&api.client, &kubelet::node("node-0", &uuid(0))).await?;
    let in_zone =
        |zone: &'static str| move |node: &_| label(node, "topology.kubernetes.io/zone") == Some(zone);
    node_becomes(&api.client, "node-0", LIMIT, "initialized", is_initialized).await?;
    node_becomes(&api.client, "node-0", LIMIT, "in the first zone", in_zone("first")).await?;

    // The key expires. Nothing is deleted for that, and a new key in the file is taken.
    "another-secret".clone_into(&mut first.cloud().key.1);
    first.go_away();
    first.come_back();
    set_ready_unknown(&api.client, "node-0").await?;
    let doubt = |node: &_| {
        condition(node, "CloudProviderInstanceExists").is_some_and(|(status, _, _)| status == "Unknown")
    };
    node_becomes(&api.client, "node-0", LIMIT, "says that it cannot tell", doubt).await?;
    fs::write(&secret, "another-secret")?;
    kubelet::register(&api.client, &kubelet::node("node-1", &uuid(1))).await?;
    node_becomes(&api.client, "node-1", LIMIT, "initialized with the new key", is_initialized).await?;

    // Another URL, with the old key.
    fs::write(&secret, SECRET_KEY)?;
    fs::write(&config, text(&second))?;
    for name in ["node-0", "node-1"] {
        node_becomes(&api.client, name, LIMIT, "in the second zone", in_zone("second")).await?;
    }
    ensure!(second.calls() > 0);
    daemon.stop().await
}

//! Objects that are created in a vCenter session, and sessions that are opened without a user and a password.

use anyhow::{Context as _, ensure};
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;
use test_env::VcsimOptions;

use super::*;
use crate::{daemon::InProcess, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::a_property_collector_of_its_own", collector)
        .api_server("vsphere::a_shared_session_is_cloned", shared_session)
        .api_server("vsphere::a_shared_session_that_rest_refuses", shared_without_tags)
}

/// Whether the last wait for changes used the property collector that every session has.
fn asks_the_sessions_collector(vcsim: &Vcsim) -> anyhow::Result<bool> {
    let requests = vcsim.last_requests()?;
    let wait = requests.get("soap:WaitForUpdatesEx").context("nobody waits")?;
    Ok(wait.contains(">propertyCollector</_this>"))
}

/// Gives a machine an address, and waits until its Node shows it.
async fn gets_address(api: &Api, vcsim: &Vcsim, number: usize, address: &str) -> anyhow::Result<()> {
    let nics = json!({"nics": [{"network": "VM Network", "ips": [format!("{address}/16")]}]});
    let wanted = format!("InternalIP {address}");
    let change = || vcsim.set_guest(&machine(number), nics);
    followed(api, &name(number), "an address", change, |node| addresses(node).contains(&wanted)).await?;
    Ok(())
}

/// The provider waits for changes with a property collector of its own, or with the session's if vCenter does
/// not create one.
async fn collector(api: &Api) -> anyhow::Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).map_err(|error| anyhow::anyhow!("{error}"))?;
    let provider = provider(&config(&[&vcsim])?)?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    node_becomes(&api.client, &name(0), LIMIT, "initialized", is_initialized).await?;
    ensure!(!asks_the_sessions_collector(&vcsim)?, "{:?}", vcsim.last_requests()?);

    vcsim.set_rules(&json!([{"methods": ["soap:CreatePropertyCollector"], "fault": "NoPermission"}]))?;
    vcsim.expire_sessions()?;
    kubelet::register(&api.client, &kubelet::node(&name(1), &uuid(1))).await?;
    node_becomes(&api.client, &name(1), LIMIT, "initialized", is_initialized).await?;
    gets_address(api, &vcsim, 1, "10.20.8.1").await?;
    eventually(LIMIT, "the session's own property collector", || async {
        Ok(asks_the_sessions_collector(&vcsim)?.then_some(()))
    })
    .await?;
    let counts = vcsim.counts()?;
    ensure!(counts["hit:soap:CreatePropertyCollector"] == 1, "asked for once: {counts:?}");
    daemon.stop().await?;
    provider.ended().await;
    ensure!(vcsim.sessions()?.0 == 0, "logged out");
    Ok(())
}

/// A configuration without credentials, and the folder where the provider looks for them. [`give`] adds keys.
fn without_credentials(vcsim: &Vcsim) -> anyhow::Result<(String, TempDir)> {
    let folder = TempDir::new()?;
    let text = format!(
        "global:\n  secretsDirectory: {}\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    port: {}\n    caFile: {}\n",
        folder.path().display(),
        vcsim.port(),
        vcsim.ca_file().display()
    );
    Ok((text, folder))
}

fn give(folder: &TempDir, key: &str, value: &str) -> anyhow::Result<()> {
    Ok(std::fs::write(folder.path().join(format!("127.0.0.1.{key}")), format!("{value}\n"))?)
}

fn share(folder: &TempDir, vcsim: &Vcsim) -> anyhow::Result<()> {
    give(folder, "vc-session-manager-url", &vcsim.session_manager_url())?;
    give(folder, "vc-session-manager-token", Vcsim::SESSION_MANAGER_TOKEN)
}

/// The number of calls of each of these methods.
fn counted<const N: usize>(vcsim: &Vcsim, methods: [&str; N]) -> anyhow::Result<[u64; N]> {
    let counts = vcsim.counts()?;
    Ok(methods.map(|method| counts.get(method).copied().unwrap_or(0)))
}

/// The calls that a shared session causes: tickets, clones, logins, and REST sessions opened or ended.
const CALLS: [&str; 5] = [
    "rest:GET /session-manager",
    "soap:CloneSession",
    "soap:Login",
    "rest:POST /session",
    "rest:DELETE /session",
];

/// A session manager's ticket is used instead of a user and a password, for machines and for tags.
async fn shared_session(api: &Api) -> anyhow::Result<()> {
    let options = VcsimOptions { shares_sessions: true, ..VcsimOptions::default() };
    let vcsim = simulator(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (text, folder) = without_credentials(&vcsim)?;
    share(&folder, &vcsim)?;
    let provider = provider(&with_zones(&text))?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    let node = node_becomes(&api.client, &name(0), LIMIT, "initialized", is_initialized).await?;
    ensure!(label(&node, ZONE) == Some("z0") && label(&node, REGION) == Some("r0"));
    ensure!(counted(&vcsim, CALLS)? == [1, 1, 0, 0, 0], "{:?}", vcsim.counts()?);

    // The session expires, and the session manager fails for a while, in various ways.
    vcsim.reset_counts()?;
    vcsim.set_rules(&json!([
        {"methods": [CALLS[0]], "status": 401, "times": 1},
        {"methods": [CALLS[0]], "status": 503, "times": 1},
        {"methods": [CALLS[0]], "drop": true, "times": 1},
        {"methods": [CALLS[1]], "fault": "InvalidLogin", "times": 1},
    ]))?;
    // tags are read again in the next session
    for host in ["DC0_C0_H0", "DC0_C0_H1"] {
        vcsim.attach_tag("k8s-zone", "z1", "HostSystem", host)?;
    }
    vcsim.expire_sessions()?;
    gets_address(api, &vcsim, 0, "10.20.8.1").await?;
    eventually(LIMIT, "another session", || async { Ok((vcsim.sessions()?.0 == 1).then_some(())) }).await?;
    node_becomes(&api.client, &name(0), LIMIT, "the new zone", |node| label(node, ZONE) == Some("z1"))
        .await?;
    let counts = counted(&vcsim, CALLS)?;
    println!("after the session ended: {:?}", vcsim.counts()?);
    ensure!(counts == [5, 2, 0, 0, 0], "{:?}", vcsim.counts()?);

    daemon.stop().await?;
    provider.ended().await;
    ensure!(vcsim.sessions()?.0 == 0, "the clone is ended");
    ensure!(vcsim.is_shared_session_alive()?, "and not what it was cloned from");
    Ok(())
}

/// The session manager refuses tickets at first. Then it gives them for a vCenter whose REST does not accept
/// cloned sessions.
async fn shared_without_tags(api: &Api) -> anyhow::Result<()> {
    let vcsim = simulator(&VcsimOptions::default()).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (text, folder) = without_credentials(&vcsim)?;
    give(&folder, "vc-session-manager-url", &vcsim.session_manager_url())?;
    give(&folder, "vc-session-manager-token", "hunter2")?;
    let provider = provider(&with_zones(&text))?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    let says = |wanted: &'static str| {
        move |node: &Node| {
            condition(node, "CloudProviderInitialized").is_some_and(|(status, _, words)| {
                let is_silent = !words.contains("hunter2") && !words.contains(Vcsim::SESSION_MANAGER_TOKEN);
                status == "False" && words.contains(wanted) && is_silent
            })
        }
    };
    let denied = says("HTTP status 401: it does not take the token of the Secret");
    node_becomes(&api.client, &name(0), LIMIT, "says that the token is wrong", denied).await?;
    ensure!(counted(&vcsim, CALLS)?[1..] == [0; 4], "vCenter is not called: {:?}", vcsim.counts()?);

    share(&folder, &vcsim)?;
    let needs = says("zones and regions from tags need a user name and a password");
    node_becomes(&api.client, &name(0), LIMIT, "says what is missing", needs).await?;
    give(&folder, "username", vcsim.user())?;
    give(&folder, "password", vcsim.password())?;
    let node = node_becomes(&api.client, &name(0), LIMIT, "initialized", is_initialized).await?;
    ensure!(label(&node, ZONE) == Some("z0"));
    let counts = counted(&vcsim, CALLS)?;
    ensure!(counts[1..] == [1, 0, 1, 0], "{:?}", vcsim.counts()?);
    ensure!(counts[0] < 30, "a storm: {:?}", vcsim.counts()?);
    daemon.stop().await?;
    provider.ended().await;
    let (soap, _, rest) = vcsim.sessions()?;
    ensure!((soap, rest) == (0, 0), "{soap} and {rest} sessions are left");
    Ok(())
}

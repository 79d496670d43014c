//! The shipped roles hold what the daemon does, and nothing else: with any single permission less, something that it
//! does in its life is refused.

use std::time::Duration;

use anyhow::{Context, bail};
use ccm::{
    manifests::ManifestOptions,
    permissions::{self, Permission},
};
use cloudprovider::PowerState;
use k8s_openapi::api::core::v1::Event;
use kube::{Client, api::ListParams};
use libtest_mimic::Trial;
use sandbox::kubelet;

use crate::{
    api::{Api, RequestCounts, Target, counted_client},
    daemon::{InProcess, parse},
    fake_cloud::{FakeCloud, Machine},
    shipped_roles,
    support::*,
    trial::{Outcome, runtime, trial},
};

const SOON: Duration = Duration::from_secs(20);

/// A life takes three seconds or so.
const LIFETIME: Duration = Duration::from_secs(120);

/// Flags that make a life short.
const QUICK: [&str; 6] = [
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// What a daemon needs that serves nothing: the clients of the HTTPS port are not this test's.
fn needed() -> anyhow::Result<Vec<Permission>> {
    Ok(permissions::needed(&parse(&["--secure-port=0"])?))
}

pub(crate) fn trials() -> Vec<Trial> {
    // A command line that does not parse shows in every other test.
    let needed = needed().unwrap_or_default();
    let mut trials = vec![trial("apiserver::permissions::all_of_them_are_enough", || life_without(None))];
    trials.extend(needed.iter().enumerate().map(|(number, permission)| {
        let name = format!("apiserver::permissions::nothing_replaces_{}", name(permission));
        trial(&name, move || life_without(Some(number)))
    }));
    trials
}

/// As in `create_leases_in_kube-system`.
fn name(permission: &Permission) -> String {
    let mut name = format!("{}_{}", permission.verb, permission.resource);
    for part in [&permission.subresource].into_iter().chain(&permission.resource_names) {
        if !part.is_empty() {
            name.push('_');
            name.push_str(part);
        }
    }
    if let Some(namespace) = &permission.namespace {
        name.push_str("_in_");
        name.push_str(namespace);
    }
    name
}

/// Runs a life with all permissions, which must succeed and see no refusal; or with all but the one of this number, and
/// expects a refusal.
fn life_without(number: Option<usize>) -> Outcome {
    let mut permissions = needed()?;
    let missing = number.map(|number| permissions.remove(number));
    let mut options = ManifestOptions::new("libvirt");
    options.name = number.map_or("with-all".to_owned(), |number| format!("without-{number}"));
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        let control_plane = api.control_plane.as_ref().context("the control plane")?;
        let kubeconfig = shipped_roles::bind(control_plane, &options, &permissions).await?;
        let requests = RequestCounts::default();
        let client = counted_client(&kubeconfig, &requests).await?;
        let refused = || async { Ok(requests.refused().into_iter().next()) };
        let first_refusal = eventually(LIFETIME, "a refusal", refused);
        tokio::select! {
            outcome = life(&api.client, &client) => {
                outcome?;
                if let Some(missing) = missing {
                    bail!("nobody misses {missing:?}");
                }
            }
            first = first_refusal => {
                let first = first?;
                let Some(missing) = missing else { bail!("refused with all permissions: {first}") };
                // It is the missing one that is refused, and no other.
                let (path, _) = first.split_once('?').unwrap_or((&first, ""));
                anyhow::ensure!(path.contains(&*missing.resource), "{missing:?} is missing, refused: {first}");
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Everything that the daemon does at the API server: two of them elect a leader, one Node is initialised, repaired,
/// tainted and deleted, and an event repeats.
async fn life(admin: &Client, client: &Client) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let leader = InProcess::start_elected(client, cloud.provider(), &QUICK)?;
    eventually(SOON, "the first one leads", || async { Ok(leader.leads().then_some(())) }).await?;
    let standby = InProcess::start_elected(client, cloud.provider(), &QUICK)?;

    cloud.put(&uuid(1), Machine::running(1));
    kubelet::register(admin, &kubelet::node("n1", &uuid(1))).await?;
    node_becomes(admin, "n1", SOON, "initialized", is_initialized).await?;
    cloud.change(&uuid(1), |machine| machine.metadata.zone = Some("rack-z".into()));
    let moved = |node: &_| label(node, "topology.kubernetes.io/zone") == Some("rack-z");
    node_becomes(admin, "n1", SOON, "follows the cloud", moved).await?;
    set_ready_unknown(admin, "n1").await?;
    cloud.change(&uuid(1), |machine| machine.power_state = PowerState::Off);
    node_becomes(admin, "n1", SOON, "is tainted", |node| has_taint(node, SHUTDOWN)).await?;

    // A Ready Node is kept; whether its kubelet lives is asked of a lease, which there is none of.
    cloud.change(&uuid(1), |machine| machine.power_state = PowerState::Running);
    kubelet::heartbeat(admin, "n1", true).await?;
    node_becomes(admin, "n1", SOON, "is not tainted", |node| !has_taint(node, SHUTDOWN)).await?;
    let exists = |status: &'static str| {
        move |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some(status)
    };
    cloud.remove(&uuid(1));
    node_becomes(admin, "n1", SOON, "is held back", exists("False")).await?;
    cloud.put(&uuid(1), Machine::running(1));
    node_becomes(admin, "n1", SOON, "is well again", exists("True")).await?;
    // The same words twice are one event that counts.
    cloud.remove(&uuid(1));
    let events: kube::Api<Event> = kube::Api::namespaced(admin.clone(), "default");
    eventually(SOON, "an event that counts", || async {
        let found = events.list(&ListParams::default()).await?;
        Ok(found.items.into_iter().find(|event| event.count.is_some_and(|count| count > 1)).map(drop))
    })
    .await?;
    set_ready_unknown(admin, "n1").await?;
    node_vanishes(admin, "n1", SOON).await?;

    leader.stop().await?;
    eventually(SOON, "the standby leads", || async { Ok(standby.leads().then_some(())) }).await?;
    standby.stop().await?;
    Ok(())
}

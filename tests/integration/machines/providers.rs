//! The machines of several providers in one daemon.

pub(super) mod installed;
mod other;

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use ccm::{
    daemon::{Parts, ProviderParts},
    manifests::ManifestOptions,
    permissions,
    reload::ReloadMetrics,
};
use cloudprovider::{
    CloudProvider, ConfigProblem, Error, ErrorKind, FactoryInput, Registry,
    testing::{FakeCloud, Fault, Operation},
};
use controller_kit::clients::Clients;
use kube::Client;
use machine_controller::crds::Definitions;
use sandbox::kubelet;
use tempfile::TempDir;

use self::other::Other;
use super::{
    core::{self, INFRASTRUCTURE},
    world::*,
};
use crate::{
    api::Api,
    daemon::{InProcess, parse},
    fake_cloud::{Lookups, running},
    scenarios::Trials,
    shipped_roles,
    support::{eventually, is_initialized, node_becomes, uuid},
};

/// Flags of a daemon that serves the machines of both providers and nothing else.
const BOTH: [&str; 3] = [ONLY, "--cloud-provider=", "--machine-provider=fake,other"];

/// Short terms of leadership.
const TERMS: [&str; 3] = [
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=1s",
];

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::providers::each_serves_its_own", each_serves_its_own)
        .sandbox("machines::providers::another_one_has_the_nodes", nodes_of_another)
        .sandbox("machines::providers::each_follows_its_own_configuration", configured)
        .sandbox("machines::providers::another_daemon_takes_all_over", taken_over)
        .sandbox("machines::providers::no_kind_has_two_providers", one_kind)
        .trial("apiserver::machines::providers::the_binary_as_installed", installed::as_installed)
}

/// A world for each of the two providers, in one cluster.
struct Two<'a> {
    fake: World<'a>,
    other: World<'a>,
    /// It has the permissions for both, and no others.
    client: Client,
}

impl<'a> Two<'a> {
    async fn new(api: &'a Api) -> anyhow::Result<Self> {
        let fake = World::new(api).await?;
        let cloud = FakeCloud::named("other").with_machines();
        cloud.set_task_time(Duration::from_millis(100));
        cloud.set_address_time(Duration::from_millis(100));
        let other =
            World { cloud, kinds: "Other", cluster: "test", tape: fake.tape.clone(), ..World::bare(api) };
        let provider = as_other(&other.cloud);
        let machines = provider.machines().context("it has machines")?;
        core::install_all(api, &Definitions::new("other", &machines.kinds(), &machines.schemas())?).await?;
        core::clear_others(api, NAMESPACE).await?;
        let client = with_permissions(api, &[&*fake.cloud.provider(), &*provider]).await?;
        Ok(Self { fake, other, client })
    }

    /// Both providers, for a daemon without one for Nodes.
    fn parts(&self) -> anyhow::Result<Parts> {
        let providers = [self.fake.cloud.provider(), as_other(&self.other.cloud)];
        let clients = Clients::same(&self.fake.tape.client(&self.client));
        let machine_providers = providers.map(ProviderParts::from).to_vec();
        Ok(Parts { machine_providers, ..Parts::without_provider(clients)? })
    }

    /// A Cluster of each, with a machine.
    async fn are_up(&self, machines: [&str; 2]) -> anyhow::Result<()> {
        for (world, machine) in [(&self.fake, machines[0]), (&self.other, machines[1])] {
            world.add_cluster(world.cluster).await?;
            world.cluster_is_ready(world.cluster).await?;
            world.add_machine(machine).await?;
        }
        for (world, machine) in [(&self.fake, machines[0]), (&self.other, machines[1])] {
            world.is_up(machine).await?;
        }
        Ok(())
    }

    /// Deletes these machines and the Clusters, and waits until nothing is left.
    async fn vanish(&self, machines: [&str; 2]) -> anyhow::Result<()> {
        for (world, machine) in [(&self.fake, machines[0]), (&self.other, machines[1])] {
            world.delete(&world.kind("Machine"), machine).await?;
            world.delete(&world.kind("Cluster"), world.cluster).await?;
        }
        for (world, machine) in [(&self.fake, machines[0]), (&self.other, machines[1])] {
            world.vanishes(&world.kind("Machine"), machine).await?;
            world.vanishes(&world.kind("Cluster"), world.cluster).await?;
            ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
        }
        Ok(())
    }
}

fn as_other(cloud: &FakeCloud) -> Arc<dyn CloudProvider> {
    Arc::new(Other(cloud.provider()))
}

/// A client for the account of a daemon that serves the machines of these providers, and has no Nodes.
async fn with_permissions(api: &Api, providers: &[&dyn CloudProvider]) -> anyhow::Result<Client> {
    let Some(control_plane) = &api.control_plane else { return Ok(api.client.clone()) };
    let options = ManifestOptions { name: "two-providers".to_owned(), ..ManifestOptions::new("") };
    let flags = parse(&BOTH)?;
    let kinds = providers.iter().filter_map(|provider| Some(provider.machines()?.kinds()));
    let of_machines = kinds.flat_map(|kinds| permissions::needed_for_machines(&flags, &kinds));
    let needed: Vec<_> = permissions::needed(&flags).into_iter().chain(of_machines).collect();
    let kubeconfig = shipped_roles::bind(control_plane, &options, &needed).await?;
    crate::api::client(&kubeconfig).await
}

async fn each_serves_its_own(api: &Api) -> anyhow::Result<()> {
    let two = Two::new(api).await?;
    // A provider whose cloud is away holds nobody else.
    let away = Fault::Error(Error::new(ErrorKind::Unavailable, "the cloud is away"));
    two.other.cloud.fail(Operation::EnsureCluster, away);
    let parts = two.parts()?;
    let (health, debug_state) = (parts.health.clone(), parts.debug_state.clone());
    let daemon = InProcess::start_parts(parts, &BOTH)?;
    let (fake, other) = (&two.fake, &two.other);
    fake.add_cluster(fake.cluster).await?;
    other.add_cluster(other.cluster).await?;
    fake.cluster_is_ready(fake.cluster).await?;
    fake.add_machine("one").await?;
    fake.is_up("one").await?;
    ensure!(!is_ready(&other.get("OtherCluster", other.cluster).await?));
    other.cloud.fail(Operation::EnsureCluster, None);
    other.cluster_is_ready(other.cluster).await?;
    other.add_machine("two").await?;
    let up = other.is_up("two").await?;
    let id = up["spec"]["providerID"].as_str().unwrap_or_default();
    ensure!(id.starts_with("other:///"), "{up}");

    let checks: Vec<String> = health.all().into_iter().map(|(name, ..)| name).collect();
    let state = debug_state.ask().await;
    for name in ["fake", "other"] {
        for check in [format!("machine-controller-{name}"), format!("machine-kinds-{name}")] {
            ensure!(checks.contains(&check), "{check} in {checks:?}");
        }
        ensure!(state[format!("machine-controller-{name}")].is_object(), "{state}");
        ensure!(state[format!("provider-{name}")]["name"] == name, "{state}");
    }
    ensure!(!checks.iter().any(|check| check == "machine-kinds"), "{checks:?}");
    let text = daemon.metrics.text();
    for line in [
        "cloud_controller_manager_machine_objects{kind=\"machine\",phase=\"ready\",provider=\"fake\"} 1",
        "cloud_controller_manager_machine_objects{kind=\"machine\",phase=\"ready\",provider=\"other\"} 1",
        "workqueue_depth{name=\"machine-fake\"} 0",
        "workqueue_depth{name=\"machine-other\"} 0",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"machine-other\"} 1",
    ] {
        ensure!(text.contains(line), "{line} in {text}");
    }
    two.vanish(["one", "two"]).await?;
    daemon.stop().await
}

async fn nodes_of_another(api: &Api) -> anyhow::Result<()> {
    let two = Two::new(api).await?;
    let (nodes, other) = (FakeCloud::named("nodes"), &two.other);
    nodes.put(&uuid(1), running(1));
    let parts = Parts {
        machine_providers: vec![as_other(&other.cloud).into()],
        ..Parts::new(api.client.clone(), nodes.provider())?
    };
    let health = parts.health.clone();
    let flags = ["--cloud-provider=nodes", "--machine-provider=other", "--controllers=*,machine-controller"];
    let daemon = InProcess::start_parts(parts, &flags)?;
    let name = "of-another";
    kubelet::register(&api.client, &kubelet::node(name, &uuid(1))).await?;
    node_becomes(&api.client, name, SOON, "initialized", is_initialized).await?;
    other.add_cluster(other.cluster).await?;
    other.cluster_is_ready(other.cluster).await?;
    other.add_machine("two").await?;
    other.is_up("two").await?;
    ensure!(other.cloud.count(Operation::Lookup) == 0, "{:?}", other.cloud.calls());
    // One provider has machines, so the names are the usual ones.
    ensure!(health.all().iter().any(|(name, ..)| name == "machine-kinds"));
    daemon.stop().await
}

/// A configuration of one word: `good`, `bad`, or `away` for a cloud that does not answer.
fn factory(
    make: impl Fn() -> Arc<dyn CloudProvider>,
    away: impl Fn() -> Arc<dyn CloudProvider>,
    input: &FactoryInput,
) -> cloudprovider::Result<Arc<dyn CloudProvider>> {
    match input.config.as_deref().unwrap_or_default().trim() {
        "good" | "better" => Ok(make()),
        "away" => Ok(away()),
        word => Err(Error::invalid_configuration(vec![ConfigProblem::new(word, "is not known")])),
    }
}

async fn configured(api: &Api) -> anyhow::Result<()> {
    let two = Two::new(api).await?;
    let away = FakeCloud::named("other").with_machines();
    away.fail_lookups(Fault::Error(Error::new(ErrorKind::Unauthenticated, "wrong password")));
    let (fake, other) = (two.fake.cloud.clone(), two.other.cloud.clone());
    let mut registry = Registry::new();
    registry.register("fake", move |input| factory(|| fake.provider(), || fake.provider(), input))?;
    registry.register("other", move |input| factory(|| as_other(&other), || as_other(&away), input))?;
    let folder = TempDir::new()?;
    let path = |name: &str| folder.path().join(name);
    for name in ["fake", "other"] {
        fs::write(path(name), "good")?;
    }
    let named = ["fake", "other"].map(|name| format!("--machine-provider={name}={}", path(name).display()));
    let flags = [ONLY, "--cloud-provider=", &named[0], &named[1]];
    let client = two.fake.tape.client(&two.client);
    let daemon = InProcess::start_configured(&client, &registry, &flags, false)?;
    two.are_up(["one", "two"]).await?;

    let reloads = daemon.counted::<ReloadMetrics>();
    let count = |label: &str, result: &str| reloads.config_reloads.with_label_values(&[label, result]).get();
    let becomes = async |result: &'static str, times: u64| {
        eventually(Duration::from_secs(150), &format!("{result} {times}"), || async {
            Ok((count("cloud-config-other", result) == times).then_some(()))
        })
        .await
    };
    // One that is wrong, one that cannot log in, and one that can.
    fs::write(path("other"), "bad")?;
    becomes("failure", 1).await?;
    fs::write(path("other"), "away")?;
    becomes("failure", 2).await?;
    two.other.add_machine("three").await?;
    two.other.is_up("three").await?;
    fs::write(path("other"), "better")?;
    becomes("success", 1).await?;
    two.other.add_machine("four").await?;
    two.other.is_up("four").await?;
    for result in ["success", "failure"] {
        ensure!(count("cloud-config-fake", result) == 0 && count("cloud-config", result) == 0);
    }
    for machine in ["three", "four"] {
        two.other.delete("OtherMachine", machine).await?;
    }
    two.vanish(["one", "two"]).await?;
    daemon.stop().await
}

async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let two = Two::new(api).await?;
    let flags = [&BOTH[..], &TERMS].concat();
    let leads = async |daemon: &InProcess| {
        eventually(SOON, "it leads", || async { Ok(daemon.leads().then_some(())) }).await
    };
    let first = InProcess::run_parts(two.parts()?, &flags, true)?;
    leads(&first).await?;
    let second = InProcess::run_parts(two.parts()?, &flags, true)?;
    two.are_up(["one", "two"]).await?;
    // In the middle of the work on both.
    for (world, machine) in [(&two.fake, "three"), (&two.other, "four")] {
        world.add_machine(machine).await?;
    }
    first.crash().await;
    leads(&second).await?;
    for (world, machine) in [(&two.fake, "three"), (&two.other, "four")] {
        world.is_up(machine).await?;
        ensure!(world.cloud.objects().iter().filter(|line| line.starts_with("instance/")).count() == 2);
        world.delete(&world.kind("Machine"), machine).await?;
    }
    two.vanish(["one", "two"]).await?;
    second.stop().await
}

async fn one_kind(api: &Api) -> anyhow::Result<()> {
    let providers = ["fake", "other"].map(|name| FakeCloud::named(name).with_machines().provider());
    let parts = Parts {
        machine_providers: providers.map(ProviderParts::from).to_vec(),
        ..Parts::without_provider(Clients::same(&api.client))?
    };
    let error = InProcess::start_parts(parts, &BOTH)?.ended().await.expect_err("it cannot start");
    let words = format!("cloud providers fake and other both have the kind FakeMachine in {INFRASTRUCTURE}");
    ensure!(error.to_string() == words, "{error:#}");
    Ok(())
}

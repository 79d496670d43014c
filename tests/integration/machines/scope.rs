//! Which objects the controller works on, and what it does where kinds are missing.

use anyhow::{Context, ensure};
use ccm::daemon::Parts;
use cloudprovider::{
    Error, ErrorKind,
    machines::Mark,
    testing::{FAKE_REGION, Fault, Operation},
};
use controller_kit::cloud::machine_kinds_of;
use kube::api::PostParams;
use machine_controller::{explain::explain, misconfigured, status_only::states::all_states};
use serde_json::{Value, json};

use super::{core, world::*};
use crate::{api::Api, daemon::InProcess, scenarios::Trials, support::eventually};

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::only_what_passes_the_filters", filters)
        .sandbox("machines::a_cluster_that_others_manage_is_left_alone", managed_elsewhere)
        .both("machines::templates_say_what_a_machine_will_have", templates)
        .sandbox("machines::a_dry_run_changes_nothing", dry_run)
        .both("machines::explain_says_what_a_machine_waits_for", explained)
        .sandbox("machines::what_the_configuration_does_not_reach_is_named", out_of_reach)
        .sandbox("machines::an_infrastructure_cluster_goes_after_its_machines", machines_first)
        .sandbox("machines::missing_kinds_are_named_and_waited_for", missing_kinds)
}

async fn filters(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&["--namespace=another"])?;
    world.add_cluster("prod").await?;
    world.pause().await;
    ensure!(world.get("FakeCluster", "prod").await?["status"].is_null());
    daemon.stop().await?;

    let daemon = world.start(&["--watch-filter=blue", "--namespace=default"])?;
    let label = |value: &str| json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": value}}});
    world.change("FakeCluster", "prod", label("blue")).await?;
    world.cluster_is_ready("prod").await?;
    world.add_machine("one").await?;
    world.change("FakeMachine", "one", label("green")).await?;
    world.pause().await;
    world.cloud_has(&[])?;
    let left_alone = world.get("FakeMachine", "one").await?;
    ensure!(left_alone["metadata"]["finalizers"].is_null() && left_alone["status"].is_null(), "{left_alone}");
    world.change("FakeMachine", "one", label("blue")).await?;
    world.is_up("one").await?;
    daemon.stop().await
}

async fn managed_elsewhere(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    world.add_cluster("prod").await?;
    let managed = json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "somebody"}}});
    world.change("FakeCluster", "prod", managed).await?;
    let daemon = world.start(&[])?;
    world.pause().await;
    let cluster = world.get("FakeCluster", "prod").await?;
    ensure!(cluster["status"].is_null() && cluster["metadata"]["finalizers"].is_null(), "{cluster}");
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    // Its machines are ours. The Cluster says that the rest is there.
    world
        .change_status("Cluster", "prod", json!({"initialization": {"infrastructureProvisioned": true}}))
        .await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    daemon.stop().await
}

async fn templates(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    let template = |cpus: u32| json!({"spec": {"template": {"spec": {"cpus": cpus, "memoryMiB": 1024}}}});
    let capacity = |object: &Value| object["status"]["capacity"].clone();
    world.create("FakeMachineTemplate", "workers", template(4)).await?;
    let told =
        world.becomes("FakeMachineTemplate", "workers", "has a capacity", |one| !capacity(one).is_null());
    let told = told.await?;
    ensure!(capacity(&told) == json!({"cpu": "4", "memory": "1024Mi"}), "{told}");
    let info = &told["status"]["nodeInfo"];
    ensure!(*info == json!({"architecture": "amd64", "operatingSystem": "linux"}), "{told}");
    world.tape.clear();
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    // A daemon that starts again writes nothing either.
    daemon.stop().await?;
    let daemon = world.start(&[])?;
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    daemon.stop().await
}

async fn dry_run(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("kept").await?;
    world.is_up("kept").await?;
    daemon.stop().await?;
    world.add_machine("new").await?;
    world.delete("FakeMachine", "kept").await?;
    world.tape.clear();
    world.cloud.forget_calls();
    let daemon = world.start(&["--dry-run"])?;
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    let steps = [
        Operation::EnsureMachine,
        Operation::DeleteMachine,
        Operation::EnsureCluster,
        Operation::DeleteCluster,
    ];
    ensure!(steps.iter().all(|step| world.cloud.count(*step) == 0), "{:?}", world.cloud.calls());
    daemon.stop().await
}

async fn explained(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let provider = world.cloud.provider();
    let kinds = machine_kinds_of(&*provider).context("machines")?;
    let next = async |name: &str| {
        let plan = explain(&api.client, &kinds, None, (NAMESPACE, name)).await.map_err(anyhow::Error::msg)?;
        anyhow::Ok(plan.map(|plan| plan.next))
    };
    ensure!(next("one").await?.is_none());
    world.add_cluster("prod").await?;
    world.add_machine_without_data("one").await?;
    let waits = async |words: &str| {
        let next = next("one").await?.unwrap_or_default();
        ensure!(next.contains(words), "{next:?} has no {words:?}");
        anyhow::Ok(())
    };
    waits("say in its status what it waits for: WaitingForClusterInfrastructureReady").await?;
    world
        .change_status("Cluster", "prod", json!({"initialization": {"infrastructureProvisioned": true}}))
        .await?;
    waits("WaitingForBootstrapData: spec.bootstrap.dataSecretName of the Machine is not set yet").await?;
    world.name_secret("one").await?;
    waits("\"one-data\" with the bootstrap data is not there").await?;
    world.add_secret("one").await?;
    waits("write finalizer and mark").await?;
    // Nothing of it was done.
    ensure!(world.get("FakeMachine", "one").await?["status"].is_null());
    let daemon = world.start(&[])?;
    world.is_up("one").await?;
    waits("look at it in the cloud").await?;

    // Its failure domain, and one that its cluster names.
    let uses = async || {
        let plan =
            explain(&api.client, &kinds, None, (NAMESPACE, "one")).await.map_err(anyhow::Error::msg)?;
        anyhow::Ok(plan.map(|plan| plan.uses).unwrap_or_default())
    };
    ensure!(uses().await?.is_empty());
    world.change("Machine", "one", json!({"spec": {"failureDomain": "west"}})).await?;
    ensure!(uses().await? == ["FakeRegion west: not ready: there is no such object"], "{:?}", uses().await?);
    let region = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "FakeRegion",
        "metadata": {"name": "west"}, "spec": {"flavors": ["large"]},
    });
    let regions = core::auxiliary_objects(&api.client, &FAKE_REGION);
    regions.create(&PostParams::default(), &serde_json::from_value(region)?).await?;
    let words = "FakeRegion west: not ready: FlavorMissing: there is no FakeFlavor large";
    let told = || async { Ok((uses().await? == [words]).then_some(())) };
    eventually(SOON, "it is told", told).await?;
    let all = all_states(&api.client, &kinds, None).await.map_err(anyhow::Error::msg)?;
    ensure!(all.iter().map(ToString::to_string).collect::<Vec<_>>() == [words], "{all:?}");
    daemon.stop().await
}

/// A machine on a server that has left the configuration keeps its finalizer. Condition, event, `check` and `explain` say so.
async fn out_of_reach(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let provider = world.cloud.provider();
    let kinds = machine_kinds_of(&*provider).context("machines")?;
    let found =
        async || misconfigured(&api.client, &kinds, Some(NAMESPACE)).await.map_err(anyhow::Error::msg);
    let made = world.add_machine("one").await?;
    let uid = made["metadata"]["uid"].as_str().context("a UID")?;
    world.is_up("one").await?;
    ensure!(found().await?.is_empty());
    let error = Mark::machine(uid, NAMESPACE, "prod", "one").out_of_reach("the machine", "server \"old\"");
    let words = format!("not deleted yet: {}", error.report());
    for _ in 0..100 {
        world.cloud.fail_next(Operation::DeleteMachine, Fault::Error(error.clone()));
    }
    world.delete("FakeMachine", "one").await?;
    let told = world.waits_for("one", "ProviderMisconfigured").await?;
    ensure!(condition(&told, "Ready")["message"] == words, "{told}");
    let keeps = format!(
        "FakeMachine default/one (it is being deleted, and the finalizer {FINALIZER} keeps it): {words}"
    );
    ensure!(found().await? == [keeps.clone()], "{:?}", found().await?);
    let plan = explain(&api.client, &kinds, None, (NAMESPACE, "one")).await.map_err(anyhow::Error::msg)?;
    let plan = plan.context("a plan")?;
    ensure!(plan.finalizer && plan.conditions.iter().any(|one| one.ends_with(&words)), "{plan:?}");
    let events = || async { Ok(world.events("one").await?.into_iter().find(|(_, said)| *said == words)) };
    eventually(SOON, "an event says it", events).await?;
    // The command of the documentation.
    let patch = json!({"metadata": {"finalizers": null}});
    world.change("FakeMachine", "one", patch).await?;
    world.vanishes("FakeMachine", "one").await?;
    ensure!(found().await?.is_empty());
    daemon.stop().await
}

async fn machines_first(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    world.delete("FakeCluster", "prod").await?;
    let waits = |object: &Value| condition(object, "Ready")["reason"] == "WaitingForMachinesDeletion";
    world.becomes("FakeCluster", "prod", "waits for its machines", waits).await?;
    world.pause().await;
    ensure!(world.cloud.objects().len() == 3, "{:?}", world.cloud.objects());
    // An error of the cloud is no reason to let it go.
    let away = Fault::Error(Error::new(ErrorKind::NotFound, "no such pool"));
    world.cloud.fail_next(Operation::DeleteCluster, away);
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    let failed = |object: &Value| condition(object, "Ready")["reason"] == "DependencyNotFound";
    world.becomes("FakeCluster", "prod", "is told of the error", failed).await?;
    ensure!(world.cloud.objects().len() == 1, "{:?}", world.cloud.objects());
    daemon.stop().await
}

async fn missing_kinds(api: &Api) -> anyhow::Result<()> {
    let world = World::bare(api);
    let parts = Parts::new(world.tape.client(&api.client), world.cloud.provider())?;
    let health = parts.health.clone();
    let daemon = InProcess::start_parts(parts, &[ONLY])?;
    let missing = || {
        let checks = health.all();
        let check = checks.iter().find(|(name, ..)| name == "machine-kinds").map(|(.., check)| check());
        check.context("there is no such check")
    };
    let says = |words: &'static str| {
        eventually(SOON, words, move || async move {
            Ok(missing().is_ok_and(|answer| answer.is_err_and(|why| why.contains(words))).then_some(()))
        })
    };
    says("clusterctl init").await?;
    says("fakemachines.infrastructure.cluster.x-k8s.io").await?;
    core::install_core(api, &["v1beta2"]).await?;
    says("does not serve fakemachines.infrastructure.cluster.x-k8s.io").await?;
    core::install_own(api).await?;
    world.add_cluster("prod").await?;
    world.cluster_is_ready("prod").await?;
    ensure!(missing()?.is_ok(), "{:?}", missing()?);
    world.add_machine("one").await?;
    world.is_up("one").await?;
    daemon.stop().await
}

//! Machines of unhealthy Machines are rebooted before they are replaced. The scenario does what a `MachineHealthCheck` would do.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use cloudprovider::{
    Error, ErrorKind,
    testing::{Fault, Operation},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::world::*;
use crate::{
    api::Api,
    scenarios::Trials,
    stage::{Kill, at_every_change, at_every_step},
};

/// `spec.timeoutSeconds`, where a scenario has no other.
const TIMEOUT: u64 = 60;

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::an_unhealthy_machine_is_rebooted", heals)
        .sandbox("machines::a_machine_that_reboots_do_not_heal_is_handed_over", does_not_heal)
        .sandbox("machines::a_reboot_that_was_not_made_is_made_later", cloud_away)
        .sandbox("machines::a_reboot_whose_outcome_is_not_known_is_not_made_again", not_known)
        .sandbox(
            "machines::a_reboot_that_was_made_is_said_though_its_object_changed_meanwhile",
            changes_meanwhile,
        )
        .sandbox("machines::where_a_reboot_does_not_help_the_owner_is_asked_at_once", hands_over)
        .sandbox("machines::nobody_reboots_the_machine_of_another", others)
        .sandbox("machines::nothing_is_rebooted_during_a_pause", pauses)
        .sandbox("machines::killed_while_a_machine_is_rebooted", killed)
}

/// What a health check does about an unhealthy Machine.
impl World<'_> {
    /// Says that a health check has found the Machine unhealthy, or healthy, and that it sees the workload cluster.
    async fn is_judged(&self, name: &str, reason: Option<&str>) -> anyhow::Result<()> {
        self.is_reached(true).await?;
        let check = json!({
            "type": "HealthCheckSucceeded", "status": if reason.is_some() { "False" } else { "True" },
            "reason": reason.unwrap_or("HealthCheckSucceeded"), "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.change_status("Machine", name, json!({"conditions": [check]})).await
    }

    /// Says whether the core reaches the workload cluster.
    async fn is_reached(&self, is_reached: bool) -> anyhow::Result<()> {
        let probe = json!({
            "type": "RemoteConnectionProbe", "status": if is_reached { "True" } else { "False" },
            "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.change_status("Cluster", "prod", json!({"conditions": [probe]})).await
    }

    async fn remediate(&self, name: &str, limit: u32) -> anyhow::Result<Value> {
        let mut owner = self.owner("Machine", name).await?;
        owner["controller"] = Value::Null;
        self.remediate_with(name, limit, owner).await
    }

    async fn remediate_with(&self, name: &str, limit: u32, owner: Value) -> anyhow::Result<Value> {
        let spec = json!({"retryLimit": limit, "timeoutSeconds": TIMEOUT});
        let metadata = json!({"ownerReferences": [owner]});
        self.create("RebootRemediation", name, json!({"metadata": metadata, "spec": spec})).await
    }

    async fn remediation_becomes(
        &self,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        self.becomes("RebootRemediation", name, what, check).await
    }

    /// How often the machine was reset.
    async fn resets(&self, name: &str) -> anyhow::Result<usize> {
        let machine = self.get("FakeMachine", name).await?;
        let uid = machine["metadata"]["annotations"][IDENTITY].as_str().context("an identity")?;
        Ok(self.cloud.resets_of(uid))
    }

    async fn asks_owner(&self, name: &str) -> anyhow::Result<Value> {
        Ok(condition(&self.get("Machine", name).await?, "OwnerRemediated"))
    }

    async fn reasons(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let of_reboots = ["MachineRebooted", "MachineRebootFailed", "RemediationHandedOver"];
        let events = self.events(name).await?.into_iter().map(|(reason, _)| reason);
        Ok(events.filter(|reason| of_reboots.contains(&reason.as_str())).collect())
    }
}

fn phase(object: &Value, phase: &str) -> bool {
    object["status"]["phase"] == phase
}

/// A machine that is up, and unhealthy.
async fn unhealthy<'a>(api: &'a Api, reason: &str) -> anyhow::Result<(World<'a>, Daemon)> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    world.is_judged("one", Some(reason)).await?;
    Ok((world, daemon))
}

async fn heals(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    // A health check makes the object first, and marks the Machine then.
    world.remediate("one", 2).await?;
    world.pause().await;
    ensure!(world.resets("one").await? == 0, "it is not unhealthy yet");
    world.is_judged("one", Some("UnhealthyNode")).await?;
    let rebooted = world.remediation_becomes("one", "waits", |one| phase(one, "Waiting")).await?;
    ensure!(rebooted["status"]["retryCount"] == 1, "{rebooted}");
    ensure!(condition(&rebooted, "Rebooted")["status"] == "True", "{rebooted}");
    ensure!(world.resets("one").await? == 1);
    ensure!(world.is_up("one").await?["status"]["ready"] == true, "it stays what it is");
    // The Node is healthy again.
    world.is_judged("one", None).await?;
    world.delete("RebootRemediation", "one").await?;
    world.vanishes("RebootRemediation", "one").await?;
    world.pause().await;
    ensure!(world.resets("one").await? == 1 && world.asks_owner("one").await?.is_null());
    ensure!(world.reasons("one").await? == ["MachineRebooted"], "{:?}", world.events("one").await?);
    daemon.stop().await
}

async fn does_not_heal(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    world.remediate("one", 2).await?;
    world.remediation_becomes("one", "waits", |one| phase(one, "Waiting")).await?;
    // A daemon that begins anew goes on where the other one was.
    daemon.stop().await?;
    let daemon = world.start(&[])?;
    sleep(Duration::from_secs(TIMEOUT)).await;
    let second = |one: &Value| one["status"]["retryCount"] == 2 && phase(one, "Waiting");
    world.remediation_becomes("one", "is rebooted once more", second).await?;
    // While the Node cannot be seen, the Machine is not replaced.
    world.is_reached(false).await?;
    sleep(Duration::from_secs(3 * TIMEOUT)).await;
    world.pause().await;
    ensure!(
        second(&world.get("RebootRemediation", "one").await?) && world.asks_owner("one").await?.is_null()
    );
    world.is_reached(true).await?;
    let over = world.remediation_becomes("one", "is handed over", |one| phase(one, "HandedOver")).await?;
    ensure!(world.resets("one").await? == 2 && over["status"]["retryCount"] == 2, "{over}");
    ensure!(condition(&over, "HandedOver")["reason"] == "RetryLimitReached", "{over}");
    let asked = world.asks_owner("one").await?;
    ensure!(asked["status"] == "False" && asked["reason"] == "WaitingForRemediation", "{asked}");
    let check = condition(&world.get("Machine", "one").await?, "HealthCheckSucceeded");
    ensure!(check["reason"] == "UnhealthyNode", "other conditions stay: {check}");
    world.pause().await;
    ensure!(world.resets("one").await? == 2);
    let expected = ["MachineRebooted", "MachineRebooted", "RemediationHandedOver"];
    let mut found = world.reasons("one").await?;
    found.sort();
    // The same event twice is one with a count.
    found.dedup();
    ensure!(found == expected[1..], "{found:?}");
    daemon.stop().await
}

/// The provider says that nothing was reset: the same reboot is made later, and counts once.
async fn cloud_away(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    for _ in 0..3 {
        world
            .cloud
            .fail_next(Operation::ResetMachine, Error::new(ErrorKind::Unavailable, "the cloud is away"));
    }
    world.remediate("one", 1).await?;
    let rebooted = world.remediation_becomes("one", "waits", |one| phase(one, "Waiting")).await?;
    ensure!(rebooted["status"]["retryCount"] == 1 && world.resets("one").await? == 1, "{rebooted}");
    ensure!(world.cloud.count(Operation::ResetMachine) == 4);
    ensure!(world.reasons("one").await? == ["MachineRebootFailed", "MachineRebooted"]);
    daemon.stop().await?;

    // However long it stays away, the Machine is not replaced for a reboot that was not made. Another process goes on with it.
    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    let away = Fault::Error(Error::new(ErrorKind::Unavailable, "the cloud is away"));
    world.cloud.fail(Operation::ResetMachine, away);
    world.remediate("one", 1).await?;
    let failed = |one: &Value| condition(one, "Rebooted")["reason"] == "ProviderUnavailable";
    world.remediation_becomes("one", "failed", failed).await?;
    sleep(Duration::from_secs(10 * TIMEOUT)).await;
    daemon.stop().await?;
    let daemon = world.start(&[])?;
    sleep(Duration::from_secs(10 * TIMEOUT)).await;
    world.pause().await;
    let waits = world.get("RebootRemediation", "one").await?;
    ensure!(phase(&waits, "Running") && waits["status"]["retryCount"] == 1, "{waits}");
    ensure!(world.resets("one").await? == 0 && world.asks_owner("one").await?.is_null());
    world.cloud.fail(Operation::ResetMachine, None);
    sleep(Duration::from_secs(10 * TIMEOUT)).await;
    world.remediation_becomes("one", "is handed over", |one| phase(one, "HandedOver")).await?;
    ensure!(world.resets("one").await? == 1, "it was made before");
    daemon.stop().await
}

async fn not_known(api: &Api) -> anyhow::Result<()> {
    for fault in [
        Fault::Error(Error::new(ErrorKind::Timeout, "no answer")),
        Fault::Error(Error::new(ErrorKind::Internal, "a fault of the provider")),
        Fault::Panic,
    ] {
        let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
        world.cloud.fail_next(Operation::ResetMachine, fault.clone());
        world.remediate("one", 2).await?;
        let unknown =
            |one: &Value| condition(one, "Rebooted")["status"] == "Unknown" && phase(one, "Waiting");
        world.remediation_becomes("one", "may have been rebooted", unknown).await?;
        sleep(Duration::from_secs(TIMEOUT / 2)).await;
        ensure!(world.cloud.count(Operation::ResetMachine) == 1, "{fault:?}: it is not repeated");
        sleep(Duration::from_secs(TIMEOUT)).await;
        let second = |one: &Value| one["status"]["retryCount"] == 2 && phase(one, "Waiting");
        world.remediation_becomes("one", "is rebooted once more", second).await?;
        ensure!(world.resets("one").await? == 1, "{fault:?}");
        daemon.stop().await?;
    }
    Ok(())
}

/// The first write of the outcome is refused, and the process still knows it.
async fn changes_meanwhile(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    world.cloud.set_latency(Duration::from_secs(10));
    world.remediate("one", 2).await?;
    let begun = |one: &Value| condition(one, "Rebooted")["reason"] == "Rebooting";
    world.remediation_becomes("one", "is being rebooted", begun).await?;
    let change = json!({"metadata": {"annotations": {"example.org/a": "b"}}});
    world.change("RebootRemediation", "one", change).await?;
    let rebooted = world.remediation_becomes("one", "waits", |one| phase(one, "Waiting")).await?;
    ensure!(condition(&rebooted, "Rebooted")["status"] == "True", "{rebooted}");
    ensure!(world.resets("one").await? == 1, "it is made once");
    world.cloud.set_latency(Duration::ZERO);
    daemon.stop().await
}

async fn hands_over(api: &Api) -> anyhow::Result<()> {
    let over = |reason: &'static str| {
        move |one: &Value| phase(one, "HandedOver") && condition(one, "HandedOver")["reason"] == reason
    };
    let (world, daemon) = unhealthy(api, "NodeDeleted").await?;
    world.remediate("one", 3).await?;
    world.remediation_becomes("one", "is handed over", over("NodeDeleted")).await?;
    ensure!(!world.asks_owner("one").await?.is_null());
    daemon.stop().await?;

    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    let machine = world.get("FakeMachine", "one").await?;
    world.cloud.remove(machine["metadata"]["annotations"][IDENTITY].as_str().context("an identity")?);
    world.remediate("one", 3).await?;
    world.remediation_becomes("one", "is handed over", over("MachineNotFound")).await?;
    daemon.stop().await?;

    let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
    world.cloud.fail(Operation::ResetMachine, Fault::Error(Error::unsupported("no resets here")));
    world.remediate("one", 3).await?;
    world.remediation_becomes("one", "is handed over", over("ResetNotSupported")).await?;
    daemon.stop().await?;

    // Its infrastructure never came.
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine_without_data("one").await?;
    world.is_judged("one", Some("NodeStartupTimeout")).await?;
    world.remediate("one", 3).await?;
    world.remediation_becomes("one", "is handed over", over("NotProvisioned")).await?;

    // Another health check has asked the owner.
    world.add_machine("two").await?;
    world.is_up("two").await?;
    let both = json!({"conditions": [
        {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode"},
        {"type": "OwnerRemediated", "status": "False", "reason": "RemediationDeferred"},
    ]});
    world.change_status("Machine", "two", both).await?;
    world.remediate("two", 3).await?;
    world.remediation_becomes("two", "is handed over", over("OwnerAsked")).await?;
    ensure!(
        world.asks_owner("two").await?["reason"] == "RemediationDeferred",
        "the condition is the owner's"
    );
    ensure!(world.resets("two").await? == 0);
    daemon.stop().await
}

/// A user of a namespace writes remediations about machines that no health check has found unhealthy, or that are another's.
async fn others(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    for name in ["healthy", "other", "copied", "probe"] {
        world.add_machine(name).await?;
        world.is_up(name).await?;
    }
    world.is_judged("healthy", None).await?;
    world.remediate("healthy", 9).await?;
    // The owner is a Machine of the same name that is gone, or one of another name.
    let mut gone = world.owner("Machine", "other").await?;
    gone["uid"] = "6f1ad7d3-0000-4000-8000-000000000001".into();
    world.is_judged("other", Some("UnhealthyNode")).await?;
    world.remediate_with("other", 9, gone).await?;
    world.remediate_with("stranger", 9, world.owner("Machine", "other").await?).await?;
    // An unhealthy Machine names infrastructure that another Machine owns.
    let spec = json!({
        "clusterName": "prod",
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachine", "name": "other"},
    });
    let metadata = json!({"labels": {"cluster.x-k8s.io/cluster-name": "prod"}});
    world.create("Machine", "thief", json!({"metadata": metadata, "spec": spec})).await?;
    world.is_judged("thief", Some("UnhealthyNode")).await?;
    world.remediate("thief", 9).await?;
    // A copy of an object has the identity of the original.
    let original = world.get("FakeMachine", "copied").await?;
    let identity = original["metadata"]["annotations"][IDENTITY].as_str().context("an identity")?.to_owned();
    let id = original["spec"]["providerID"].clone();
    let copied =
        json!({"annotations": {IDENTITY: identity.clone(), CLUSTER_NAME: "prod"}, "finalizers": [FINALIZER]});
    world.add_machine_with("copy", copied, json!({"providerID": id})).await?;
    world.is_judged("copy", Some("UnhealthyNode")).await?;
    world.remediate("copy", 9).await?;

    world.is_judged("probe", Some("UnhealthyNode")).await?;
    world.remediate("probe", 1).await?;
    world.remediation_becomes("probe", "waits", |one| phase(one, "Waiting")).await?;
    world.pause().await;
    for name in ["healthy", "other", "copied"] {
        ensure!(world.resets(name).await? == 0, "{name} was reset");
        ensure!(world.asks_owner(name).await?.is_null(), "{name}");
    }
    let missing = |one: &Value| condition(one, "Rebooted")["reason"] == "OwnerMissing";
    world.remediation_becomes("stranger", "has no owner", missing).await?;
    ensure!(world.cloud.count(Operation::ResetMachine) == 1, "that of the probe");
    daemon.stop().await
}

async fn pauses(api: &Api) -> anyhow::Result<()> {
    let annotation = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    for (kind, name, pause, end) in [
        ("Cluster", "prod", json!({"spec": {"paused": true}}), json!({"spec": {"paused": false}})),
        ("Machine", "one", annotation("".into()), annotation(Value::Null)),
        ("FakeMachine", "one", annotation("".into()), annotation(Value::Null)),
        ("RebootRemediation", "one", annotation("".into()), annotation(Value::Null)),
    ] {
        let (world, daemon) = World::with_cluster(api).await?;
        world.add_machine("one").await?;
        world.is_up("one").await?;
        world.remediate("one", 1).await?;
        world.change(kind, name, pause).await?;
        world.is_judged("one", Some("UnhealthyNode")).await?;
        let says_so = |one: &Value| condition(one, "Paused")["status"] == "True";
        world.remediation_becomes("one", "is paused", says_so).await?;
        world.pause().await;
        ensure!(world.resets("one").await? == 0, "{kind}");
        world.change(kind, name, end).await?;
        // The end of a pause of the Machine or its infrastructure alone is seen by a look.
        sleep(Duration::from_secs(30)).await;
        let goes_on = |one: &Value| phase(one, "Waiting") && condition(one, "Paused")["status"] == "False";
        world.remediation_becomes("one", "goes on", goes_on).await?;
        ensure!(world.resets("one").await? == 1, "{kind}");
        daemon.stop().await?;
    }
    Ok(())
}

/// The daemon dies before and after each request and each change of the cloud. A reboot may get lost, and none is made too many.
async fn killed(api: &Api) -> anyhow::Result<()> {
    const LIMIT: u32 = 2;
    let lives = async |kill: Kill| -> anyhow::Result<bool> {
        let (world, daemon) = unhealthy(api, "UnhealthyNode").await?;
        let act = async {
            world.remediate("one", LIMIT).await?;
            sleep(Duration::from_secs(2 * TIMEOUT)).await;
            Ok(())
        };
        let is_dead = kill.during((&world.tape.trap, &world.cloud), daemon, act).await?;
        ensure!(world.resets("one").await? <= LIMIT as usize, "{kill:?}: too many");
        let daemon = world.start(&[])?;
        sleep(Duration::from_secs(2 * TIMEOUT + 5)).await;
        let over = world.remediation_becomes("one", "is handed over", |one| phase(one, "HandedOver")).await?;
        let resets = world.resets("one").await?;
        ensure!(resets <= LIMIT as usize, "{kill:?}: {resets} resets: {over}");
        // A cloud that answers no more takes the time of each reboot.
        if matches!(kill, Kill::Step(..)) {
            ensure!(resets + 1 >= LIMIT as usize, "{kill:?}: only {resets} resets: {over}");
        }
        ensure!(over["status"]["retryCount"] == LIMIT, "{kill:?}: {over}");
        ensure!(world.asks_owner("one").await?["reason"] == "WaitingForRemediation", "{kill:?}");
        daemon.stop().await?;
        Ok(is_dead)
    };
    let requests = at_every_step(async |at, side| lives(Kill::Step(at, side)).await).await?;
    let changes = at_every_change(async |kill| lives(kill).await).await?;
    ensure!(changes >= 2, "each reset is a change of the cloud: {changes}");
    println!("reboots: before and after each of {requests} requests, and at {changes} changes of the cloud");
    Ok(())
}

//! Two tenants with a namespace each, one of which is after what the other one has.

use anyhow::{Context as _, ensure};
use cloudprovider::testing::Operation;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{core::forget, world::*};
use crate::{api::Api, scenarios::Trials};

/// The namespaces of the one that attacks and of the other one.
const HOSTILE: &str = "team-a";
const VICTIM: &str = "team-b";

/// How many broken machines one namespace has.
const BROKEN: usize = 600;

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("machines::a_claim_to_an_identity_stops_nothing_of_another_namespace", claimed)
        .sandbox("machines::what_is_foreign_is_not_named", foreign)
        .sandbox("machines::broken_machines_of_one_namespace_do_not_hold_up_another", broken)
}

/// A tenant with a Cluster, as the world of its namespace.
async fn tenant<'a>(
    world: &World<'a>,
    namespace: &'static str,
    cluster: &'static str,
) -> anyhow::Result<World<'a>> {
    let object = Namespace {
        metadata: ObjectMeta { name: Some(namespace.into()), ..Default::default() },
        ..Default::default()
    };
    kube::Api::all(world.api.client.clone()).create(&PostParams::default(), &object).await?;
    let tenant = World { cluster, ..world.in_namespace(namespace) };
    tenant.add_cluster(cluster).await?;
    tenant.cluster_is_ready(cluster).await?;
    Ok(tenant)
}

fn message(object: &Value) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

/// Nothing that a tenant sees of its object names the other one.
async fn names_nothing_foreign(world: &World<'_>, name: &str, foreign: &[&str]) -> anyhow::Result<()> {
    let object = world.get("FakeMachine", name).await?;
    let events = world.events(name).await?;
    for word in foreign {
        ensure!(!message(&object).contains(word), "{word}: {object}");
        ensure!(events.iter().all(|(_, message)| !message.contains(word)), "{word}: {events:?}");
    }
    Ok(())
}

/// After a move all objects have other UIDs than their identities. The attacker's object is older, and claims the victim's.
async fn claimed(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    let attacker = tenant(&world, HOSTILE, "evil").await?;
    let victim = tenant(&world, VICTIM, "prod").await?;
    victim.add_machine("vault").await?;
    let before = victim.is_up("vault").await?;
    let identity = before["metadata"]["annotations"][IDENTITY].as_str().context("an identity")?.to_owned();
    daemon.stop().await?;

    let claim = json!({"annotations": {IDENTITY: identity}, "finalizers": [FINALIZER]});
    attacker.add_machine_with("thief", claim.clone(), json!({})).await?;
    attacker.add_data("thief").await?;
    attacker.add_machine_with("z-thief", claim, json!({})).await?;
    // The victim moves here.
    for kind in ["FakeMachine", "Machine"] {
        forget(&victim.objects(kind), "vault").await?;
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let annotations = before["metadata"]["annotations"].clone();
    let spec = before["spec"].clone();
    let metadata = json!({"annotations": annotations, "finalizers": [FINALIZER]});
    victim.add_machine_with("vault", metadata, spec).await?;
    victim.name_secret("vault").await?;

    let daemon = world.start(&[])?;
    let after = victim.is_up("vault").await?;
    ensure!(after["metadata"]["uid"] != before["metadata"]["uid"], "it is another object");
    attacker.waits_for("thief", "ForeignObject").await?;
    names_nothing_foreign(&attacker, "thief", &[VICTIM, "prod"]).await?;

    // An object that made nothing is let go only after the cloud was asked.
    let asked = |name: &str| {
        let calls = world.cloud.calls();
        calls.iter().filter(|call| call.operation == Operation::DeleteMachine && call.subject == name).count()
    };
    for name in ["thief", "z-thief"] {
        attacker.delete("FakeMachine", name).await?;
        attacker.vanishes("FakeMachine", name).await?;
        ensure!(asked(name) > 0, "{name} was let go without a step");
    }
    victim.cloud_has(&["disk/vault", "instance/vault"])?;
    // The victim is followed, and can be deleted.
    victim.delete("FakeMachine", "vault").await?;
    victim.vanishes("FakeMachine", "vault").await?;
    victim.cloud_has(&[])?;
    daemon.stop().await
}

/// The name of a machine is taken in the cloud: by whom, its tenant does not see.
async fn foreign(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    let attacker = tenant(&world, HOSTILE, "evil").await?;
    let victim = tenant(&world, VICTIM, "prod").await?;
    victim.add_machine("db").await?;
    let up = victim.is_up("db").await?;
    let uid = up["metadata"]["uid"].as_str().context("a UID")?;
    attacker.add_machine("db").await?;
    let told = attacker.waits_for("db", "ForeignObject").await?;
    ensure!(message(&told).contains("belongs to another object"), "{told}");
    names_nothing_foreign(&attacker, "db", &[VICTIM, uid, "prod"]).await?;
    attacker.delete("FakeMachine", "db").await?;
    attacker.vanishes("FakeMachine", "db").await?;
    victim.cloud_has(&["disk/db", "instance/db"])?;
    daemon.stop().await
}

/// All are due at the start of a daemon. Of the other namespace, few come first: about as many as there are seats for work.
async fn broken(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    let attacker = tenant(&world, HOSTILE, "evil").await?;
    let victim = tenant(&world, VICTIM, "prod").await?;
    daemon.stop().await?;
    for number in 0..BROKEN {
        let name = format!("broken-{number}");
        world.cloud.put_object(&format!("disk/{name}"), None);
        attacker.add_machine(&name).await?;
    }
    victim.add_machine("db").await?;
    world.cloud.forget_calls();

    let daemon = world.start(&[])?;
    victim.is_up("db").await?;
    let calls = world.cloud.calls();
    let of_victim = |call: &cloudprovider::testing::Call| call.subject == "db";
    let steps = calls.iter().filter(|call| call.operation == Operation::EnsureMachine);
    let before = steps.take_while(|call| !of_victim(call)).count();
    ensure!(before <= 128, "{before} steps of the other namespace came first");

    // Each of the broken ones is tried, and more and more seldom. A pause is 60 s for one, and 600 of them have two minutes.
    let tried = |cloud: &cloudprovider::testing::FakeCloud| {
        let calls = cloud.calls();
        let steps = calls.iter().filter(|call| call.operation == Operation::EnsureMachine);
        steps.filter(|call| call.subject.starts_with("broken-")).count()
    };
    attacker.waits_for(&format!("broken-{}", BROKEN - 1), "ForeignObject").await?;
    world.pause().await;
    world.cloud.forget_calls();
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let tried = tried(&world.cloud);
    ensure!((3 * BROKEN..=6 * BROKEN).contains(&tried), "{tried} steps in ten minutes");
    daemon.stop().await
}

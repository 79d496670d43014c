//! Many machines at once.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use cloudprovider::testing::{Fault, Operation};
use tokio::time::Instant;

use super::world::*;
use crate::{
    api::Api,
    scenarios::Trials,
    support::{eventually, patience},
};

/// How many machines there are.
const MACHINES: usize = 300;

/// The writes that a machine may cost until it is ready.
const MAX_WRITES: usize = 6;

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("machines::hundreds_at_once", at_once)
        .sandbox("machines::calls_that_hang_hold_up_nobody", hanging)
}

async fn at_once(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let began = Instant::now();
    for number in 0..MACHINES {
        world.add_machine(&format!("m-{number}")).await?;
    }
    let up = || async {
        let all = world.objects("FakeMachine").list(&kube::api::ListParams::default()).await?;
        let mut up = 0;
        for one in &all {
            up += usize::from(is_ready(&serde_json::to_value(one)?));
        }
        Ok((up == MACHINES).then_some(()))
    };
    eventually(SOON * 10, "all are ready", up).await?;
    // In parallel: a task and an address take 20 s together.
    ensure!(began.elapsed() < patience(Duration::from_secs(60)), "{:?}", began.elapsed());
    for number in 0..MACHINES {
        world.tape.has_writes_of(&format!("m-{number}")).await;
    }
    let mut writes = BTreeMap::<String, usize>::new();
    for write in world.tape.steps() {
        *writes.entry(write.name).or_default() += 1;
    }
    let most = writes.values().max().copied().unwrap_or_default();
    ensure!(most <= MAX_WRITES, "{most} writes: {writes:?}");
    ensure!(world.cloud.count(Operation::CreateMachine) == MACHINES);
    world.tape.clear();
    world.cloud.forget_calls();
    world.pause().await;
    ensure!(world.tape.steps().is_empty() && world.cloud.calls().is_empty(), "{:?}", world.cloud.calls());
    for number in 0..MACHINES {
        world.delete("FakeMachine", &format!("m-{number}")).await?;
    }
    let gone = || async {
        let all = world.objects("FakeMachine").list(&kube::api::ListParams::default()).await?;
        Ok(all.items.is_empty().then_some(()))
    };
    eventually(SOON * 10, "all are gone", gone).await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

/// More machines than are worked on at a time have calls that hang until they are given up, after a minute.
async fn hanging(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.forget_calls();
    for _ in 0..MACHINES {
        world.cloud.fail_next(Operation::EnsureMachine, Fault::Hang);
    }
    for number in 0..MACHINES {
        world.add_machine(&format!("hangs-{number}")).await?;
    }
    let all_hang = || async { Ok((world.cloud.count(Operation::EnsureMachine) == MACHINES).then_some(())) };
    eventually(SOON, "all calls hang", all_hang).await?;
    let began = Instant::now();
    world.add_machine("other").await?;
    world.is_up("other").await?;
    ensure!(began.elapsed() < patience(Duration::from_secs(40)), "{:?}", began.elapsed());
    daemon.stop().await
}

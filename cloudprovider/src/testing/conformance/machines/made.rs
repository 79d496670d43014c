//! Rules about making machines.

use std::collections::BTreeSet;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    super::run::{Checked, POLL_INTERVAL, Run, ensure, failed},
    driver::{Driver, described},
};
use crate::{
    PowerState,
    machines::{MachineReport, PresentMachine, WaitsFor},
};

/// Further steps of a machine that exists.
const STEPS_MORE: usize = 3;

pub(super) async fn made(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let machine = driver.finish(&mut object).await?;
    let state = machine.instance.power_state;
    ensure(state == PowerState::Running, || format!("{} is made and {state}", object.name()))?;
    let made = driver.things().await?.difference(&before).count();
    ensure(made > 0, || format!("{} is made, and nothing is there", object.name()))?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(format!("a machine of {made} parts"))
}

/// What steps of a machine say again and again.
fn said(machine: &PresentMachine) -> String {
    let instance = &machine.instance;
    format!("{:?} {:?} {:?}", instance.provider_id, instance.metadata, machine.failure_domain)
}

pub(super) async fn again(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let machine = driver.finish(&mut object).await?;
    let (things, record) = (driver.things().await?, object.record.clone());
    for _ in 0..STEPS_MORE {
        match driver.step(&mut object).await? {
            Ok(MachineReport::Present(now)) if now.wait.is_none() => {
                let (first, now) = (said(&machine), said(&now));
                ensure(first == now, || format!("a step says {first}, and the next one {now}"))?;
            }
            answer => return failed(format!("{} was there and is {}", object.name(), described(&answer))),
        }
        ensure(record == object.record, || {
            format!("a step with nothing to do changes the status from {record:?} to {:?}", object.record)
        })?;
        driver.has_only(&things, "after a step with nothing to do").await?;
    }
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(format!("{STEPS_MORE} more steps"))
}

pub(super) async fn bootstrap(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let data = object.request.bootstrap.take();
    let (began, patience) = (Instant::now(), run.hooks.patience());
    // Other parts of it may be made meanwhile.
    loop {
        let answer = driver.step(&mut object).await?;
        match &answer {
            Ok(MachineReport::Creating(wait)) if wait.waits_for == WaitsFor::BootstrapData => break,
            Ok(MachineReport::Creating(_)) => {}
            answer => {
                return failed(format!("without bootstrap data {} is {}", object.name(), described(answer)));
            }
        }
        ensure(began.elapsed() < patience, || format!("it does not wait for them: {}", described(&answer)))?;
        sleep(POLL_INTERVAL).await;
    }
    object.request.bootstrap = data;
    driver.finish(&mut object).await?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok("before and after, and every text of the steps".to_owned())
}

pub(super) async fn many(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let size = driver.size_of_a_machine().await?;
    let before = driver.things().await?;
    let mut objects: Vec<_> = (0..driver.cases.many).map(|_| driver.object()).collect();
    let made = join_all(objects.iter_mut().map(|object| driver.finish(object))).await;
    made.into_iter().collect::<Checked<Vec<_>>>()?;
    let ids: BTreeSet<_> = objects.iter().filter_map(|object| object.request.provider_id.as_ref()).collect();
    let count = objects.len();
    ensure(ids.len() == count, || format!("{count} machines have {} provider IDs", ids.len()))?;
    driver.is_one(&before, size * count, "with many machines").await?;
    let gone = join_all(objects.iter_mut().map(|object| driver.remove(object))).await;
    gone.into_iter().collect::<Checked<Vec<()>>>()?;
    driver.has_only(&before, "with all machines gone").await?;
    Ok(format!("{count} machines"))
}

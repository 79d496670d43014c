//! Rules about what happens behind our back, and about a cloud in trouble.

use tokio::time::{Instant, sleep};

use super::{
    super::run::{Checked, POLL_INTERVAL, Run, ensure, failed},
    driver::{Driver, Object, described},
};
use crate::{NodeIdentity, machines::MachineReport};

/// Steps after the answer was found.
const STEPS_MORE: usize = 3;

/// Steps while a machine is off.
const STEPS_OFF: usize = 20;

/// The Node of a machine that was made, as its kubelet registers it.
pub(super) async fn node_of(run: &Run<'_>, object: &Object) -> Checked<NodeIdentity> {
    match &object.request.provider_id {
        Some(id) => Ok(run.hooks.machine_node(id).await?),
        None => failed(format!("{} has no provider ID", object.name())),
    }
}

pub(super) async fn vanished(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    driver.finish(&mut object).await?;
    run.hooks.destroy(&node_of(run, &object).await?).await?;
    let left = driver.things().await?;
    let (began, patience) = (Instant::now(), run.hooks.patience());
    let mut lost = 0;
    while lost < STEPS_MORE {
        let answer = driver.step(&mut object).await?;
        match &answer {
            Ok(MachineReport::Lost { message }) if !message.trim().is_empty() => lost += 1,
            // It may not have been seen yet.
            Ok(MachineReport::Present(_)) if lost == 0 && began.elapsed() < patience => {}
            answer => return failed(format!("{} was destroyed and is {}", object.name(), described(answer))),
        }
        sleep(POLL_INTERVAL).await;
    }
    let now = driver.things().await?;
    let made: Vec<_> = now.difference(&left).cloned().collect();
    ensure(made.is_empty(), || format!("after the machine was destroyed, {} was made", made.join(", ")))?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the lost machine gone").await?;
    Ok(format!("{STEPS_MORE} steps"))
}

pub(super) async fn powered_off(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    driver.finish(&mut object).await?;
    run.hooks.power_off(&node_of(run, &object).await?).await?;
    let mut was_off = false;
    for _ in 0..STEPS_OFF {
        match driver.step(&mut object).await? {
            Ok(MachineReport::Present(machine)) => was_off |= machine.instance.power_state.is_shutdown(),
            answer => {
                return failed(format!("{} was powered off and is {}", object.name(), described(&answer)));
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(if was_off { "seen as off" } else { "started again" }.to_owned())
}

pub(super) async fn failed_task(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let size = driver.size_of_a_machine().await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let words = run.hooks.fail_next_task().await?;
    let (began, patience) = (Instant::now(), run.hooks.patience());
    loop {
        let answer = driver.step(&mut object).await?;
        match &answer {
            Err(error) if error.report().contains(&words) => break,
            Ok(report) if report.wait().is_some() && began.elapsed() < patience => {}
            answer => {
                return failed(format!("its work failed ({words}) and the answer is {}", described(answer)));
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    driver.finish(&mut object).await?;
    driver.is_one(&before, size, "after a failure").await?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(format!("{words:?}"))
}

pub(super) async fn disconnected(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let (mut there, mut new) = (driver.object(), driver.object());
    driver.finish(&mut there).await?;
    let things = driver.things().await?;
    if let Err(error) = run.hooks.disconnect().await {
        driver.remove(&mut there).await?;
        return Err(error.into());
    }
    let seen = in_trouble(&driver, &mut there, &mut new).await;
    run.hooks.reconnect().await?;
    // The first calls may still use the broken connection.
    driver.wait_for_connection().await?;
    driver.finish(&mut there).await?;
    driver.remove(&mut new).await?;
    let kept = driver.has_only(&things, "after the cloud was away").await;
    driver.remove(&mut there).await?;
    seen.and(kept)?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok("a machine that is there, a new one, and deletion".to_owned())
}

async fn in_trouble(driver: &Driver<'_>, there: &mut Object, new: &mut Object) -> Checked<()> {
    for _ in 0..STEPS_MORE {
        match driver.step(there).await? {
            // A machine that is there may be known from before.
            Err(_) | Ok(MachineReport::Present(_)) => {}
            answer => {
                return failed(format!("the cloud is away and {} is {}", there.name(), described(&answer)));
            }
        }
        if let Ok(report) = driver.step(new).await? {
            return failed(format!("the cloud is away and a new machine is {}", described(&Ok(report))));
        }
        for object in [&mut *there, &mut *new] {
            let mut deleted = object.clone();
            if let Ok(answer) = driver.delete_step(&mut deleted).await? {
                return failed(format!("the cloud is away and deleting {} gives {answer:?}", object.name()));
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

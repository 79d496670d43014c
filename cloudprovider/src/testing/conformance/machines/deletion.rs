//! Rules about deleting machines.

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    super::run::{Checked, Run, ensure},
    driver::{Driver, described},
    interrupted::take,
};
use crate::machines::Deletion;

/// After how many steps of its making a machine is deleted.
const STEPS_MADE: usize = 8;

pub(super) async fn deleted(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let (mut kept, mut object) = (driver.object(), driver.object());
    driver.finish(&mut kept).await?;
    let with_one = driver.things().await?;
    driver.finish(&mut object).await?;
    driver.remove(&mut object).await?;
    driver.has_only(&with_one, "with one of two machines gone").await?;
    let again = driver.delete_step(&mut object).await?;
    ensure(matches!(again, Ok(Deletion::Gone)), || format!("deleting it again gives {again:?}"))?;
    let answer = driver.step(&mut kept).await?;
    let is_there = answer.as_ref().is_ok_and(crate::machines::MachineReport::is_done);
    ensure(is_there, || format!("the other machine is {}", described(&answer)))?;
    // Somebody may have removed the cluster's object by force.
    kept.request.cluster.spec = Value::Null;
    driver.remove(&mut kept).await?;
    driver.has_only(&before, "with both machines gone").await?;
    Ok("one of two machines, twice, and the other without its cluster".to_owned())
}

pub(super) async fn never_made(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    for _ in 0..2 {
        driver.remove(&mut object).await?;
        driver.has_only(&before, "with a machine gone that never was").await?;
    }
    Ok("twice".to_owned())
}

pub(super) async fn deleted_early(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let (before, began) = (driver.things().await?, Instant::now());
    for steps in 0..STEPS_MADE {
        if began.elapsed() > driver.cases.time_for_cuts {
            return Ok(format!("after each of the first {steps} steps, with its status and without"));
        }
        for is_lost in [false, true] {
            let mut object = driver.object();
            let is_done = take(&driver, &mut object, steps).await?;
            if is_lost {
                object.forget_status();
            }
            driver.remove(&mut object).await?;
            // Work that is still under way would end by now.
            sleep(run.hooks.patience() / 4).await;
            driver.has_only(&before, &format!("with a machine gone that took {steps} steps")).await?;
            if is_done && is_lost {
                return Ok(format!("after each of {steps} steps, with its status and without"));
            }
        }
    }
    Ok(format!("after each of the first {STEPS_MADE} steps, with its status and without"))
}

pub(super) async fn forgotten(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let (mut kept, mut object) = (driver.object(), driver.object());
    let uid = object.request.mark.uid.clone();
    driver.finish(&mut kept).await?;
    let with_one = driver.things().await?;
    // One that nobody knows.
    driver.part()?.forget(&uid);
    take(&driver, &mut object, 1).await?;
    driver.part()?.forget(&uid);
    driver.finish(&mut object).await?;
    let with_both = driver.things().await?;
    for _ in 0..2 {
        driver.part()?.forget(&uid);
    }
    // What is done late would be seen by now.
    sleep(run.hooks.patience() / 4).await;
    driver.has_only(&with_both, "after the object of a machine is gone").await?;
    for one in [&mut kept, &mut object] {
        driver.finish(one).await?;
    }
    driver.remove(&mut object).await?;
    driver.part()?.forget(&uid);
    driver.has_only(&with_one, "with one of two machines gone").await?;
    driver.remove(&mut kept).await?;
    driver.has_only(&before, "with both machines gone").await?;
    Ok("before the first step, between steps, twice in a row, and after the deletion".to_owned())
}

//! Rules about steps that are cut off, and about what is lost then.

use std::{future::Future, task::Poll};

use futures::poll;
use tokio::time::{Instant, sleep};

use super::{
    super::run::{Checked, Run, STEPS_GIVEN_UP},
    driver::{Driver, Object},
};
use crate::machines::Deletion;

/// The pause between whole steps is this part of the patience.
const PAUSES: u32 = 64;

/// How many steps of a machine are cut off, one after the other.
const STEPS_CUT: usize = 8;

pub(super) async fn restart(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    driver.finish(&mut object).await?;
    let things = driver.things().await?;
    let driver = driver.restart().await?;
    driver.finish(&mut object).await?;
    driver.has_only(&things, "after a restart").await?;
    // As after a move to another management cluster.
    let mut moved = Object { request: object.request.clone(), ..driver.object() };
    moved.request.is_provisioned = false;
    driver.finish(&mut moved).await?;
    driver.has_only(&things, "after a restart without the status").await?;
    driver.remove(&mut moved).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok("with its status and without".to_owned())
}

pub(super) async fn status_lost(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let size = driver.size_of_a_machine().await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    driver.finish_with(&mut object, Object::forget_status).await?;
    driver.is_one(&before, size, "without a status").await?;
    driver.remove_with(&mut object, Object::forget_status).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(format!("a machine of {size} parts"))
}

/// Takes whole steps, with time for the cloud in between. Returns whether nothing is left to do after fewer.
pub(super) async fn take(driver: &Driver<'_>, object: &mut Object, steps: usize) -> Checked<bool> {
    for _ in 0..steps {
        if let Ok(report) = driver.step(object).await?
            && report.is_done()
        {
            return Ok(true);
        }
        sleep(driver.run.hooks.patience() / PAUSES).await;
    }
    Ok(false)
}

/// Lets a step take some polls and gives it up. Returns whether it was at its end before.
async fn cut<T>(step: impl Future<Output = Checked<T>>, polls: usize) -> Checked<bool> {
    let mut step = std::pin::pin!(step);
    for _ in 0..=polls {
        if let Poll::Ready(answer) = poll!(&mut step) {
            return answer.map(|_| true);
        }
        tokio::task::yield_now().await;
    }
    Ok(false)
}

pub(super) async fn cut_off(run: &Run<'_>) -> Checked {
    let mut driver = Driver::start(run).await?;
    let size = driver.size_of_a_machine().await?;
    let before = driver.things().await?;
    let (mut cuts, began) = (0, Instant::now());
    for steps in 0..STEPS_CUT {
        for polls in 0..STEPS_GIVEN_UP {
            if began.elapsed() > driver.cases.time_for_cuts {
                return Ok(format!("{cuts} cuts, up to point {polls} of step {steps}"));
            }
            let mut object = driver.object();
            if take(&driver, &mut object, steps).await? {
                driver.remove(&mut object).await?;
                return Ok(format!("{cuts} cuts in the first {steps} steps"));
            }
            // What the step would say is lost with it.
            let is_whole = cut(driver.step(&mut object.clone()), polls).await?;
            driver = driver.restart().await?;
            driver.finish(&mut object).await?;
            let when = format!("after a cut at point {polls} of step {steps}");
            driver.is_one(&before, size, &when).await?;
            driver.remove(&mut object).await?;
            driver.has_only(&before, &format!("{when}, with the machine gone,")).await?;
            cuts += 1;
            if is_whole {
                break;
            }
        }
    }
    Ok(format!("{cuts} cuts in the first {STEPS_CUT} steps"))
}

pub(super) async fn deletion_cut_off(run: &Run<'_>) -> Checked {
    let mut driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let (mut cuts, began) = (0, Instant::now());
    for steps in 0..STEPS_CUT {
        for polls in 0..STEPS_GIVEN_UP {
            if began.elapsed() > driver.cases.time_for_cuts {
                return Ok(format!("{cuts} cuts, up to point {polls} of step {steps}"));
            }
            let mut object = driver.object();
            driver.finish(&mut object).await?;
            for _ in 0..steps {
                if let Ok(Deletion::Gone) = driver.delete_step(&mut object).await? {
                    return Ok(format!("{cuts} cuts in the first {steps} steps"));
                }
                sleep(run.hooks.patience() / PAUSES).await;
            }
            let is_whole = cut(driver.delete_step(&mut object.clone()), polls).await?;
            driver = driver.restart().await?;
            driver.remove(&mut object).await?;
            let when = format!("after a cut at point {polls} of step {steps} of its deletion");
            driver.has_only(&before, &when).await?;
            cuts += 1;
            if is_whole {
                break;
            }
        }
    }
    Ok(format!("{cuts} cuts in the first {STEPS_CUT} steps"))
}

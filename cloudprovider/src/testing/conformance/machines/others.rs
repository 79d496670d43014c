//! Rules about what is not ours.

use super::{
    super::run::{Checked, POLL_INTERVAL, Run, ensure, failed},
    driver::{Driver, Object, described},
};
use crate::{
    ErrorKind, Result,
    machines::{MachineReport, Mark},
};
use tokio::time::{Instant, sleep};

/// Steps of an object that must not get its way.
const STEPS_REFUSED: usize = 3;

/// Steps until an answer is final: an error, or nothing left to do.
async fn settled(driver: &Driver<'_>, object: &mut Object) -> Checked<Result<MachineReport>> {
    let (began, patience) = (Instant::now(), driver.run.hooks.patience());
    loop {
        let answer = driver.step(object).await?;
        let is_under_way = answer.as_ref().is_ok_and(|report| report.wait().is_some());
        if !is_under_way || began.elapsed() >= patience {
            return Ok(answer);
        }
        sleep(POLL_INTERVAL).await;
    }
}

pub(super) async fn foreign(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let name = object.name().to_owned();
    let mark = object.request.mark.clone();
    run.hooks.foreign_thing(&mark).await?;
    let with_it = driver.things().await?;
    ensure(with_it != before, || "the hook `machine_objects` does not see the foreign machine".to_owned())?;
    // The inventory may learn of it a little later.
    sleep(POLL_INTERVAL * 10).await;
    for _ in 0..STEPS_REFUSED {
        match settled(&driver, &mut object).await? {
            Err(error) if error.kind() == ErrorKind::Conflict && error.report().contains(&name) => {}
            answer => {
                return failed(format!("{name:?} is somebody else's, and ours is {}", described(&answer)));
            }
        }
    }
    driver.remove(&mut object).await?;
    driver.has_only(&with_it, "beside the foreign machine").await?;
    run.hooks.remove_foreign_thing(&mark).await?;
    sleep(POLL_INTERVAL * 10).await;
    let mut object = driver.object_with(object.request.mark.clone());
    driver.finish(&mut object).await?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(format!(
        "{STEPS_REFUSED} steps towards existing, those towards gone, and again once it was out of the way"
    ))
}

pub(super) async fn marks(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut ours = driver.object();
    driver.finish(&mut ours).await?;
    let (mark, id) = (ours.request.mark.clone(), ours.request.provider_id.clone());
    let things = driver.things().await?;
    let others = [
        ("of another cluster", Mark { cluster: "conformance-other".to_owned(), ..driver.mark() }),
        ("of another namespace", Mark { namespace: "conformance-other".to_owned(), ..driver.mark() }),
    ]
    .map(|(what, other)| (what, Mark { machine: mark.machine.clone(), ..other }));
    let copied = Mark { machine: driver.mark().machine, ..mark.clone() };
    for (what, mark) in others.into_iter().chain([("with a copied identity", copied)]) {
        let mut other = driver.object_with(mark);
        let answer = settled(&driver, &mut other).await?;
        let is_apart = match &answer {
            Ok(report) => report.is_done() && other.request.provider_id != id,
            Err(error) => error.kind() == ErrorKind::Conflict,
        };
        ensure(is_apart, || format!("a machine {what} is {}", described(&answer)))?;
        driver.remove(&mut other).await?;
        driver.has_only(&things, &format!("with a machine {what} gone")).await?;
        let answer = driver.step(&mut ours).await?;
        let is_there = answer.as_ref().is_ok_and(MachineReport::is_done);
        ensure(is_there, || format!("beside a machine {what} ours is {}", described(&answer)))?;
    }
    driver.remove(&mut ours).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok("another cluster, another namespace, a copied identity".to_owned())
}

//! The rule about machines that are reset.

use tokio::time::{Instant, sleep};

use super::{
    super::run::{CALL_TIMEOUT, Checked, POLL_INTERVAL, Run, ensure, failed, not_checked, within},
    driver::{Driver, Object, described},
    trouble::node_of,
};
use crate::{
    ErrorKind, PowerState, Result,
    machines::{MachineReport, Mark, Reset},
};

/// Asks for a reset, as the controller does.
async fn reset(driver: &Driver<'_>, object: &Object) -> Checked<Result<Reset>> {
    let call = driver.part()?;
    let call = call.reset_machine(&object.request, &object.record);
    let answer = within("reset_machine", CALL_TIMEOUT, call).await?;
    answer.as_ref().err().map_or(Ok(()), |error| driver.run.see(error))?;
    Ok(answer)
}

/// Steps until the machine has such a power state.
async fn becomes(
    driver: &Driver<'_>,
    object: &mut Object,
    is_so: impl Fn(PowerState) -> bool,
) -> Checked<()> {
    let (began, patience) = (Instant::now(), driver.run.hooks.patience());
    loop {
        let answer = driver.step(object).await?;
        match &answer {
            Ok(MachineReport::Present(machine)) if is_so(machine.instance.power_state) => return Ok(()),
            Ok(MachineReport::Present(_)) if began.elapsed() < patience => {}
            answer => return failed(format!("{} was reset and is {}", object.name(), described(answer))),
        }
        sleep(POLL_INTERVAL).await;
    }
}

pub(super) async fn reset_machine(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    if !driver.part()?.kinds().can_reset {
        return not_checked("resets, which the provider does not make");
    }
    let before = driver.things().await?;
    let never_made = driver.object();
    let answer = reset(&driver, &never_made).await?;
    ensure(matches!(answer, Ok(Reset::Absent)), || {
        format!("the reset of a machine that never was gives {answer:?}")
    })?;
    let mut ours = driver.object();
    driver.finish(&mut ours).await?;
    let things = driver.things().await?;
    let answer = reset(&driver, &ours).await?;
    ensure(matches!(answer, Ok(Reset::Done)), || format!("the reset of a machine gives {answer:?}"))?;
    driver.has_only(&things, "after a reset").await?;
    // The same machine, by its provider ID.
    driver.finish(&mut ours).await?;
    let mark = &ours.request.mark;
    for other in [
        Mark { cluster: "conformance-other".to_owned(), ..mark.clone() },
        Mark { namespace: "conformance-other".to_owned(), ..mark.clone() },
        Mark { machine: driver.mark().machine, ..mark.clone() },
    ] {
        let mut other = driver.object_with(other);
        other.request.provider_id.clone_from(&ours.request.provider_id);
        let answer = reset(&driver, &other).await?;
        let is_left_alone = match &answer {
            Ok(reset) => *reset == Reset::Absent,
            Err(error) => error.kind() == ErrorKind::Conflict,
        };
        ensure(is_left_alone, || format!("the reset of another object's machine gives {answer:?}"))?;
    }
    run.hooks.power_off(&node_of(run, &ours).await?).await?;
    becomes(&driver, &mut ours, PowerState::is_shutdown).await?;
    let answer = reset(&driver, &ours).await?;
    ensure(matches!(answer, Ok(Reset::Done)), || {
        format!("the reset of a machine that is off gives {answer:?}")
    })?;
    becomes(&driver, &mut ours, |state| state == PowerState::Running).await?;
    driver.remove(&mut ours).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok("one that runs, one that is off, one that never was, and those of others".to_owned())
}

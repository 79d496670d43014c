//! A daemon dies at one point of its life after the other.

use std::time::Duration;

use cloudprovider::testing::FakeCloud;
use tokio::time::sleep;

use super::{
    replicas::Replica,
    trap::{Side, Trap},
};

/// Longer than a life without a death takes to settle.
const LIFE: Duration = Duration::from_secs(90);

/// Where the daemon dies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kill {
    /// Before or after this step: a request to the API server, or a call of the cloud.
    Step(usize, Side),
    /// After so many changes of the cloud: the answer of the last one is lost. Right before the next one, the world is the same.
    Change(usize),
}

impl Kill {
    /// Lets `act` happen, and kills the daemon at this point. Without such a point it lives for a while. Whether it died there.
    pub(crate) async fn during(
        self,
        (trap, cloud): (&Trap, &FakeCloud),
        daemon: Replica,
        act: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<bool> {
        let is_caught = match self {
            Self::Step(at, side) => {
                let settles = async {
                    sleep(LIFE).await;
                    Ok(())
                };
                trap.catches((at, side), Box::pin(act), settles).await?
            }
            Self::Change(count) => {
                cloud.crash_after(count);
                act.await?;
                sleep(LIFE).await;
                false
            }
        };
        daemon.crash().await;
        trap.remove();
        Ok(cloud.recover() || is_caught)
    }
}

/// Lets the daemon die before and after each step, until there are no more. `dies` says whether it died there. Returns the number of
/// steps.
pub(crate) async fn at_every_step(
    mut dies: impl AsyncFnMut(usize, Side) -> anyhow::Result<bool>,
) -> anyhow::Result<usize> {
    let mut steps = 0;
    while dies(steps, Side::Before).await? && dies(steps, Side::After).await? {
        steps += 1;
    }
    Ok(steps)
}

/// The same after each change of the cloud.
pub(crate) async fn at_every_change(
    mut dies: impl AsyncFnMut(Kill) -> anyhow::Result<bool>,
) -> anyhow::Result<usize> {
    let mut changes = 0;
    while dies(Kill::Change(changes)).await? {
        changes += 1;
    }
    Ok(changes)
}

//! Two replicas; the leader ends, and a Node waits for the other one.

use std::time::Instant;

use anyhow::Result;
use test_env::Signal;
use tokio::time::sleep;

use super::{IDEAL, Manager, SETTLES, Values, Working, values};
use crate::cluster::{Cluster, NodeSize};

/// How the leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Terminated,
    Killed,
}

#[derive(Clone, Debug)]
pub(crate) struct Handover {
    pub(crate) end: End,
}

impl Handover {
    pub(super) fn variant(&self) -> String {
        match self.end {
            End::Terminated => "SIGTERM",
            End::Killed => "SIGKILL",
        }
        .to_owned()
    }

    /// `seconds` from the signal to the next complete Node.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        let start = || Working::start(manager, &cluster, IDEAL, &["--leader-elect=true"]);
        let mut leader = start()?;
        cluster.join(0, NodeSize::Real).await?;
        let standby = start()?;
        sleep(SETTLES).await;
        let began = Instant::now();
        leader.process.signal(match self.end {
            End::Terminated => Signal::Term,
            End::Killed => Signal::Kill,
        })?;
        // While the leader drains, it may still take a Node that joins at once. That would be no hand-over.
        leader.process.wait(SETTLES)?;
        cluster.join(1, NodeSize::Real).await?;
        let took = began.elapsed();
        standby.end()?;
        Ok(values([("seconds", took.as_secs_f64())]))
    }
}

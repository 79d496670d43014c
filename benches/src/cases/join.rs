//! One Node after the other joins a cluster that is settled.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{IDEAL, Manager, SETTLES, Values, Working, settled_cluster, values};
use crate::{cluster::NodeSize, statistics::quantile};

#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// Nodes that exist already.
    pub(crate) nodes: usize,
    pub(crate) joining: usize,
}

/// The pause between two Nodes that join.
const PAUSE: Duration = Duration::from_millis(100);

impl Join {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes", self.nodes)
    }

    /// From the POST to the complete Node: `median_seconds` and `p99_seconds`.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = settled_cluster(self.nodes).await?;
        let working = Working::start(manager, &cluster, IDEAL, &["--leader-elect=false"])?;
        // The first Node waits until the manager has started.
        cluster.join(self.nodes, NodeSize::Real).await?;
        sleep(SETTLES).await;
        let mut took = Vec::new();
        for number in self.nodes + 1..=self.nodes + self.joining {
            took.push(cluster.join(number, NodeSize::Real).await?.as_secs_f64());
            sleep(PAUSE).await;
        }
        working.end()?;
        took.sort_by(f64::total_cmp);
        let part = |part| quantile(&took, part).unwrap_or_default();
        Ok(values([("median_seconds", part(0.5)), ("p99_seconds", part(0.99)), ("max_seconds", part(1.0))]))
    }
}

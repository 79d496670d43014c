//! A manager starts in a large cluster where one Node waits.

use std::time::Instant;

use anyhow::Result;

use super::{IDEAL, Manager, Values, Working, settled_cluster, used, values};
use crate::cluster::NodeSize;

#[derive(Clone, Debug)]
pub(crate) struct Restart {
    /// Nodes that are initialised already.
    pub(crate) nodes: usize,
}

impl Restart {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes", self.nodes)
    }

    /// `seconds` from the start of the process to the complete Node.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = settled_cluster(self.nodes).await?;
        let progress = cluster.watch().await?;
        cluster.post(self.nodes..self.nodes + 1, NodeSize::Real).await?;
        let began = Instant::now();
        let working = Working::start(manager, &cluster, IDEAL, &["--leader-elect=false"])?;
        let first = loop {
            cluster.all_complete(1, &progress).await?;
            if let Some(first) = progress.first() {
                break first;
            }
        };
        let mut values = values([("seconds", (first - began).as_secs_f64())]);
        values.extend(used(&working.process)?);
        working.end()?;
        Ok(values)
    }
}

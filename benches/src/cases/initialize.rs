//! Many uninitialised Nodes wait when the manager starts.

use std::time::Instant;

use anyhow::Result;

use super::{Cloud, Manager, Values, Working, number, used, values};
use crate::cluster::{Cluster, NodeSize};

#[derive(Clone, Debug)]
pub(crate) struct Initialize {
    pub(crate) nodes: usize,
    pub(crate) size: NodeSize,
    /// How long the cloud takes for an answer.
    pub(crate) delay_millis: u64,
}

impl Initialize {
    pub(super) fn variant(&self) -> String {
        let size = if self.size == NodeSize::Bare { ", bare" } else { "" };
        let delay =
            if self.delay_millis > 0 { format!(", {} ms a call", self.delay_millis) } else { String::new() };
        format!("{} Nodes{size}{delay}", self.nodes)
    }

    /// `seconds` from the start of the process to the last change of the last Node.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        cluster.post(0..self.nodes, self.size).await?;
        let progress = cluster.watch().await?;
        let (began, cluster_cpu) = (Instant::now(), cluster.cpu()?);
        let arguments: &[&str] = if manager == Manager::Floor { &[] } else { &["--leader-elect=false"] };
        let cloud = Cloud::Ideal { delay_millis: self.delay_millis };
        let working = Working::start(manager, &cluster, cloud, arguments)?;
        let done = cluster.all_complete(self.nodes, &progress).await?;
        let mut values = values([
            ("seconds", (done.at - began).as_secs_f64()),
            ("cluster_cpu_seconds", done.cluster_cpu.saturating_sub(cluster_cpu).as_secs_f64()),
            ("nodes", number(self.nodes)),
            ("first_seconds", progress.first().map_or(0.0, |first| (first - began).as_secs_f64())),
        ]);
        values.extend(used(&working.process)?);
        working.end()?;
        Ok(values)
    }
}

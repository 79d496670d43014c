//! Nodes with pod CIDRs wait for routes when the manager starts.

use std::time::Instant;

use anyhow::Result;

use super::{Cloud, Manager, Values, Working, number, used, values};
use crate::cluster::Cluster;

#[derive(Clone, Debug)]
pub(crate) struct Routes {
    pub(crate) nodes: usize,
    /// How long the cloud takes for each call.
    pub(crate) delay_millis: u64,
}

impl Routes {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes, {} ms a call", self.nodes, self.delay_millis)
    }

    /// `seconds` from the start of the process to the moment at which every Node's condition says that its routes are there;
    /// `calls` of the cloud and `writes` of Nodes, for each Node.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        cluster.post_initialized(0..self.nodes).await?;
        let (began, writes) = (Instant::now(), cluster.changes_of("nodes").await?);
        let cloud = Cloud::Networks { delay_millis: self.delay_millis };
        let arguments = [
            "--leader-elect=false",
            "--controllers=node-route-controller",
            "--cluster-cidr=10.0.0.0/8",
            "--allocate-node-cidrs=true",
        ];
        let working = Working::start(manager, &cluster, cloud, &arguments)?;
        let done = cluster.all_have_routes(self.nodes).await?;
        let mut values = values([("seconds", (done - began).as_secs_f64())]);
        values.extend(used(&working.process)?);
        working.until_quiet().await?;
        let calls: f64 = working.calls()?.values().sum();
        values.extend(super::values([
            ("calls", calls / number(self.nodes)),
            ("writes", (cluster.changes_of("nodes").await? - writes) / number(self.nodes)),
        ]));
        working.end()?;
        Ok(values)
    }
}

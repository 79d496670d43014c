//! Kubelets with `--cloud-provider=external`, as far as the API server sees them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::Client;
use sandbox::kubelet;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{cloud::Machine, control_plane};

/// How often a kubelet renews its lease.
const LEASE_PERIOD: Duration = Duration::from_secs(10);

/// Kubelets that talk to the API server at the same moment. A hundred machines do not boot within one millisecond,
/// and a hundred connections at once would measure this process's own queues.
const AT_ONCE: usize = 16;

/// All kubelets. They fall silent when this is dropped.
pub(crate) struct Kubelets {
    alive: BTreeMap<String, DropGuard>,
    starting: JoinSet<anyhow::Result<(String, Instant)>>,
}

impl Kubelets {
    /// Starts one for each machine.
    pub(crate) fn start(client: &Client, machines: &[Machine]) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let mut kubelets = Self { alive: BTreeMap::new(), starting: JoinSet::new() };
        for machine in machines {
            let silence = CancellationToken::new();
            kubelets.alive.insert(machine.name.clone(), silence.clone().drop_guard());
            let (client, machine, permits) = (client.clone(), machine.clone(), permits.clone());
            kubelets.starting.spawn(async move {
                // Cannot fail: every task holds the semaphore, so it is never closed.
                let _permit = permits.acquire().await;
                let posted = register(&client, &machine)
                    .await
                    .with_context(|| format!("the kubelet of {} cannot register", machine.name))?;
                tokio::spawn(silence.run_until_cancelled_owned(stay_alive(client, machine.name.clone())));
                Ok((machine.name, posted))
            });
        }
        kubelets
    }

    /// Waits until one more has registered. Returns its name and when it posted its Node, or `None` when all
    /// have.
    pub(crate) async fn registered(&mut self) -> Option<anyhow::Result<(String, Instant)>> {
        let joined = self.starting.join_next().await?;
        Some(joined.context("a kubelet ended").flatten())
    }

    /// Stops the lease renewals of this kubelet.
    pub(crate) fn silence(&mut self, name: &str) {
        self.alive.remove(name);
    }
}

/// Posts the Node, then the first lease and the first report that the kubelet is ready.
async fn register(client: &Client, machine: &Machine) -> kube::Result<Instant> {
    let name = &machine.name;
    let posted = Instant::now();
    kubelet::register(client, &kubelet::node(name, &machine.uuid)).await?;
    kubelet::renew_lease(client, name).await?;
    kubelet::heartbeat(client, name, true).await?;
    control_plane::kubelet_is_ready(client, name).await?;
    Ok(posted)
}

async fn stay_alive(client: Client, name: String) {
    // Kubelets that start together drift apart: up to 4 % of the period with each renewal.
    let first = Instant::now() + LEASE_PERIOD.mul_f64(fastrand::f64());
    let mut ticks = tokio::time::interval_at(first, LEASE_PERIOD);
    loop {
        ticks.tick().await;
        if let Err(error) = kubelet::renew_lease(&client, &name).await {
            tracing::debug!(node = name, %error, "lease not renewed");
        }
    }
}

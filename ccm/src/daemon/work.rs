//! The controllers at work: which of them run, and how they end.

use std::time::Duration;

use component::inspection::Inspection;
use controller_kit::{clients::TermClients, cloud::Cloud};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Base, Work};
use crate::{
    controllers::{Build, Capability, ControllerContext, ControllerDescriptor, ControllerMetrics, name_of},
    flags::{ControllerNames, Flags},
};

/// How long writes under way may take when the daemon stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

impl Base {
    /// Runs those of the enabled controllers that `runs` picks until `stop` is cancelled. Then they finish what is under way,
    /// and their last events are written. A controller that ends by itself cancels `stop`. Dropping the future ends them at
    /// once. They write with `clients`.
    pub(super) async fn work(
        &self,
        flags: &Flags,
        runs: impl Fn(&str) -> bool,
        clients: &TermClients,
        stop: &CancellationToken,
    ) -> anyhow::Result<Work> {
        let mut controllers =
            self.controllers(flags, |name| flags.enables(name) && runs(name), clients, stop)?;
        let mut all_ended = true;
        let ended_early = tokio::select! {
            () = stop.cancelled() => false,
            Some(ended) = controllers.join_next() => {
                all_ended &= nothing_goes_on(ended);
                !stop.is_cancelled()
            }
        };
        stop.cancel();
        let drained = async {
            while let Some(ended) = controllers.join_next().await {
                all_ended &= nothing_goes_on(ended);
            }
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            all_ended = false;
            tracing::warn!("writes under way did not end within {DRAIN_TIMEOUT:?}");
        }
        // The controllers' events are written with the same clients, which end with the term.
        self.events.flush().await;
        Ok(Work { ended_early, all_ended })
    }

    fn controllers(
        &self,
        flags: &Flags,
        runs: impl Fn(&str) -> bool,
        clients: &TermClients,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinSet<cloudprovider::Result<()>>> {
        let mut controllers = JoinSet::new();
        let enabled = || self.table.iter().filter(|controller| runs(controller.names.name));
        self.tell_what_does_not_run(flags, enabled());
        let running = self.metrics.get::<ControllerMetrics>()?;
        let mut pause = Duration::ZERO;
        let clouds_of = |row: &ControllerDescriptor| {
            self.providers.of(row).iter().filter(|cloud| row.can_run_on(cloud)).collect::<Vec<_>>()
        };
        let each = enabled().flat_map(|row| match row.build {
            Build::Once(_) => vec![(row, None)],
            Build::OnCloud(_) => clouds_of(row).into_iter().map(|cloud| (row, Some(cloud))).collect(),
        });
        for (controller, cloud) in each {
            let provider = cloud.map(Cloud::name);
            let is_one_of_several = cloud.is_some() && clouds_of(controller).len() > 1;
            let of = provider.as_deref().filter(|_| is_one_of_several);
            let context = ControllerContext::new(
                controller,
                flags,
                of,
                (&self.nodes, &self.services),
                (&self.metrics, &self.health, &self.debug_state),
                &self.events,
                (clients, &self.clients.election),
            );
            let run = match (controller.build, cloud) {
                (Build::OnCloud(build), Some(cloud)) => build(context, cloud.clone())?,
                (Build::Once(build), _) => build(context)?,
                (Build::OnCloud(_), None) => continue,
            };
            let ControllerNames { name, alias, .. } = controller.names;
            let (name, alias, running) = (name_of(name, of), name_of(alias, of), running.clone());
            let (health, debug_state) = (self.health.clone(), self.debug_state.clone());
            let begin = move |stop| {
                let inspection = Inspection::register(&name, &health, &debug_state);
                let runs = running.runs(&alias);
                tracing::info!(controller = name, "started");
                async move {
                    let ended = run(stop, inspection).await;
                    drop(runs);
                    ended
                }
            };
            let stop = stop.clone();
            if controllers.is_empty() {
                controllers.spawn(begin(stop));
            } else {
                // Upstream pauses after each start, so the pauses add up.
                pause = pause.saturating_add(start_pause(flags));
                controllers.spawn(async move {
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                    // The health check is registered only here: a controller that does not run yet would
                    // not answer it and would count as hanging.
                    begin(stop).await
                });
            }
        }
        Ok(controllers)
    }

    /// Logs which of these controllers do not run, and why, and which a flag other than `--controllers` switches off.
    fn tell_what_does_not_run<'t>(
        &self,
        flags: &Flags,
        enabled: impl Iterator<Item = &'t ControllerDescriptor> + Clone,
    ) {
        for capability in Capability::ALL {
            let is_without = |row: &&ControllerDescriptor| {
                row.needs == Some(capability)
                    && !self.providers.of(row).iter().any(|cloud| row.can_run_on(cloud))
            };
            let without = enabled.clone().filter(is_without);
            let without = without.map(|row| row.names.name).collect::<Vec<_>>().join(", ");
            if !without.is_empty() {
                let what = capability.what();
                tracing::warn!(
                    controllers = without,
                    "not started: the cloud provider does not support {what}"
                );
            }
        }
        for controller in self.table.iter().map(|row| row.names.name) {
            if let Some(flag) = flags.switched_off_by(controller).filter(|flag| *flag != "--controllers") {
                tracing::info!(controller, "not started: {flag}");
            }
        }
    }
}

/// Whether nothing goes on of what a controller did that ended like this.
fn nothing_goes_on(ended: Result<cloudprovider::Result<()>, JoinError>) -> bool {
    match ended {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(error = error.report(), "what only a leader does may go on for some seconds");
            false
        }
        // After a panic nobody has ended what it did.
        Err(_) => false,
    }
}

/// `--controller-start-interval`, times a random number from 1 to 2 as upstream.
fn start_pause(flags: &Flags) -> Duration {
    let interval = flags.generic.controller_start_interval;
    interval.saturating_add(
        Duration::try_from_secs_f64(interval.as_secs_f64() * fastrand::f64()).unwrap_or_default(),
    )
}

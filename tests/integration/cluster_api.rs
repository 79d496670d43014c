//! Machines under Cluster API's own managers: core and kubeadm bootstrap, and clusterctl.

mod clusterctl;
mod contract;
mod e2e;
pub(crate) mod installed;
mod kubelets;
mod libvirt;
mod lifecycle;
pub(crate) mod management;
mod objects;
mod shipped;
mod vsphere;
mod workload;

use anyhow::Context;
use libtest_mimic::Trial;
use tokio::time::timeout;

pub(crate) use self::management::stop;

use self::management::Management;
use crate::trial::{LIMIT, Outcome, runtime, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let life =
        on_management("machines_live_and_die", "life", |management| Box::pin(lifecycle::life(management)));
    [life]
        .into_iter()
        .chain(clusterctl::trials())
        .chain(contract::trials())
        .chain(shipped::trials())
        .chain(e2e::trials())
        .chain(vsphere::trials())
        .collect()
}

/// Those with virtual machines, which take longer.
pub(crate) fn with_guests() -> Vec<Trial> {
    libvirt::trials()
}

/// A scenario on the management cluster. `namespace` is the one whose objects a failure is about.
fn on_management(
    name: &str,
    namespace: &'static str,
    scenario: for<'m> fn(&'m Management) -> futures::future::LocalBoxFuture<'m, anyhow::Result<()>>,
) -> Trial {
    trial(&format!("cluster_api::{name}"), move || -> Outcome {
        let management = Management::shared()?;
        let outcome = runtime(false)?.block_on(async {
            timeout(LIMIT, scenario(&management))
                .await
                .with_context(|| format!("not done within {LIMIT:?}"))?
        });
        Ok(outcome.with_context(|| format!("the managers said: {}", management.words_about(namespace)))?)
    })
}

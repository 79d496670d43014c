//! Machines under Cluster API's own managers: core and kubeadm bootstrap, and clusterctl.

pub(crate) mod clusterctl;
mod contract;
mod e2e;
pub(crate) mod installed;
pub(crate) mod kubelets;
mod libvirt;
pub(crate) mod life;
pub(crate) mod lifecycle;
pub(crate) mod management;
pub(crate) mod objects;
mod shipped;
mod vsphere;
pub(crate) mod workload;

use anyhow::Context;
use tokio::time::timeout;

pub(crate) use self::management::stop;

use self::management::Management;
use crate::{
    scenarios::Trials,
    trial::{LIMIT, runtime},
};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .on_management("machines_live_and_die", "life", lifecycle::life)
        .and(clusterctl::trials())
        .and(contract::trials())
        .and(shipped::trials())
        .and(e2e::trials())
        .and(vsphere::trials())
}

/// Those with virtual machines, which take longer.
pub(crate) fn with_guests() -> Trials {
    libvirt::trials()
}

impl Trials {
    /// A scenario on the management cluster. `namespace` is the one whose objects a failure is about.
    fn on_management(
        self,
        name: &str,
        namespace: &'static str,
        scenario: impl AsyncFnOnce(&Management) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.trial(&format!("cluster_api::{name}"), move || {
            let management = Management::shared()?;
            let outcome = runtime(false)?.block_on(async {
                timeout(LIMIT, scenario(&management))
                    .await
                    .with_context(|| format!("not done within {LIMIT:?}"))?
            });
            Ok(outcome
                .with_context(|| format!("the managers said: {}", management.words_about(namespace)))?)
        })
    }
}

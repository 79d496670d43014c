//! The status of a `KubeadmConfig`.

use cluster_api::{
    Cluster, KubeadmConfig,
    kubeadm::KubeadmConfigStatus,
    names::{annotations, conditions as types},
};
use kube::ResourceExt as _;
use lifecycle::conditions::{Merge, Part, Polarity, Reasons, Statement, Status, summary};

use crate::{
    core::is_cluster_paused,
    engine::conditions::{Conditions, paused},
};

/// How far the data are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// They wait for this.
    Waits(String),
    /// A certificate is missing, or is none.
    WithoutCertificates(String),
    /// They are in the Secret of this name.
    Available(String),
    /// Nothing is done, since it is paused.
    Paused,
}

pub(super) fn status(
    config: &KubeadmConfig,
    cluster: Option<&Cluster>,
    progress: &Progress,
    now: i64,
) -> KubeadmConfigStatus {
    let mut status = config.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, config.metadata.generation);
    let not_available = |message: &str| Statement::new(Status::False, "NotAvailable", message);
    let available = || Statement::new(Status::True, "Available", "");
    match progress {
        Progress::Waits(message) => {
            conditions.set(types::DATA_SECRET_AVAILABLE, not_available(message), now);
        }
        Progress::WithoutCertificates(message) => {
            let statement = Statement::new(Status::Unknown, "InternalError", message.as_str());
            conditions.set(types::CERTIFICATES_AVAILABLE, statement, now);
            conditions.set(types::DATA_SECRET_AVAILABLE, not_available("Waiting for certificates"), now);
        }
        Progress::Available(name) => {
            conditions.set(types::DATA_SECRET_AVAILABLE, available(), now);
            conditions.set(types::CERTIFICATES_AVAILABLE, available(), now);
            status.initialization.data_secret_created = Some(true);
            status.data_secret_name = Some(name.clone());
        }
        Progress::Paused => {}
    }
    let is_own = config.annotations().contains_key(annotations::PAUSED);
    conditions.set(types::PAUSED, paused("KubeadmConfig", is_cluster_paused(cluster), is_own), now);
    if *progress != Progress::Paused {
        let parts = [types::DATA_SECRET_AVAILABLE, types::CERTIFICATES_AVAILABLE]
            .map(|kind| Part::new(kind, Polarity::Positive));
        let reasons = Reasons { issue: "NotReady", unknown: "ReadyUnknown", info: "Ready" };
        if let Some(ready) = summary(&parts, conditions.all(), &Merge::positive(reasons)) {
            conditions.set(types::READY, ready, now);
        }
        status.observed_generation = config.metadata.generation;
    }
    status.conditions = conditions.write();
    status
}

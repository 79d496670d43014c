//! Cluster API's own controllers, in place of its managers.

use std::time::Duration;

use clap::Args;
use component::command_line::{
    format_duration,
    notes::{Note, ours},
    values::{duration, list},
};
use ipnet::IpNet;
use lifecycle_controllers::options::Patterns;
use serde_json::{Value, json};

/// What the controllers of Cluster API's own kinds do, and where workload clusters may be. The names are those of Cluster API's
/// managers, where these have such a flag.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Lifecycle flags")]
pub struct LifecycleFlags {
    /// Labels of Machines that lifecycle-core copies to Nodes, beside those that Cluster API always copies: regular
    /// expressions; one must match. Can be repeated.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "REGEX", value_parser = list)]
    pub additional_sync_machine_labels: std::vec::Vec<String>,

    /// Annotations of Machines that lifecycle-core copies to Nodes: regular expressions; one must match. Can be
    /// repeated.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "REGEX", value_parser = list)]
    pub additional_sync_machine_annotations: std::vec::Vec<String>,

    /// How long a token with which lifecycle-bootstrap lets a machine join is valid. It is renewed while the machine has
    /// not joined.
    #[arg(long, default_value = "15m", value_parser = duration, value_name = "DURATION")]
    pub bootstrap_token_ttl: Duration,

    /// Where the API servers of workload clusters may be. Users write these addresses into their clusters' kubeconfigs, and
    /// the daemon connects to them. Without this flag, everywhere but at loopback, link-local, multicast, unspecified
    /// and reserved addresses, and at the metadata of clouds. Can be repeated.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "CIDR", value_parser = list)]
    pub workload_cluster_cidrs: std::vec::Vec<String>,
}

const CORE: &str = "Upstream has no lifecycle controllers; Cluster API's core manager has this flag";

pub(super) const NOTES: &[Note] = &[
    ours("additional-sync-machine-labels", CORE),
    ours("additional-sync-machine-annotations", CORE),
    ours(
        "bootstrap-token-ttl",
        "Upstream has no lifecycle controllers; Cluster API's kubeadm bootstrap manager has this flag",
    ),
    ours("workload-cluster-cidrs", "Cluster API's managers connect to any address that a kubeconfig says"),
];

const LABELS: &str = "--additional-sync-machine-labels";
const ANNOTATIONS: &str = "--additional-sync-machine-annotations";
const CIDRS: &str = "--workload-cluster-cidrs";

/// kubeadm needs some time between the making of a token and the join.
const LEAST_TTL: Duration = Duration::from_secs(60);

impl LifecycleFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let of_flags = [
            Patterns::parse(LABELS, &self.additional_sync_machine_labels).err(),
            Patterns::parse(ANNOTATIONS, &self.additional_sync_machine_annotations).err(),
            self.workload_networks().err(),
        ];
        let mut faults: Vec<String> = of_flags.into_iter().flatten().flatten().collect();
        if self.bootstrap_token_ttl < LEAST_TTL {
            faults.push("--bootstrap-token-ttl must be at least 1m".to_owned());
        }
        faults
    }

    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        let value = json!({
            "AdditionalSyncMachineLabels": self.additional_sync_machine_labels,
            "AdditionalSyncMachineAnnotations": self.additional_sync_machine_annotations,
            "BootstrapTokenTTL": format_duration(self.bootstrap_token_ttl),
            "WorkloadClusterCIDRs": self.workload_cluster_cidrs,
        });
        ("Lifecycle", value)
    }

    /// The patterns for labels, and those for annotations. Values with faults count as none: [`faults`](Self::faults) names
    /// them, and the daemon does not start.
    pub(crate) fn patterns(&self) -> (Patterns, Patterns) {
        let read = |flag, values: &[String]| Patterns::parse(flag, values).unwrap_or_default();
        (
            read(LABELS, &self.additional_sync_machine_labels),
            read(ANNOTATIONS, &self.additional_sync_machine_annotations),
        )
    }

    /// Where the API servers of workload clusters may be. `None`: the flag is not given.
    ///
    /// # Errors
    /// Each value that is not a CIDR.
    pub(crate) fn workload_networks(&self) -> Result<Option<Vec<IpNet>>, Vec<String>> {
        let (mut networks, mut faults) = (Vec::new(), Vec::new());
        for value in &self.workload_cluster_cidrs {
            match value.parse::<IpNet>() {
                Ok(network) => networks.push(network),
                Err(_) => {
                    faults.push(format!("{CIDRS}: {value:?} is not a CIDR; expected one such as 10.0.0.0/8"));
                }
            }
        }
        if faults.is_empty() { Ok(Some(networks).filter(|all| !all.is_empty())) } else { Err(faults) }
    }
}

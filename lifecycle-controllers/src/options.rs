//! What the flags say to the controllers.

mod patterns;

use std::time::Duration;

use ipnet::IpNet;

pub use patterns::Patterns;

/// The options of all parts.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// `--namespace`: whose objects the controllers work on. `None`: those of all namespaces.
    pub namespace: Option<String>,
    /// `--watch-filter`: the value of the label `cluster.x-k8s.io/watch-filter` that objects need. `None`: none.
    pub watch_filter: Option<String>,
    /// `--sync-period`: how often an object to which nothing happens is reconciled.
    pub sync_period: Duration,
    /// `--additional-sync-machine-labels`: labels of Machines that their Nodes get beside Cluster API's own.
    pub additional_machine_labels: Patterns,
    /// `--additional-sync-machine-annotations`: the same for annotations.
    pub additional_machine_annotations: Patterns,
    /// `--bootstrap-token-ttl`: how long a token for joining is valid unless it is renewed.
    pub bootstrap_token_ttl: Duration,
    /// `--workload-cluster-cidrs`: where API servers of workload clusters may be. Users write these addresses. `None`:
    /// everywhere but at loopback, link-local, multicast, unspecified and reserved addresses, and at the metadata of clouds.
    pub workload_networks: Option<Vec<IpNet>>,
}

//! What every controller needs: the cloud, the API server, which controllers run.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use component::command_line::{
    FeatureGates,
    notes::{Note, differs, no_effect, no_effect_either, ours},
    values::{boolean, duration, duration_or_none, float, int32, list, path},
};
use controller_kit::nodes::protobuf::PROTOBUF;

use super::{controllers, known_gates::feature_gates};

/// The least rate that makes any sense: a request in 1,000 s.
const LEAST_QPS: f64 = 0.001;

/// Period of the comparison of routes without `--route-reconciliation-period`. Changes of Nodes do not wait for it.
const ROUTE_PERIOD: Duration = Duration::from_secs(300);

/// The gate that makes upstream follow changes of Nodes. It then ignores `--route-reconciliation-period`.
const WATCH_BASED_ROUTES: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";

/// The gate with which the cloud's additional labels replace those of others.
const ADDITIONAL_LABELS: &str = "CloudNodeAdditionalLabelsReconciliation";

/// The cloud, the API server, and which controllers run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub struct GenericFlags {
    /// The provider for cloud services; needed, unless --machine-provider is given or only lifecycle controllers run.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub cloud_provider: String,

    /// The provider's configuration file.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub cloud_config: std::option::Option<PathBuf>,

    /// The cluster's name, which providers may give to what they make in the cloud.
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    pub cluster_name: String,

    /// The controllers to run: '*' for all, 'foo' to run the one of that name, '-foo' not to. There are
    /// cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller and node-route-controller; their
    /// old names cloud-node, cloud-node-lifecycle, service and route do as well. machine-controller is not among those
    /// that '*' means: it runs with '*,machine-controller', or alone with 'machine-controller'. The same holds for
    /// lifecycle-core and lifecycle-bootstrap, which are both named by 'lifecycle'.
    #[arg(long, default_value = "*", value_name = "LIST", value_parser = list)]
    pub controllers: std::vec::Vec<String>,

    /// Requests per second to the API server, on average. Without this flag and --kube-api-burst there is no
    /// client-side limit; a negative number means none either. [upstream default: 20]
    #[arg(long, value_name = "N", value_parser = float)]
    pub kube_api_qps: Option<f64>,

    /// Requests to the API server that may exceed the average at once. [default with --kube-api-qps: 30]
    #[arg(long, value_name = "N", value_parser = int32)]
    pub kube_api_burst: Option<i32>,

    /// Content type in which Nodes are listed and watched: application/vnd.kubernetes.protobuf or application/json.
    #[arg(long, default_value = "application/vnd.kubernetes.protobuf", value_name = "TYPE")]
    pub kube_api_content_type: String,

    /// Use a service account of its own for each controller.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub use_service_account_credentials: bool,

    /// Period of a full comparison with the API server, of which there is no need here.
    #[arg(long, default_value = "12h0m0s", value_name = "DURATION", value_parser = duration_or_none)]
    pub min_resync_period: Duration,

    /// Pause between the starts of two controllers, times a random number from 1 to 2.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub controller_start_interval: Duration,

    /// Gates of features: name=true|false, comma-separated. docs/reference/flags.md lists them.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME=BOOL,...", value_parser = feature_gates)]
    pub feature_gates: FeatureGates,

    /// Give Nodes ranges of addresses for their pods.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub allocate_node_cidrs: bool,

    /// How those ranges are chosen.
    #[arg(long, default_value = "RangeAllocator", value_name = "TYPE")]
    pub cidr_allocator_type: String,

    /// The range of addresses for pods, or one of each family, comma-separated. The route controller needs it: only
    /// networks in there get routes.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "CIDR")]
    pub cluster_cidr: String,

    /// A Node whose IPv4 pod CIDR has a shorter prefix gets no route for it: the value of kube-controller-manager's flag of this name.
    /// With 0 any length will do.
    #[arg(long, default_value_t = 0, value_name = "BITS", value_parser = prefix_length::<32>)]
    pub node_cidr_mask_size_ipv4: u8,

    /// The same for IPv6.
    #[arg(long, default_value_t = 0, value_name = "BITS", value_parser = prefix_length::<128>)]
    pub node_cidr_mask_size_ipv6: u8,

    /// Run the route controller, which makes a route in the cloud for the pod addresses of each Node.
    #[arg(long, default_value = "true", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub configure_cloud_routes: bool,

    /// Period of the comparison of the cloud's routes with the Nodes, beside the comparison that each change of a Node
    /// causes at once. [default: 5m] [upstream default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub route_reconciliation_period: Option<Duration>,

    /// Deprecated: run although the cloud's instances carry no ID of the cluster.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean, hide = true)]
    pub allow_untagged_cloud: bool,

    /// A plugin for volumes, of which there is no use.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub external_cloud_volume_plugin: String,

    /// Deprecated: has no effect.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration, hide = true)]
    pub node_sync_period: Duration,
}

fn prefix_length<const MOST: u8>(text: &str) -> Result<u8, String> {
    let length = text.parse().ok().filter(|length| *length <= MOST);
    length.ok_or_else(|| format!("must be a whole number from 0 to {MOST}"))
}

const JSON: &str = "application/json";

pub(super) const NOTES: &[Note] = &[
    differs("kube-api-qps", "No limit unless this flag or --kube-api-burst asks for one; upstream: 20"),
    differs("kube-api-burst", "No limit unless this flag or --kube-api-qps asks for one; upstream: 30"),
    differs("kube-api-content-type", "For lists and watches of Nodes; everything else is JSON"),
    no_effect(
        "min-resync-period",
        "a watch that breaks is repaired by itself, and every Node is looked at in each period anyway",
    ),
    no_effect_either("external-cloud-volume-plugin", "Upstream does nothing with it either"),
    no_effect_either("cidr-allocator-type", "For providers that allocate the ranges; none here does"),
    no_effect_either("allow-untagged-cloud", "Deprecated. No provider here needs a cluster ID"),
    no_effect_either("node-sync-period", "Deprecated. Upstream does nothing with it either"),
    no_effect_either("allocate-node-cidrs", "For providers that allocate the ranges; none here does"),
    ours("node-cidr-mask-size-ipv4", "Upstream makes a route for a pod CIDR of any size"),
    ours("node-cidr-mask-size-ipv6", "Upstream makes a route for a pod CIDR of any size"),
    differs(
        "route-reconciliation-period",
        "Changes of Nodes are followed at once, so without this flag all routes are compared every 5m; upstream: 10s. The gate `CloudControllerManagerWatchBasedRoutesReconciliation` makes 5m of any value",
    ),
];

impl GenericFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.kube_api_qps.is_some_and(|qps| !qps.is_finite() || (qps > 0.0 && qps < LEAST_QPS)) {
            faults.push(format!(
                "--kube-api-qps must be a number, at least {LEAST_QPS} or negative for no limit"
            ));
        }
        if self.route_reconciliation_period.is_some_and(|period| period.is_zero()) {
            faults.push("--route-reconciliation-period must be greater than 0".to_owned());
        }
        faults.extend(controllers::faults(&self.controllers));
        faults
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.feature_gates.warnings();
        if self.route_reconciliation_period.is_some() && self.has_watch_based_routes() {
            warnings.push(format!(
                "--route-reconciliation-period has no effect with the feature gate {WATCH_BASED_ROUTES}, as in upstream: routes are compared every 5m, and when a Node changes"
            ));
        }
        let content_type = &self.kube_api_content_type;
        if ![PROTOBUF, JSON].contains(&content_type.as_str()) {
            warnings.push(format!(
                "--kube-api-content-type={content_type}: not spoken here, so it is {JSON}; {PROTOBUF} would be the other one"
            ));
        }
        warnings
    }

    /// Whether the cloud's value replaces another client's value of an additional label.
    pub fn has_additional_labels_reconciled(&self) -> bool {
        self.feature_gates.enabled(ADDITIONAL_LABELS)
    }

    fn has_watch_based_routes(&self) -> bool {
        self.feature_gates.enabled(WATCH_BASED_ROUTES)
    }

    /// Period of the comparison of all routes, beside the comparisons that changes of Nodes cause.
    pub fn route_period(&self) -> Duration {
        self.route_reconciliation_period.filter(|_| !self.has_watch_based_routes()).unwrap_or(ROUTE_PERIOD)
    }

    /// Average rate and burst of requests to the API server. `None`: no limit.
    pub fn request_limit(&self) -> Option<(f64, u32)> {
        if self.kube_api_qps.is_none() && self.kube_api_burst.is_none() {
            return None;
        }
        // Upstream's defaults for a flag that is not given while the other is; client-go's for a zero.
        let qps = match self.kube_api_qps {
            None => 20.0,
            Some(0.0) => 5.0,
            Some(qps) => qps,
        };
        let burst = match self.kube_api_burst {
            None => 30,
            Some(burst) if burst <= 0 => 10,
            Some(burst) => burst,
        };
        (qps > 0.0).then(|| (qps, u32::try_from(burst).unwrap_or(u32::MAX)))
    }
}

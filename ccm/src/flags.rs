//! The command line: upstream's flags with upstream's defaults, where the daemon has the part that they concern.

mod leader_election;

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use cloudprovider::parse_duration;

pub use leader_election::LeaderElectionFlags;

/// The controllers: canonical name and the alias of before 1.28.
const CONTROLLERS: [(&str, &str); 4] = [
    (NODE_CONTROLLER, "cloud-node"),
    (NODE_LIFECYCLE_CONTROLLER, "cloud-node-lifecycle"),
    ("service-lb-controller", "service"),
    ("node-route-controller", "route"),
];

/// The least rate that makes any sense: a request in 1,000 s.
const LEAST_QPS: f64 = 0.001;

/// Fills new Nodes in.
pub const NODE_CONTROLLER: &str = "cloud-node-controller";
/// Taints and deletes Nodes.
pub const NODE_LIFECYCLE_CONTROLLER: &str = "cloud-node-lifecycle-controller";

/// Runs the cloud-specific controllers of a Kubernetes cluster: initialises Nodes whose kubelets run with
/// --cloud-provider=external, and removes Nodes whose instances are gone.
#[derive(Clone, Debug, Parser)]
#[command(name = "cloud-controller-manager", version, args_override_self = true, max_term_width = 110)]
pub struct Flags {
    /// The provider for cloud services.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub cloud_provider: String,

    /// The path to the cloud provider configuration file. Empty string for no configuration file.
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,

    /// The instance prefix for the cluster.
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    pub cluster_name: String,

    /// A list of controllers to enable. '*' enables all on-by-default controllers, 'foo' enables the controller named
    /// 'foo', '-foo' disables it.
    #[arg(long, default_value = "*", value_delimiter = ',', allow_hyphen_values = true, value_name = "LIST")]
    pub controllers: Vec<String>,

    /// Path to kubeconfig file with authorization and API server location. With neither this nor --master the
    /// configuration of the cluster that runs this pod is used.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The address of the Kubernetes API server (overrides any value in kubeconfig).
    #[arg(long, default_value = "", value_name = "URL")]
    pub master: String,

    /// Requests per second to the API server, on average. Without this flag and --kube-api-burst there is no
    /// client-side limit; a negative number means none either. [upstream default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub kube_api_qps: Option<f64>,

    /// Requests to the API server that may exceed the average at once. [default with --kube-api-qps: 30]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub kube_api_burst: Option<i64>,

    /// How many Nodes are initialised or updated at the same time. [upstream default: 1]
    #[arg(long, default_value_t = 16, value_name = "N", allow_negative_numbers = true)]
    pub concurrent_node_syncs: i64,

    /// Period of the comparison of all Nodes' addresses and labels with the cloud.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub node_status_update_frequency: Duration,

    /// Period of the comparison of all Nodes' existence and power state with the cloud.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub node_monitor_period: Duration,

    /// Time between the two answers of the cloud that an instance is gone, which a deletion of its Node asks for.
    /// [default: one node monitor period, at least 5s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub node_deletion_grace_period: Option<Duration>,

    /// A Node that is younger is not deleted.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub node_deletion_minimum_age: Duration,

    /// Deletions stop while more than this many Nodes, and more than --node-deletion-breaker-percent, have no
    /// instance.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub node_deletion_breaker_count: usize,

    /// See --node-deletion-breaker-count. 100 switches the breaker off.
    #[arg(long, default_value_t = 20, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub node_deletion_breaker_percent: u8,

    /// The leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionFlags,

    /// Verbosity of the log: 0 to 3 is what an operator needs, 4 and 5 add debugging, 6 and more everything.
    #[arg(short, long = "v", default_value_t = 0, value_name = "LEVEL", allow_negative_numbers = true)]
    pub v: i32,
}

/// Reads a command line; underscores in flag names count as hyphens, as with upstream.
///
/// # Errors
/// Clap's, which are help and version texts too.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Flags, clap::Error> {
    let with_hyphens = |arg: String| match arg.strip_prefix("--") {
        Some(flag) => {
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
        }
        None => arg,
    };
    Flags::try_parse_from(args.into_iter().map(with_hyphens))
}

impl Flags {
    /// Everything that is wrong with the values, each fault with its flag.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.cloud_provider.is_empty() {
            faults.push("--cloud-provider cannot be empty".to_owned());
        }
        if self.concurrent_node_syncs <= 0 {
            faults.push(format!(
                "--concurrent-node-syncs must be greater than 0, but is {}",
                self.concurrent_node_syncs
            ));
        }
        for (flag, period) in [
            ("--node-status-update-frequency", self.node_status_update_frequency),
            ("--node-monitor-period", self.node_monitor_period),
        ] {
            if period.is_zero() {
                faults.push(format!("{flag} must be greater than 0"));
            }
        }
        if self.kube_api_qps.is_some_and(|qps| !qps.is_finite() || (qps > 0.0 && qps < LEAST_QPS)) {
            faults.push(format!(
                "--kube-api-qps must be a number, at least {LEAST_QPS} or negative for no limit"
            ));
        }
        // An empty list is upstream's way to run nothing.
        for name in self.controllers.iter().filter(|name| !name.is_empty()) {
            let bare = name.strip_prefix('-').unwrap_or(name);
            if name != "*" && !CONTROLLERS.iter().any(|(known, alias)| bare == *known || bare == *alias) {
                faults.push(format!("\"{bare}\" is not in the list of known controllers"));
            }
        }
        faults.extend(self.leader_election.faults());
        faults
    }

    /// Whether `--controllers` enables the controller of this canonical name: the first exact `name` or `-name`
    /// decides, else a `*` anywhere.
    pub fn enables(&self, controller: &str) -> bool {
        let names = || {
            self.controllers.iter().map(|name| {
                let (off, bare) = name.strip_prefix('-').map_or((false, name.as_str()), |bare| (true, bare));
                let canonical =
                    CONTROLLERS.iter().find(|(_, alias)| *alias == bare).map_or(bare, |(name, _)| *name);
                (off, canonical)
            })
        };
        match names().find(|(_, name)| *name == controller) {
            Some((off, _)) => !off,
            None => names().any(|name| name == (false, "*")),
        }
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

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration such as 5s, 1m30s or 500ms".to_owned())
}

/// A boolean in one of the spellings that Go's flags accept.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn flags(args: &[&str]) -> Flags {
        parse(["ccm"].iter().chain(args).map(|arg| (*arg).to_owned())).expect("a good command line")
    }

    #[test]
    fn the_command_line_is_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn upstreams_spellings() {
        let flags = flags(&[
            "--cloud_provider=libvirt",
            "--node_monitor_period",
            "1m30s",
            "-v=4",
            "--cloud-provider=a_b",
            "--kube-api-qps=5.5",
        ]);
        assert_eq!(flags.cloud_provider, "a_b", "the last one wins, values are left alone");
        assert_eq!(flags.node_monitor_period, Duration::from_secs(90));
        assert_eq!(flags.v, 4);
        assert_eq!(flags.request_limit(), Some((5.5, 30)));
    }

    #[test]
    fn all_faults_at_once() {
        let faults =
            flags(&["--concurrent-node-syncs=0", "--controllers=*,-nope", "--node-monitor-period=0s"])
                .faults();
        assert_eq!(
            faults,
            [
                "--cloud-provider cannot be empty",
                "--concurrent-node-syncs must be greater than 0, but is 0",
                "--node-monitor-period must be greater than 0",
                "\"nope\" is not in the list of known controllers",
            ]
        );
    }

    #[test]
    fn controllers_by_name_alias_and_star() {
        for (list, node, lifecycle) in [
            ("*", true, true),
            ("", false, false),
            ("*,-cloud-node", false, true),
            ("-cloud-node-controller,*", false, true),
            ("cloud-node-lifecycle", false, true),
            ("cloud-node,-cloud-node", true, false),
        ] {
            let flags = flags(&["--cloud-provider=x", &format!("--controllers={list}")]);
            assert_eq!(flags.faults(), Vec::<String>::new(), "{list}");
            assert_eq!(flags.enables(NODE_CONTROLLER), node, "{list}");
            assert_eq!(flags.enables(NODE_LIFECYCLE_CONTROLLER), lifecycle, "{list}");
        }
    }

    #[test]
    fn no_limit_unless_asked_for() {
        assert_eq!(flags(&[]).request_limit(), None);
        assert_eq!(flags(&["--kube-api-burst=7"]).request_limit(), Some((20.0, 7)));
        assert_eq!(flags(&["--kube-api-qps=-1"]).request_limit(), None);
        assert_eq!(flags(&["--kube-api-qps=0"]).request_limit(), Some((5.0, 30)));
        assert_eq!(flags(&["--kube-api-burst=0"]).request_limit(), Some((20.0, 10)));
        assert_eq!(flags(&["--cloud-provider=x", "--kube-api-qps=1e-300"]).faults().len(), 1);
    }
}

//! `/configz`: the flags as upstream's `CloudControllerManagerConfiguration`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::flags::Flags;

/// The document, in upstream's shape: most keys are names of Go fields, durations are texts.
pub(super) fn configz(flags: &Flags) -> Value {
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let generic = &flags.generic;
    let election = &flags.leader_election;
    // A list that was not given is no list in Go.
    let webhooks = Some(&flags.webhook.webhooks).filter(|webhooks| !webhooks.is_empty());
    json!({
        "cloudcontrollermanager.config.k8s.io": {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "Generic": {
                "Port": 0,
                "Address": "0.0.0.0",
                "MinResyncPeriod": duration(generic.min_resync_period),
                "ClientConnection": {
                    "kubeconfig": path(&flags.misc.kubeconfig),
                    "acceptContentTypes": "",
                    "contentType": generic.kube_api_content_type,
                    "qps": generic.request_limit().map_or(-1.0, |(qps, _)| qps),
                    "burst": generic.request_limit().map_or(0, |(_, burst)| burst),
                },
                "ControllerStartInterval": duration(generic.controller_start_interval),
                "LeaderElection": {
                    "leaderElect": election.enabled,
                    "leaseDuration": duration(election.lease_duration),
                    "renewDeadline": duration(election.renew_deadline),
                    "retryPeriod": duration(election.retry_period),
                    "resourceLock": election.resource_lock,
                    "resourceName": election.resource_name,
                    "resourceNamespace": election.resource_namespace,
                },
                "Controllers": generic.controllers,
                "Debugging": {
                    "enableProfiling": flags.debugging.profiling,
                    "enableContentionProfiling": flags.debugging.contention_profiling,
                },
                "LeaderMigrationEnabled": flags.leader_migration.enable_leader_migration,
                "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": null},
            },
            "KubeCloudShared": {
                "CloudProvider": {
                    "Name": generic.cloud_provider,
                    "CloudConfigFile": path(&generic.cloud_config),
                },
                "ExternalCloudVolumePlugin": generic.external_cloud_volume_plugin,
                "UseServiceAccountCredentials": generic.use_service_account_credentials,
                "AllowUntaggedCloud": generic.allow_untagged_cloud,
                "RouteReconciliationPeriod": duration(generic.route_reconciliation_period),
                "NodeMonitorPeriod": duration(generic.node_monitor_period),
                "ClusterName": generic.cluster_name,
                "ClusterCIDR": generic.cluster_cidr,
                "AllocateNodeCIDRs": generic.allocate_node_cidrs,
                "CIDRAllocatorType": generic.cidr_allocator_type,
                "ConfigureCloudRoutes": generic.configure_cloud_routes,
                "NodeSyncPeriod": duration(generic.node_sync_period),
            },
            "NodeController": {
                "ConcurrentNodeSyncs": flags.cloud_node_controller.concurrent_node_syncs,
                // As upstream, which shows what 0 stands for.
                "ConcurrentNodeStatusUpdates": flags.cloud_node_controller.status_updates(),
            },
            "ServiceController": {
                "ConcurrentServiceSyncs": flags.service_lb_controller.concurrent_service_syncs,
            },
            "NodeStatusUpdateFrequency": duration(flags.misc.node_status_update_frequency),
            "Webhook": {"Webhooks": webhooks},
        }
    })
}

/// As Go writes durations: `1h0m0s`, `1.5s`, `100ms`.
fn duration(duration: Duration) -> String {
    let with_fraction = |whole: u128, fraction: u128, digits: usize, unit: &str| {
        let fraction = format!("{fraction:0digits$}");
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { format!("{whole}{unit}") } else { format!("{whole}.{fraction}{unit}") }
    };
    let nanos = duration.as_nanos();
    match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => return with_fraction(nanos / 1_000, nanos % 1_000, 3, "µs"),
        1_000_000..1_000_000_000 => return with_fraction(nanos / 1_000_000, nanos % 1_000_000, 6, "ms"),
        _ => {}
    }
    let seconds = duration.as_secs();
    let rest = with_fraction(u128::from(seconds % 60), u128::from(duration.subsec_nanos()), 9, "s");
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => rest,
        (0, minutes) => format!("{minutes}m{rest}"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (10_000_000_000, "10s"),
            (60_000_000_000, "1m0s"),
            (90_250_000_000, "1m30.25s"),
            (43_200_000_000_000, "12h0m0s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }
}

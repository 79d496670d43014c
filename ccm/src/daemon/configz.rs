//! `/configz`: the flags as upstream's `CloudControllerManagerConfiguration`.

use component::command_line::format_duration;
use serde_json::{Value, json};

use crate::flags::Flags;

/// What upstream's document is called.
const NAME: &str = "cloudcontrollermanager.config.k8s.io";

/// The document, in upstream's shape: most keys are names of Go fields, durations are texts.
pub(super) fn configz(flags: &Flags) -> Value {
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let generic = &flags.generic;
    let election = &flags.leader_election;
    // Go prints an unset list as `null`.
    let webhooks = Some(&flags.webhook.webhooks).filter(|webhooks| !webhooks.is_empty());
    let mut configz = json!({
        NAME: {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
            "Generic": {
                "Port": 0,
                "Address": "0.0.0.0",
                "MinResyncPeriod": format_duration(generic.min_resync_period),
                "ClientConnection": {
                    "kubeconfig": path(&flags.misc.kubeconfig),
                    "acceptContentTypes": "",
                    "contentType": generic.kube_api_content_type,
                    "qps": generic.request_limit().map_or(-1.0, |(qps, _)| qps),
                    "burst": generic.request_limit().map_or(0, |(_, burst)| burst),
                },
                "ControllerStartInterval": format_duration(generic.controller_start_interval),
                "LeaderElection": {
                    "leaderElect": election.enabled,
                    "leaseDuration": format_duration(election.lease_duration),
                    "renewDeadline": format_duration(election.renew_deadline),
                    "retryPeriod": format_duration(election.retry_period),
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
                "RouteReconciliationPeriod": format_duration(generic.route_period()),
                "ClusterName": generic.cluster_name,
                "ClusterCIDR": generic.cluster_cidr,
                "AllocateNodeCIDRs": generic.allocate_node_cidrs,
                "CIDRAllocatorType": generic.cidr_allocator_type,
                "ConfigureCloudRoutes": generic.configure_cloud_routes,
                "NodeSyncPeriod": format_duration(generic.node_sync_period),
            },
            "NodeStatusUpdateFrequency": format_duration(flags.misc.node_status_update_frequency),
            "Webhook": {"Webhooks": webhooks},
        }
    });
    for (place, section) in flags.controllers.configz() {
        configz[NAME][place] = section;
    }
    configz
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_has_its_place() {
        let arguments = ["ccm", "--cloud-provider=x", "--node-monitor-period=90s"];
        let configz = configz(&crate::flags::parse(arguments).expect("good flags"));
        let document = &configz["cloudcontrollermanager.config.k8s.io"];
        assert_eq!(
            document["NodeLifecycleController"],
            json!({"NodeMonitorPeriod": "1m30s", "ConcurrentNodeLifecycleSyncs": 16})
        );
        assert!(document["KubeCloudShared"].get("NodeMonitorPeriod").is_none());
    }
}

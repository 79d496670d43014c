//! The pods: a DaemonSet, or a Deployment where the number of replicas is given.

use serde_json::{Value, json};

use crate::flags::Flags;

use super::{
    options::{CloudConfig, ManifestOptions, Mount, has_no_election, labels, selector},
    webhook,
};

/// The user ID of the image.
const USER: u32 = 65_532;

/// The paths that the probes request.
pub(super) const PROBED: [&str; 2] = [LIVE, READY];
const LIVE: &str = "/livez";
const READY: &str = "/readyz";

/// The name of the container's port.
pub(super) const PORT_NAME: &str = "https";

/// Seconds between SIGTERM and SIGKILL. The daemon takes less: ten seconds for writes under way, and a little
/// more for the Lease and the last events.
pub(super) const GRACE_PERIOD: u32 = 30;

pub(super) fn workload(options: &ManifestOptions, flags: &Flags) -> Value {
    let template = json!({
        "metadata": {"labels": labels(options)},
        "spec": pod(options, flags),
    });
    let metadata = json!({
        "name": options.name,
        "namespace": options.namespace,
        "labels": labels(options),
    });
    match options.replicas {
        None => json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": selector(options)},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "template": template,
            },
        }),
        Some(replicas) => json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": selector(options)},
                "strategy": strategy(options, flags),
                "template": template,
            },
        }),
    }
}

fn strategy(options: &ManifestOptions, flags: &Flags) -> Value {
    if has_no_election(flags) {
        return json!({
            "#": "Nothing but this keeps two pods from working at the same time.",
            "type": "Recreate",
        });
    }
    if !options.host_network {
        return json!({"type": "RollingUpdate"});
    }
    json!({
        "#": "Each pod has its node's port: a new one needs the place of an old one.",
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    })
}

fn pod(options: &ManifestOptions, flags: &Flags) -> Value {
    let mut spec = json!({
        "serviceAccountName": options.name,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": GRACE_PERIOD,
        "affinity": affinity(options),
        "tolerations": tolerations(),
        "securityContext": user(options),
        "containers": [container(options, flags)],
    });
    if options.host_network {
        spec["hostNetwork"] = json!(true);
        // The cluster's DNS cannot run before the Nodes are initialised.
        spec["dnsPolicy"] = json!("Default");
    }
    if !options.image_pull_secrets.is_empty() {
        let names = options.image_pull_secrets.iter().map(|name| json!({"name": name}));
        spec["imagePullSecrets"] = names.collect();
    }
    let volumes: Vec<Value> = options.mounts().iter().filter_map(volume).collect();
    if !volumes.is_empty() {
        spec["volumes"] = json!(volumes);
    }
    spec
}

fn user(options: &ManifestOptions) -> Value {
    let mut context = json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if options.host_network_admin {
        context["#"] = json!("Kubernetes gives capabilities to root alone.");
        context["runAsNonRoot"] = json!(false);
        context["runAsUser"] = json!(0);
    }
    context
}

fn capabilities(options: &ManifestOptions) -> Value {
    let mut capabilities = json!({"drop": ["ALL"]});
    if options.host_network_admin {
        capabilities["add"] = json!(["NET_ADMIN", "NET_RAW"]);
    }
    capabilities
}

fn affinity(options: &ManifestOptions) -> Value {
    let mut affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{
                    "matchExpressions": [{
                        "#": "The label's value differs: empty with kubeadm, \"true\" with k3s and RKE2.",
                        "key": "node-role.kubernetes.io/control-plane",
                        "operator": "Exists",
                    }],
                }],
            },
        },
    });
    if options.replicas.is_some() {
        let apart = json!({
            "labelSelector": {"matchLabels": selector(options)},
            "topologyKey": "kubernetes.io/hostname",
        });
        affinity["podAntiAffinity"] = if options.host_network {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [apart]})
        } else {
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]})
        };
    }
    affinity
}

fn tolerations() -> Value {
    json!([
        {
            "#": "Only this pod removes these two.",
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "operator": "Exists",
        },
        {"key": "node.cloudprovider.kubernetes.io/shutdown", "operator": "Exists"},
        {
            "#": "The pod network may wait for addresses that only this pod writes.",
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
        },
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
        {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"},
        {
            "#": "Control-plane nodes.",
            "key": "node-role.kubernetes.io/control-plane",
            "operator": "Exists",
        },
        {"key": "node-role.kubernetes.io/master", "operator": "Exists"},
        {"key": "node-role.kubernetes.io/etcd", "operator": "Exists"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
    ])
}

fn container(options: &ManifestOptions, flags: &Flags) -> Value {
    let mut container = json!({
        "name": "cloud-controller-manager",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(options),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": capabilities(options),
        },
    });
    let ports =
        [(PORT_NAME, flags.secure_serving.port()), (webhook::PORT_NAME, webhook::port(options, flags))];
    let ports = ports.into_iter().filter_map(|(name, port)| Some((name, port?)));
    let ports = ports.map(|(name, port)| json!({"name": name, "containerPort": port, "protocol": "TCP"}));
    let ports: Vec<Value> = ports.collect();
    if !ports.is_empty() {
        container["ports"] = ports.into();
    }
    if flags.secure_serving.port().is_some() {
        container["startupProbe"] = probe(options, LIVE, 2, 2, 30);
        container["livenessProbe"] = probe(options, LIVE, 10, 5, 6);
        let ready = format!("{READY}{}", webhook::readiness_query(options, flags));
        container["readinessProbe"] = probe(options, &ready, 5, 5, 3);
    }
    let mounts = options.mounts();
    if !mounts.is_empty() {
        let mount = |one: &Mount<'_>| json!({"name": one.volume, "mountPath": one.folder, "readOnly": true});
        container["volumeMounts"] = mounts.iter().map(mount).collect();
    }
    if let Some((host, port)) = &options.api_server {
        container["env"] = json!([
            {
                "#": "In place of the Service \"kubernetes\", for which kube-proxy has to work first.",
                "name": "KUBERNETES_SERVICE_HOST",
                "value": host,
            },
            {"name": "KUBERNETES_SERVICE_PORT", "value": port.to_string()},
        ]);
    }
    container
}

fn probe(options: &ManifestOptions, path: &str, period: u32, timeout: u32, failures: u32) -> Value {
    let mut get = json!({"path": path, "port": PORT_NAME, "scheme": "HTTPS"});
    if options.host_network {
        // A pod that started before its node had addresses may have none itself.
        get["host"] = json!("127.0.0.1");
    }
    json!({
        "httpGet": get,
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    })
}

fn arguments(options: &ManifestOptions) -> Vec<String> {
    let mut arguments = options.provider_arguments();
    arguments.extend(options.arguments.iter().cloned());
    arguments
}

fn volume(mount: &Mount<'_>) -> Option<Value> {
    // 0440 in octal. Only the group that `fsGroup` gives to the files can read them.
    const MODE: u32 = 0o440;
    match mount.cloud_config {
        CloudConfig::None => None,
        CloudConfig::Secret { name, .. } | CloudConfig::Content { secret: name, .. } => {
            Some(json!({"name": mount.volume, "secret": {"secretName": name, "defaultMode": MODE}}))
        }
        CloudConfig::ConfigMap { name, .. } => {
            Some(json!({"name": mount.volume, "configMap": {"name": name, "defaultMode": MODE}}))
        }
    }
}

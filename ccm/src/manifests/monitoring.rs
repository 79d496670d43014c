//! What the Prometheus operator needs to read `/metrics`.

use serde_json::{Value, json};

use super::{ManifestOptions, labels, selector, workload::PORT_NAME};

/// A Service without an address of its own, which lists the pods, and the ServiceMonitor that reads them. Prometheus
/// needs `get` on the non-resource URL `/metrics`.
pub(super) fn service_monitor(options: &ManifestOptions) -> [Value; 2] {
    let metadata = json!({"name": options.name, "namespace": options.namespace, "labels": labels(options)});
    [
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",
                "selector": selector(options),
                "ports": [{"name": PORT_NAME, "port": 10258, "targetPort": PORT_NAME, "protocol": "TCP"}],
            },
        }),
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": selector(options)},
                "endpoints": [{
                    "port": PORT_NAME,
                    "scheme": "https",
                    "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                    "tlsConfig": {
                        "#": "The certificate is self-signed unless --tls-cert-file names another one.",
                        "insecureSkipVerify": true,
                    },
                }],
            },
        }),
    ]
}

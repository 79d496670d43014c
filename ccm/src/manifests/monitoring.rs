//! What the Prometheus operator needs to read `/metrics`.

use serde_json::{Value, json};

use super::{
    options::{CaObject, ManifestOptions, MonitorAccess, labels, selector},
    workload::PORT_NAME,
};

/// Where Prometheus has the token of its service account.
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A headless Service, which lists the pods, and the ServiceMonitor that scrapes them. If Prometheus sends a
/// token, it needs `get` on the non-resource URL `/metrics`.
pub(super) fn service_monitor(options: &ManifestOptions) -> [Value; 2] {
    let metadata = json!({"name": options.name, "namespace": options.namespace, "labels": labels(options)});
    let mut endpoint = json!({"port": PORT_NAME, "scheme": "https"});
    match &options.monitor_access {
        MonitorAccess::NoToken => {
            endpoint["tlsConfig"] = json!({
                "#": "The certificate is self-signed, so nobody knows who answers, and no token is shown.",
                "insecureSkipVerify": true,
            });
        }
        MonitorAccess::Verified { ca, server_name } => {
            let ca = match ca {
                CaObject::Secret { name, key } => json!({"secret": {"name": name, "key": key}}),
                CaObject::ConfigMap { name, key } => json!({"configMap": {"name": name, "key": key}}),
            };
            let service = format!("{}.{}.svc", options.name, options.namespace);
            let server_name = if server_name.is_empty() { &service } else { server_name };
            endpoint["bearerTokenFile"] = TOKEN_FILE.into();
            endpoint["tlsConfig"] = json!({"ca": ca, "serverName": server_name});
        }
        MonitorAccess::Unverified => {
            endpoint["bearerTokenFile"] = TOKEN_FILE.into();
            endpoint["tlsConfig"] = json!({
                "#": "Whoever answers gets Prometheus' token: this was asked for.",
                "insecureSkipVerify": true,
            });
        }
    }
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
            "spec": {"selector": {"matchLabels": selector(options)}, "endpoints": [endpoint]},
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(access: MonitorAccess) -> Value {
        let options = ManifestOptions { monitor_access: access, ..ManifestOptions::new("libvirt") };
        service_monitor(&options)[1]["spec"]["endpoints"][0].clone()
    }

    #[test]
    fn a_token_goes_to_nobody_who_was_not_verified_unless_that_is_asked_for() {
        let none = endpoint(MonitorAccess::default());
        assert!(none.get("bearerTokenFile").is_none(), "{none}");
        for (ca, expected) in [
            (
                CaObject::Secret { name: "s".into(), key: "ca.crt".into() },
                json!({"secret": {"name": "s", "key": "ca.crt"}}),
            ),
            (
                CaObject::ConfigMap { name: "c".into(), key: "k".into() },
                json!({"configMap": {"name": "c", "key": "k"}}),
            ),
        ] {
            for (server_name, expected_name) in
                [("", "cloud-controller-manager.kube-system.svc"), ("ccm.example.org", "ccm.example.org")]
            {
                let verified =
                    endpoint(MonitorAccess::Verified { ca: ca.clone(), server_name: server_name.into() });
                assert_eq!(verified["bearerTokenFile"], TOKEN_FILE);
                assert_eq!(verified["tlsConfig"], json!({"ca": expected, "serverName": expected_name}));
            }
        }
        let unverified = endpoint(MonitorAccess::Unverified);
        assert_eq!(unverified["bearerTokenFile"], TOKEN_FILE);
        assert_eq!(unverified["tlsConfig"]["insecureSkipVerify"], true);
    }
}

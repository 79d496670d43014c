//! Which changes of a Service the cloud has to know of.

use controller_kit::services::Service;

/// Whether a load balancer has to be ensured again because `old`, which the cloud was told last, is `new` now. Upstream's
/// rule: status, labels, selector, cluster IPs and the order of IP families do not matter.
pub(super) fn needs_update(old: &Service, new: &Service) -> bool {
    let (a, b) = (&old.content, &new.content);
    a.uid != b.uid
        || a.load_balancer_source_ranges != b.load_balancer_source_ranges
        || a.ports != b.ports
        || a.session_affinity != b.session_affinity
        || a.load_balancer_ip != b.load_balancer_ip
        || a.external_ips != b.external_ips
        || a.annotations != b.annotations
        || a.external_traffic_policy != b.external_traffic_policy
        || a.health_check_node_port != b.health_check_node_port
        || a.ip_families.len() != b.ip_families.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service() -> Value {
        json!({
            "metadata": {"namespace": "a", "name": "b", "uid": "u", "annotations": {"k": "v"}, "labels": {"l": "1"}},
            "spec": {
                "type": "LoadBalancer",
                "ports": [
                    {"name": "x", "port": 1, "protocol": "TCP", "nodePort": 30001, "targetPort": 8080, "appProtocol": "http"},
                    {"name": "y", "port": 2},
                ],
                "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4", "IPv6"],
                "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.0.0/16"], "externalIPs": ["192.0.2.1", "192.0.2.2"],
                "loadBalancerIP": "192.0.2.3", "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 30002,
                "allocateLoadBalancerNodePorts": true, "internalTrafficPolicy": "Cluster", "selector": {"app": "b"},
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}]}},
        })
    }

    #[test]
    fn every_field() {
        let old = Service::from_json(service());
        assert!(!needs_update(&old, &old));
        for (place, value, matters) in [
            ("/metadata/uid", json!("other"), true),
            ("/metadata/annotations/k", json!("w"), true),
            ("/metadata/annotations", json!(null), true),
            ("/metadata/labels/l", json!("2"), false),
            ("/spec/ports/0/name", json!("z"), true),
            ("/spec/ports/0/port", json!(3), true),
            ("/spec/ports/0/protocol", json!("UDP"), true),
            ("/spec/ports/0/nodePort", json!(30003), true),
            ("/spec/ports/0/targetPort", json!("web"), true),
            ("/spec/ports/0/appProtocol", json!(null), true),
            ("/spec/ports", json!([{"name": "y", "port": 2}]), true),
            ("/spec/loadBalancerSourceRanges", json!(["192.168.0.0/16", "10.0.0.0/8"]), true),
            ("/spec/loadBalancerSourceRanges", json!(null), true),
            ("/spec/externalIPs", json!(["192.0.2.2", "192.0.2.1"]), true),
            ("/spec/externalIPs", json!(["192.0.2.1"]), true),
            ("/spec/loadBalancerIP", json!("192.0.2.4"), true),
            ("/spec/sessionAffinity", json!("None"), true),
            ("/spec/sessionAffinityConfig/clientIP/timeoutSeconds", json!(61), true),
            ("/spec/externalTrafficPolicy", json!("Cluster"), true),
            ("/spec/healthCheckNodePort", json!(30004), true),
            ("/spec/ipFamilies", json!(["IPv4"]), true),
            ("/spec/ipFamilies", json!(["IPv6", "IPv4"]), false),
            ("/spec/clusterIPs", json!(["10.0.0.2"]), false),
            ("/spec/selector/app", json!("c"), false),
            ("/spec/internalTrafficPolicy", json!("Local"), false),
            ("/spec/allocateLoadBalancerNodePorts", json!(false), false),
            ("/status/loadBalancer", json!({}), false),
        ] {
            let mut new = service();
            *new.pointer_mut(place).expect(place) = value;
            assert_eq!(needs_update(&old, &Service::from_json(new)), matters, "{place}");
        }
    }

    #[test]
    fn the_order_of_ports_matters() {
        let (old, mut new) = (service(), service());
        new["spec"]["ports"].as_array_mut().expect("ports").reverse();
        assert!(needs_update(&Service::from_json(old), &Service::from_json(new)));
    }
}

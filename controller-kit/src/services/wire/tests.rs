use serde_json::json;

use super::*;

#[test]
fn everything_that_a_provider_sees_is_read() {
    let service = Service::from_json(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["a", "service.kubernetes.io/load-balancer-cleanup"],
            "labels": {"a": "b"}, "annotations": {"c": "d"},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "x/y",
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080, "protocol": "TCP", "appProtocol": "http"},
                {"name": "dns", "port": 53, "targetPort": "dns", "nodePort": 0, "protocol": "UDP"},
            ],
            "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"], "externalIPs": ["192.0.2.1"],
            "loadBalancerIP": "192.0.2.2", "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30081,
            "selector": {"app": "web"}, "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {"ingress": [{
            "ip": "192.0.2.2", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "Busy"}],
        }, {"hostname": "lb.example"}]}},
    }));
    assert!(service.deleting && service.has_finalizer() && service.is_load_balancer());
    assert_eq!(
        (service.resource_version.as_str(), service.load_balancer_class.as_deref()),
        ("7", Some("x/y"))
    );
    let port = |name: &str, port| ServicePort { name: name.into(), port, ..ServicePort::default() };
    let expected = LoadBalancerService {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u".into(),
        labels: [("a".into(), "b".into())].into(),
        annotations: [("c".into(), "d".into())].into(),
        ports: vec![
            ServicePort {
                app_protocol: Some("http".into()),
                target_port: Some(TargetPort::Number(8080)),
                node_port: Some(30080),
                ..port("http", 80)
            },
            ServicePort {
                protocol: Protocol::Udp,
                target_port: Some(TargetPort::Name("dns".into())),
                ..port("dns", 53)
            },
        ],
        cluster_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
        ip_families: vec!["IPv4".into(), "IPv6".into()],
        ip_family_policy: Some(IpFamilyPolicy::PreferDualStack),
        external_ips: vec!["192.0.2.1".into()],
        load_balancer_ip: Some("192.0.2.2".into()),
        load_balancer_source_ranges: vec!["10.0.0.0/8".into()],
        session_affinity: SessionAffinity::ClientIp { timeout_seconds: 60 },
        external_traffic_policy: ExternalTrafficPolicy::Local,
        health_check_node_port: Some(30081),
        status: LoadBalancerStatus {
            ingress: vec![
                LoadBalancerIngress {
                    ip: Some("192.0.2.2".into()),
                    ip_mode: Some(IpMode::Proxy),
                    ports: vec![PortStatus { port: 80, protocol: Protocol::Tcp, error: Some("Busy".into()) }],
                    ..LoadBalancerIngress::default()
                },
                LoadBalancerIngress { hostname: Some("lb.example".into()), ..LoadBalancerIngress::default() },
            ],
        },
    };
    assert_eq!(service.content, expected);
}

#[test]
fn of_other_services_little_is_kept() {
    let object = |service_type: &str, finalizers: &[&str]| {
        Service::from_json(json!({
            "metadata": {"namespace": "a", "name": "b", "uid": "u", "finalizers": finalizers, "annotations": {"c": "d"}},
            "spec": {"type": service_type, "ports": [{"port": 80}]},
        }))
    };
    let other = object("ClusterIP", &["x/y"]);
    assert!(other.content.annotations.is_empty() && other.content.ports.is_empty());
    assert_eq!((other.uid(), other.service_type.as_str()), ("u", "ClusterIP"));
    for kept in
        [object("LoadBalancer", &[]), object("NodePort", &[super::super::LOAD_BALANCER_CLEANUP_FINALIZER])]
    {
        assert_eq!((kept.content.annotations.len(), kept.content.ports.len()), (1, 1));
    }
}

#[test]
fn nulls_missing_parts_and_odd_numbers_do_no_harm() {
    let bare = Service::from_json(json!({"metadata": {"name": "n"}}));
    assert_eq!(bare.content.name, "n");
    let odd = Service::from_json(json!({
        "metadata": {"name": "n", "finalizers": null, "annotations": null},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 99_999, "nodePort": -1}], "clusterIPs": null, "sessionAffinity": "ClientIP"},
        "status": {"loadBalancer": null},
    }));
    assert_eq!(odd.content.ports, [ServicePort::default()]);
    assert_eq!(odd.content.session_affinity, SessionAffinity::ClientIp { timeout_seconds: 10_800 });
}

use serde_json::{Value, json};

use super::*;

fn made(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
    defaults(&mut service);
    allocate(&mut Allocations::default(), &mut service, None);
    service
}

fn faults(service: &Value, before: Option<&Value>) -> Vec<String> {
    let mut errors = Vec::new();
    validate(service, before, &mut errors);
    errors.into_iter().map(|error| error.field).collect()
}

#[test]
fn a_load_balancer_gets_everything() {
    let service = made(json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "ports": [{"port": 80, "name": "", "nodePort": 0}], "ipFamilyPolicy": "PreferDualStack",
    }));
    assert_eq!(faults(&service, None), [""; 0]);
    assert_eq!(
        service["spec"],
        json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30001}],
            "healthCheckNodePort": 30002, "allocateLoadBalancerNodePorts": true,
            "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2", "fd00:10::11"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
        })
    );
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
}

#[test]
fn another_type_loses_what_does_not_go_with_it() {
    let mut before = made(json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "example.com/lb",
        "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": true,
    }));
    before["status"]["loadBalancer"]["ingress"] = json!([{"ip": "192.0.2.1"}]);
    for (kind, fields) in [
        (
            "ClusterIP",
            &[
                "clusterIP",
                "clusterIPs",
                "internalTrafficPolicy",
                "ipFamilies",
                "ipFamilyPolicy",
                "ports",
                "sessionAffinity",
                "type",
            ][..],
        ),
        ("ExternalName", &["externalName", "ports", "sessionAffinity", "type"]),
    ] {
        let mut after = before.clone();
        after["spec"]["type"] = kind.into();
        if kind == "ExternalName" {
            after["spec"]["externalName"] = "example.com".into();
        }
        defaults(&mut after);
        allocate(&mut Allocations::default(), &mut after, Some(&before));
        drop_by_type(&mut after, &before);
        let mut left: Vec<&str> = after["spec"].as_object().unwrap().keys().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, fields);
        assert_eq!(after["status"], json!({"loadBalancer": {}}));
        assert_eq!(after["spec"]["ports"][0].get("nodePort"), None);
        assert_eq!(faults(&after, Some(&before)), [""; 0]);
    }
}

#[test]
fn what_was_given_is_kept() {
    let before =
        made(json!({"type": "NodePort", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}));
    let mut after = json!({"spec": {"type": "LoadBalancer", "ports": [
        {"port": 81, "name": "b"}, {"port": 90, "name": "a", "nodePort": 31000}, {"port": 91, "name": "c"}]}});
    defaults(&mut after);
    let mut allocations = Allocations { node_ports: 100, ..Allocations::default() };
    allocate(&mut allocations, &mut after, Some(&before));
    assert_eq!(node_ports(&after), [30002, 31000, 30101]);
    assert_eq!(after["spec"]["clusterIPs"], before["spec"]["clusterIPs"]);
    assert_eq!(faults(&after, Some(&before)), [""; 0]);
}

#[test]
fn faults_are_named() {
    let good = made(json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    let changed = |field: &str, value: Value| {
        let mut service = good.clone();
        service["spec"][field] = value;
        faults(&service, Some(&good))
    };
    assert_eq!(changed("type", "Other".into())[0], "spec.type");
    assert_eq!(changed("ports", json!([]))[0], "spec.ports");
    assert_eq!(changed("loadBalancerClass", "example.com/lb".into())[0], "spec.loadBalancerClass");
    assert_eq!(changed("clusterIPs", json!(["10.0.0.77"]))[0], "spec.clusterIPs[0]");
    assert_eq!(
        changed("loadBalancerSourceRanges", json!(["10.0.0.0/8", "10.0.0.1"]))[0],
        "spec.LoadBalancerSourceRanges[1]"
    );
    assert_eq!(changed("healthCheckNodePort", 31000.into())[0], "spec.healthCheckNodePort");
    let with_status = |service: &Value, ingress: Value| {
        let mut service = service.clone();
        service["status"]["loadBalancer"]["ingress"] = json!([ingress]);
        faults(&service, None)
    };
    let path = "status.loadBalancer.ingress";
    assert_eq!(with_status(&good, json!({"ip": "10.0.0.1", "ipMode": "VIP"})), [""; 0]);
    assert_eq!(with_status(&good, json!({"ip": "x"})), [format!("{path}[0].ip")]);
    assert_eq!(
        with_status(&good, json!({"hostname": "a.b", "ipMode": "VIP"})),
        [format!("{path}[0].ipMode")]
    );
    assert_eq!(with_status(&good, json!({"hostname": "1.2.3.4"})), [format!("{path}[0].hostname")]);
    let plain = made(json!({"ports": [{"port": 80}]}));
    assert_eq!(with_status(&plain, json!({"ip": "10.0.0.1"})), [path]);
}

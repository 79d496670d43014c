//! Tests of the comparison.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn demand(ports: &[(u16, u16)], ranges: &[&str]) -> Demand {
    Demand {
        ports: ports.iter().map(|(source, target)| Port { source: *source, target: *target }).collect(),
        source_ranges: ranges.iter().map(|range| range.parse().expect("a network")).collect(),
    }
}

fn services(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// As the old manager left one.
fn found() -> LoadBalancerService {
    serde_json::from_value(json!({
        "id": "1s7",
        "launchConfig": {"ports": ["80:80/tcp"], "imageUuid": "docker:rancher/lb-service-haproxy:v0.7.6", "memory": 7},
        "lbConfig": {
            "portRules": [
                {"sourcePort": 80, "targetPort": 30080, "serviceId": "1s1", "protocol": "tcp", "priority": 1},
                {"sourcePort": 80, "targetPort": 30080, "serviceId": "1s2", "protocol": "tcp", "priority": 2}
            ],
            "stickinessPolicy": null
        }
    }))
    .expect("a load balancer")
}

#[test]
fn what_is_right_is_left_alone() {
    assert_eq!(change(&found(), &demand(&[(80, 30080)], &[]), &services(&["1s2", "1s1"])), None);
    for spelling in ["80:80/tcp", "80:80", "80", "80/TCP", "0.0.0.0:80:80/tcp"] {
        let mut found = found();
        found.launch_config.ports = vec![spelling.to_owned()];
        assert!(has_ports(&found, &demand(&[(80, 30080)], &[])), "{spelling}");
    }
    for spelling in ["80:80/udp", "8080:80/tcp", "", "x:y"] {
        let mut found = found();
        found.launch_config.ports = vec![spelling.to_owned()];
        assert!(!has_ports(&found, &demand(&[(80, 30080)], &[])), "{spelling}");
    }
}

#[test]
fn another_node_changes_rules_and_links_only() {
    let change =
        change(&found(), &demand(&[(80, 30080)], &[]), &services(&["1s2", "1s3"])).expect("a change");
    assert_eq!(change.launch_config, None);
    assert_eq!(change.links, Some(services(&["1s2", "1s3"])));
    let targets: Vec<_> =
        change.lb_config.port_rules.iter().filter_map(|rule| rule.service_id.as_deref()).collect();
    assert_eq!(targets, ["1s2", "1s3"]);
    assert_eq!(
        change.lb_config.others.get("stickinessPolicy"),
        Some(&json!(null)),
        "what others set is kept"
    );
}

#[test]
fn another_port_keeps_the_container_otherwise() {
    let change = change(&found(), &demand(&[(80, 30080), (443, 30443)], &[]), &services(&["1s1", "1s2"]))
        .expect("a change");
    let launch_config = change.launch_config.expect("other ports");
    assert_eq!(launch_config.ports, ["80:80/tcp", "443:443/tcp"]);
    assert_eq!(launch_config.others.get("memory"), Some(&json!(7)));
    assert_eq!((change.links, change.lb_config.port_rules.len()), (None, 4));
    // Another node port alone changes no port of the container.
    let change =
        super::change(&found(), &demand(&[(80, 31080)], &[]), &services(&["1s1", "1s2"])).expect("a change");
    assert_eq!((change.launch_config, change.links), (None, None));
}

#[test]
fn source_ranges_stand_in_the_configuration_of_haproxy() {
    let limited = demand(&[(80, 30080)], &["10.0.0.0/8"]);
    let wanted = services(&["1s1", "1s2"]);
    let change = super::change(&found(), &limited, &wanted).expect("a change");
    let text = change.lb_config.config.clone().expect("a text");
    assert!(text.starts_with("frontend 80\n") && text.contains("src 10.0.0.0/8\n"), "{text}");
    // The server may drop the end of the last line.
    let mut changed = LoadBalancerService { lb_config: change.lb_config, ..found() };
    changed.lb_config.config = Some(text.trim_end().to_owned());
    assert_eq!(super::change(&changed, &limited, &wanted), None);
    let unlimited = super::change(&changed, &demand(&[(80, 30080)], &[]), &wanted).expect("a change");
    assert_eq!(unlimited.lb_config.config.as_deref(), Some(""));
}

#[test]
fn each_address_is_told_once() {
    let endpoint = |ip: &str| json!({"ipAddress": ip, "port": 80});
    let found = json!({"id": "1s7", "publicEndpoints": [
        endpoint("192.0.2.9"), endpoint("192.0.2.10"), endpoint("192.0.2.9"), endpoint("2001:db8::1"), {"ipAddress": null}
    ]});
    let found: LoadBalancerService = serde_json::from_value(found).expect("a load balancer");
    let ips: Vec<_> = status(&found).ingress.into_iter().filter_map(|ingress| ingress.ip).collect();
    assert_eq!(ips, ["192.0.2.9", "192.0.2.10", "2001:db8::1"]);
}

proptest! {
    /// Whatever the operator wrote, and whatever the limits were before: after one change nothing is to be done.
    #[test]
    fn one_change_is_enough(
        text in "(frontend [0-9]{1,2}\n|    balance x\n|global\n|\n){0,6}",
        before in proptest::collection::vec("10\\.[0-9]\\.0\\.0/16", 0..3),
        after in proptest::collection::vec("10\\.[0-9]\\.0\\.0/16", 0..3),
    ) {
        let mut found = found();
        found.lb_config.config = Some(text);
        for ranges in [before, after] {
            let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
            let wanted = demand(&[(80, 30080), (443, 30443)], &ranges);
            if let Some(change) = change(&found, &wanted, &services(&["1s1"])) {
                found.lb_config = change.lb_config;
                found.launch_config = change.launch_config.unwrap_or(found.launch_config);
            }
            prop_assert_eq!(super::change(&found, &wanted, &services(&["1s1"])), None);
        }
    }
}

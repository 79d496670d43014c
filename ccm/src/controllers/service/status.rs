//! Compares and writes `status.loadBalancer`.

use std::collections::HashSet;

use cloudprovider::{IpMode, LoadBalancerIngress, LoadBalancerStatus, PortStatus, Protocol};
use serde_json::{Map, Value, json};

/// Whether two statuses mean the same. The API server writes `ipMode: VIP` where an address comes without a mode.
pub(crate) fn same_status(a: &LoadBalancerStatus, b: &LoadBalancerStatus) -> bool {
    let same = |(a, b): (&LoadBalancerIngress, &LoadBalancerIngress)| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        text(&a.ip) == text(&b.ip)
            && text(&a.hostname) == text(&b.hostname)
            && mode(a) == mode(b)
            && a.ports == b.ports
    };
    a.ingress.len() == b.ingress.len() && a.ingress.iter().zip(&b.ingress).all(same)
}

/// Whether `before` has an IP address that `status` has not.
pub(super) fn lacks_address_of(status: &LoadBalancerStatus, before: &LoadBalancerStatus) -> bool {
    let of = |status: &LoadBalancerStatus| -> HashSet<String> {
        let ips = status.ingress.iter().filter_map(|ingress| ingress.ip.clone());
        ips.filter(|ip| !ip.is_empty()).collect()
    };
    !of(before).is_subset(&of(status))
}

fn mode(ingress: &LoadBalancerIngress) -> Option<IpMode> {
    let has_address = ingress.ip.as_ref().is_some_and(|ip| !ip.is_empty());
    ingress.ip_mode.or(has_address.then_some(IpMode::Vip))
}

/// `status.loadBalancer` in a strategic merge patch. The list of ingress points is replaced as a whole.
pub(super) fn to_json(status: &LoadBalancerStatus) -> Value {
    let ingress: Vec<Value> = status.ingress.iter().map(ingress_json).collect();
    json!({"ingress": if ingress.is_empty() { Value::Null } else { ingress.into() }})
}

fn ingress_json(ingress: &LoadBalancerIngress) -> Value {
    let mut json = Map::new();
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            json.insert(key.to_owned(), value);
        }
    };
    add("ip", ingress.ip.clone().map(Value::from));
    add("hostname", ingress.hostname.clone().map(Value::from));
    add("ipMode", ingress.ip_mode.map(|mode| ip_mode(mode).into()));
    let ports: Vec<Value> = ingress.ports.iter().map(port_json).collect();
    add("ports", (!ports.is_empty()).then(|| ports.into()));
    Value::Object(json)
}

fn port_json(port: &PortStatus) -> Value {
    let mut json = json!({"port": port.port, "protocol": protocol(port.protocol)});
    if let Some(error) = &port.error {
        json["error"] = error.as_str().into();
    }
    json
}

fn ip_mode(mode: IpMode) -> &'static str {
    match mode {
        IpMode::Vip => "VIP",
        IpMode::Proxy => "Proxy",
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

/// One line for people, as in `192.0.2.1, lb.example (Proxy)`.
pub(crate) fn shown(status: &LoadBalancerStatus) -> String {
    let one = |ingress: &LoadBalancerIngress| {
        let texts = [&ingress.ip, &ingress.hostname].into_iter().flatten();
        let place = texts.cloned().collect::<Vec<_>>().join(" ");
        let mode = ingress.ip_mode.filter(|mode| *mode != IpMode::Vip);
        let mode = mode.map(|mode| format!(" ({})", ip_mode(mode))).unwrap_or_default();
        let ports = ingress.ports.iter().filter_map(|port| {
            let error = port.error.as_ref()?;
            Some(format!(" [{}/{}: {error}]", port.port, protocol(port.protocol)))
        });
        format!("{place}{mode}{}", ports.collect::<String>())
    };
    let all = status.ingress.iter().map(one).collect::<Vec<_>>();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ingress: &[LoadBalancerIngress]) -> LoadBalancerStatus {
        LoadBalancerStatus { ingress: ingress.to_vec() }
    }

    fn ip(ip: &str) -> LoadBalancerIngress {
        LoadBalancerIngress { ip: Some(ip.into()), ..LoadBalancerIngress::default() }
    }

    #[test]
    fn statuses_are_compared_by_meaning() {
        let port = |error: Option<&str>| PortStatus {
            port: 80,
            protocol: Protocol::Udp,
            error: error.map(Into::into),
        };
        let with_ports = |ports| LoadBalancerIngress { ports, ..ip("192.0.2.1") };
        let with_mode = |mode| LoadBalancerIngress { ip_mode: Some(mode), ..ip("192.0.2.1") };
        let host = |name: &str| LoadBalancerIngress {
            hostname: Some(name.into()),
            ..LoadBalancerIngress::default()
        };
        for (a, b, same) in [
            (vec![], vec![], true),
            (vec![ip("192.0.2.1")], vec![], false),
            (vec![ip("192.0.2.1")], vec![ip("192.0.2.1")], true),
            (vec![ip("192.0.2.1")], vec![ip("192.0.2.2")], false),
            (vec![ip("192.0.2.1"), ip("192.0.2.2")], vec![ip("192.0.2.2"), ip("192.0.2.1")], false),
            (vec![ip("192.0.2.1")], vec![with_mode(IpMode::Vip)], true),
            (vec![ip("192.0.2.1")], vec![with_mode(IpMode::Proxy)], false),
            (vec![host("a")], vec![host("a")], true),
            (vec![host("a")], vec![host("b")], false),
            (vec![host("a")], vec![LoadBalancerIngress { ip: Some(String::new()), ..host("a") }], true),
            (vec![with_ports(vec![port(None)])], vec![with_ports(vec![])], false),
            (vec![with_ports(vec![port(None)])], vec![with_ports(vec![port(Some("Busy"))])], false),
            (vec![with_ports(vec![port(None)])], vec![with_ports(vec![port(None)])], true),
        ] {
            assert_eq!(same_status(&status(&a), &status(&b)), same, "{a:?} {b:?}");
            assert_eq!(same_status(&status(&b), &status(&a)), same, "{b:?} {a:?}");
        }
    }

    #[test]
    fn an_address_that_is_not_there_any_more() {
        let host = LoadBalancerIngress { hostname: Some("a".into()), ..LoadBalancerIngress::default() };
        let (one, two) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for (before, now, lacks) in [
            (vec![], vec![one.clone()], false),
            (vec![one.clone()], vec![one.clone(), two.clone()], false),
            (vec![one.clone(), two.clone()], vec![two.clone(), one.clone()], false),
            (vec![one.clone(), two.clone()], vec![two.clone()], true),
            (vec![one.clone()], vec![two], true),
            (vec![one], vec![], true),
            (vec![host], vec![], false),
        ] {
            assert_eq!(lacks_address_of(&status(&now), &status(&before)), lacks, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_status_as_json() {
        let full = LoadBalancerIngress {
            hostname: Some("lb.example".into()),
            ip_mode: Some(IpMode::Proxy),
            ports: vec![PortStatus { port: 53, protocol: Protocol::Sctp, error: Some("Busy".into()) }],
            ..ip("192.0.2.1")
        };
        assert_eq!(
            to_json(&status(&[full.clone(), ip("192.0.2.2")])),
            json!({"ingress": [
                {
                    "ip": "192.0.2.1", "hostname": "lb.example", "ipMode": "Proxy",
                    "ports": [{"port": 53, "protocol": "SCTP", "error": "Busy"}],
                },
                {"ip": "192.0.2.2"},
            ]})
        );
        assert_eq!(to_json(&status(&[])), json!({"ingress": null}));
        let text = shown(&status(&[full, ip("192.0.2.2")]));
        assert_eq!(text, "192.0.2.1 lb.example (Proxy) [53/SCTP: Busy], 192.0.2.2");
        assert_eq!(shown(&status(&[])), "none");
    }
}

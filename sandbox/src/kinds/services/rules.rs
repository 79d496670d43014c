//! The rules of validation for Services, as far as a controller can break them or relies on them.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::{
    has_cluster_ip, has_node_ports, is_headless, is_load_balancer, is_reachable_from_outside,
    needs_health_check, text,
};
use crate::status::FieldError;

const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// Checks a Service before it is stored. A write to the status is checked for that alone.
pub(crate) fn validate(service: &Value, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    if before.is_none_or(|before| before["spec"] != service["spec"]) {
        types(service, errors);
        ports(service, errors);
        of_load_balancers(service, before, errors);
        addresses(service, before, errors);
    }
    if before.is_none_or(|before| before["status"] != service["status"]) {
        status(service, errors);
    }
}

fn types(service: &Value, errors: &mut Vec<FieldError>) {
    for (field, known) in [
        ("type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"][..]),
        ("sessionAffinity", &["ClientIP", "None"]),
    ] {
        let value = &service["spec"][field];
        if !known.iter().any(|known| value == known) {
            errors.push(FieldError::not_supported(format!("spec.{field}"), value, known));
        }
    }
    let policy = text(service, "externalTrafficPolicy");
    let field = "spec.externalTrafficPolicy";
    if !is_reachable_from_outside(service) && !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(field, &policy.into(), why));
    } else if !policy.is_empty() && !matches!(policy, "Cluster" | "Local") {
        errors.push(FieldError::not_supported(field, &policy.into(), &["Cluster", "Local"]));
    }
    if !has_cluster_ip(service) && text(service, "externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
}

fn ports(service: &Value, errors: &mut Vec<FieldError>) {
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && !is_headless(service) && has_cluster_ip(service) {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into(), ""));
        }
        let number = port["port"].as_i64().unwrap_or_default();
        if !(1..=65_535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.port"), &number.into(), why));
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            let known = ["SCTP", "TCP", "UDP"];
            errors.push(FieldError::not_supported(format!("{path}.protocol"), &protocol.into(), &known));
        }
        if !numbers.insert((protocol, number)) {
            errors.push(FieldError::duplicate(path.clone(), port, ""));
        }
        if !has_node_ports(service) && port["nodePort"].as_i64().unwrap_or(0) != 0 {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(format!("{path}.nodePort"), why));
        }
    }
}

fn of_load_balancers(service: &Value, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &service["spec"];
    if is_load_balancer(service) {
        let class = |of: &Value| of.pointer("/spec/loadBalancerClass").cloned();
        if before.is_some_and(|before| is_load_balancer(before) && class(before) != class(service)) {
            let class = class(service).unwrap_or_default();
            errors.push(FieldError::invalid("spec.loadBalancerClass", &class, "may not change once set"));
        }
    } else {
        for field in ["loadBalancerClass", "allocateLoadBalancerNodePorts"] {
            if spec.get(field).is_some() {
                errors.push(FieldError::forbidden(format!("spec.{field}"), LOAD_BALANCER_ONLY));
            }
        }
    }
    let ranges = spec["loadBalancerSourceRanges"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !ranges.is_empty() && !is_load_balancer(service) {
        errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", LOAD_BALANCER_ONLY));
    }
    for (at, range) in ranges.iter().enumerate() {
        if !is_cidr(range.as_str().unwrap_or_default().trim()) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("spec.LoadBalancerSourceRanges[{at}]"), range, why));
        }
    }
    let port = |of: &Value| of["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0);
    if !needs_health_check(service) {
        if port(service) != 0 {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid("spec.healthCheckNodePort", &port(service).into(), why));
        }
    } else if before.is_some_and(|before| needs_health_check(before) && port(before) != port(service)) {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
}

fn is_cidr(range: &str) -> bool {
    range.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

fn addresses(service: &Value, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    if is_headless(service) && has_node_ports(service) {
        let why = format!("may not be set to 'None' for {} services", text(service, "type"));
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &"None".into(), why));
    }
    let Some(before) = before.filter(|before| has_cluster_ip(before) && has_cluster_ip(service)) else {
        return;
    };
    let primary = |of: &Value| of["spec"]["clusterIPs"][0].clone();
    if primary(before) != primary(service) {
        let now = json!([primary(service)]);
        let why = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &now, why));
    }
}

fn status(service: &Value, errors: &mut Vec<FieldError>) {
    let path = "status.loadBalancer.ingress";
    let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    let ingress = ingress.map(Vec::as_slice).unwrap_or_default();
    if !ingress.is_empty() && !is_load_balancer(service) {
        errors.push(FieldError::forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    for (at, entry) in ingress.iter().enumerate() {
        let (ip, mode) = (entry["ip"].as_str().unwrap_or_default(), &entry["ipMode"]);
        if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(format!("{path}[{at}].ip"), &ip.into(), why));
        }
        if ip.is_empty() && !mode.is_null() {
            let why = "may not be specified when `ip` is not set";
            errors.push(FieldError::forbidden(format!("{path}[{at}].ipMode"), why));
        } else if !mode.is_null() && mode != "VIP" && mode != "Proxy" {
            let known = ["Proxy", "VIP"];
            errors.push(FieldError::not_supported(format!("{path}[{at}].ipMode"), mode, &known));
        }
        let host = entry["hostname"].as_str().unwrap_or_default();
        if host.parse::<IpAddr>().is_ok() {
            let why = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(format!("{path}[{at}].hostname"), &host.into(), why));
        }
    }
}

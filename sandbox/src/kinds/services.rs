//! What the API server does with Services: defaults, the addresses and ports that it gives them, and the
//! fields that go with the type.
//!
//! The cluster is dual-stack, with IPv4 first. There are no `IPAddress` objects for cluster IPs.

mod rules;

use std::net::IpAddr;

use serde_json::{Value, json};

pub(crate) use self::rules::validate;
use crate::resources::ResourceKind;

/// Fields that are left out if they are empty: of a port, and of an entry of the ingress.
const PORT_FIELDS: [&str; 2] = ["name", "nodePort"];
const INGRESS_FIELDS: [&str; 3] = ["ip", "hostname", "ports"];

/// How many addresses and ports were given so far. They are given in order, and not taken back.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    addresses: u32,
    node_ports: u32,
}

/// Whether this is the kind Service.
pub(crate) fn is_service(kind: &ResourceKind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}

fn text<'a>(service: &'a Value, field: &str) -> &'a str {
    service["spec"][field].as_str().unwrap_or_default()
}

fn is_load_balancer(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer"
}

fn has_cluster_ip(service: &Value) -> bool {
    text(service, "type") != "ExternalName"
}

fn is_headless(service: &Value) -> bool {
    text(service, "clusterIP") == "None"
}

/// Whether the type comes with node ports.
fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Whether ports without a node port get one.
fn wants_node_ports(service: &Value) -> bool {
    has_node_ports(service)
        && (!is_load_balancer(service) || service["spec"]["allocateLoadBalancerNodePorts"] != false)
}

/// Whether a load balancer has to ask the nodes which of them have endpoints.
fn needs_health_check(service: &Value) -> bool {
    is_load_balancer(service) && text(service, "externalTrafficPolicy") == "Local"
}

fn is_reachable_from_outside(service: &Value) -> bool {
    let external = service["spec"]["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    has_node_ports(service) || text(service, "type") == "ClusterIP" && external
}

fn ports(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter(|port| port.is_object())
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| port["nodePort"].as_i64()).collect()
}

fn remove_empty(object: &mut Value, fields: &[&str]) {
    if let Value::Object(map) = object {
        let is_empty = |value: &Value| *value == "" || *value == 0 || *value == json!([]);
        map.retain(|field, value| !fields.contains(&field.as_str()) || !is_empty(value));
    }
}

/// Adds the fields that are set if the client leaves them out.
pub(crate) fn defaults(service: &mut Value) {
    if service["spec"].is_null() {
        service["spec"] = json!({});
    }
    let spec = &mut service["spec"];
    for (field, value) in [("type", "ClusterIP"), ("sessionAffinity", "None")] {
        if spec[field].as_str().unwrap_or_default().is_empty() {
            spec[field] = value.into();
        }
    }
    match spec["sessionAffinity"].as_str() {
        Some("None") => drop(spec.as_object_mut().and_then(|spec| spec.remove("sessionAffinityConfig"))),
        Some("ClientIP") if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
        }
        _ => {}
    }
    // Reading a field that is absent by index has left a null
    if spec["sessionAffinityConfig"].is_null() {
        drop(spec.as_object_mut().and_then(|spec| spec.remove("sessionAffinityConfig")));
    }
    if text(service, "type") != "ExternalName" && service["spec"]["internalTrafficPolicy"].is_null() {
        service["spec"]["internalTrafficPolicy"] = "Cluster".into();
    }
    if is_reachable_from_outside(service) && text(service, "externalTrafficPolicy").is_empty() {
        service["spec"]["externalTrafficPolicy"] = "Cluster".into();
    }
    if is_load_balancer(service) && service["spec"]["allocateLoadBalancerNodePorts"].is_null() {
        service["spec"]["allocateLoadBalancerNodePorts"] = true.into();
    }
    for port in ports(service) {
        if port["protocol"].as_str().unwrap_or_default().is_empty() {
            port["protocol"] = "TCP".into();
        }
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
        remove_empty(port, &PORT_FIELDS);
    }
    status_defaults(service);
}

fn status_defaults(service: &mut Value) {
    let is_load_balancer = is_load_balancer(service);
    if service["status"].is_null() {
        service["status"] = json!({});
    }
    if service["status"]["loadBalancer"].is_null() {
        service["status"]["loadBalancer"] = json!({});
    }
    let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for entry in ingress.into_iter().flatten() {
        remove_empty(entry, &INGRESS_FIELDS);
        if is_load_balancer && entry.get("ip").is_some() && entry.get("ipMode").is_none_or(Value::is_null) {
            entry["ipMode"] = "VIP".into();
        }
    }
}

/// Gives a Service its IP families, cluster IPs and ports. What it has in `before` it keeps.
pub(crate) fn allocate(allocations: &mut Allocations, service: &mut Value, before: Option<&Value>) {
    if let Some(before) = before {
        keep(service, before);
    }
    if has_cluster_ip(service) {
        allocate_families(service, before);
        allocate_addresses(allocations, service);
    }
    if wants_node_ports(service) {
        for port in ports(service) {
            if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                port["nodePort"] = allocations.node_port().into();
            }
        }
    }
    if needs_health_check(service) && service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0) == 0 {
        service["spec"]["healthCheckNodePort"] = allocations.node_port().into();
    }
    if let Value::Object(spec) = &mut service["spec"] {
        spec.retain(|_, value| !value.is_null());
    }
    for port in ports(service) {
        if let Value::Object(port) = port {
            port.retain(|_, value| !value.is_null());
        }
    }
}

/// Takes over what was allocated before and what the client has left out.
fn keep(service: &mut Value, before: &Value) {
    if has_cluster_ip(service) && has_cluster_ip(before) {
        for field in ["clusterIP", "clusterIPs", "ipFamilyPolicy"] {
            if service["spec"][field].is_null() {
                service["spec"][field] = before["spec"][field].clone();
            }
        }
    }
    if wants_node_ports(before) && wants_node_ports(service) {
        let now = node_ports(service);
        let old = before.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
        for port in ports(service) {
            // Ports are recognised by their names
            let same = old.iter().find(|old| old.get("name") == port.get("name"));
            let known = same.and_then(|old| old["nodePort"].as_i64());
            if let Some(known) = known.filter(|known| !now.contains(known))
                && port.get("nodePort").is_none()
            {
                port["nodePort"] = known.into();
            }
        }
    }
    if needs_health_check(before)
        && needs_health_check(service)
        && service["spec"]["healthCheckNodePort"].is_null()
    {
        service["spec"]["healthCheckNodePort"] = before["spec"]["healthCheckNodePort"].clone();
    }
}

fn family_of(address: &str) -> Option<&'static str> {
    Some(if address.parse::<IpAddr>().ok()?.is_ipv6() { "IPv6" } else { "IPv4" })
}

fn allocate_families(service: &mut Value, before: Option<&Value>) {
    let has_selector = service["spec"]["selector"].as_object().is_some_and(|all| !all.is_empty());
    let dual_by_default = is_headless(service) && !has_selector;
    let spec = &mut service["spec"];
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = if dual_by_default { "RequireDualStack" } else { "SingleStack" }.into();
    }
    let single = spec["ipFamilyPolicy"] == "SingleStack";
    for field in ["clusterIPs", "ipFamilies"] {
        // A Service that becomes single-stack gives up its second address
        let unchanged = before.is_some_and(|before| before["spec"][field] == spec[field]);
        if let Some(list) = spec[field].as_array_mut().filter(|_| single && unchanged) {
            list.truncate(1);
        }
    }
    if spec["clusterIPs"].is_null() && !spec["clusterIP"].is_null() {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    let given: Vec<String> = spec["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| family_of(ip.as_str()?).map(str::to_owned))
        .collect();
    let mut families: Vec<String> = spec["ipFamilies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|family| family.as_str().map(str::to_owned))
        .collect();
    families.extend(given.into_iter().skip(families.len()));
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if !single && families.len() == 1 {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.to_owned());
    }
    spec["ipFamilies"] = json!(families);
}

fn allocate_addresses(allocations: &mut Allocations, service: &mut Value) {
    if is_headless(service) {
        service["spec"]["clusterIPs"] = json!(["None"]);
        return;
    }
    let spec = &mut service["spec"];
    let mut addresses = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    let families = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
    for family in families.iter().skip(addresses.len()) {
        addresses.push(allocations.address(family == "IPv6").into());
    }
    spec["clusterIP"] = addresses.first().cloned().unwrap_or_default();
    spec["clusterIPs"] = addresses.into();
}

impl Allocations {
    /// From `10.0.0.0/16` or `fd00:10::/112`.
    fn address(&mut self, is_ipv6: bool) -> String {
        self.addresses += 1;
        let number = self.addresses;
        if is_ipv6 {
            format!("fd00:10::{:x}", number % 0xfff0 + 0xf)
        } else {
            format!("10.0.{}.{}", number / 250 % 250, number % 250 + 1)
        }
    }

    /// From 30000 to 32767.
    fn node_port(&mut self) -> u32 {
        self.node_ports += 1;
        30_000 + self.node_ports % 2_768
    }
}

/// Removes what does not go with the new type, if the client has not changed it.
pub(crate) fn drop_by_type(service: &mut Value, before: &Value) {
    let mut gone = Vec::new();
    if has_cluster_ip(before) && !has_cluster_ip(service) {
        gone.extend(["clusterIP", "clusterIPs", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy"]);
    }
    if needs_health_check(before) && !needs_health_check(service) {
        gone.push("healthCheckNodePort");
    }
    if is_load_balancer(before) && !is_load_balancer(service) {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reachable_from_outside(before) && !is_reachable_from_outside(service) {
        gone.push("externalTrafficPolicy");
    }
    if let Value::Object(spec) = &mut service["spec"] {
        for field in gone {
            if spec.get(field) == before["spec"].get(field) {
                spec.remove(field);
            }
        }
    }
    let known = node_ports(before);
    if has_node_ports(before)
        && !has_node_ports(service)
        && node_ports(service).iter().all(|port| known.contains(port))
    {
        for port in ports(service) {
            drop(port.as_object_mut().and_then(|port| port.remove("nodePort")));
        }
    }
    if !is_load_balancer(service) {
        service["status"]["loadBalancer"] = json!({});
    }
}

#[cfg(test)]
mod tests;

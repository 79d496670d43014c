//! Compares a load balancer with what it has to be. Pure rules.

use std::{collections::BTreeSet, net::IpAddr};

use cloudprovider::{LoadBalancerIngress, LoadBalancerStatus};

use super::{
    demand::{Demand, Port},
    haproxy::with_source_ranges,
};
use crate::cattle::model::{LaunchConfig, LbConfig, LoadBalancerService, PortRule};

/// The protocol of all rules.
const TCP: &str = "tcp";

/// What to send to change a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) lb_config: LbConfig,
    /// Only if the ports change.
    pub(crate) launch_config: Option<LaunchConfig>,
    /// The services that it sends to from now on, if others than before.
    pub(crate) links: Option<BTreeSet<String>>,
}

/// The change of a load balancer that has to send to these external services. `None` if it does.
pub(crate) fn change(
    found: &LoadBalancerService,
    demand: &Demand,
    services: &BTreeSet<String>,
) -> Option<Change> {
    let rules = port_rules(demand, services);
    let config = with_source_ranges(found.lb_config.config.as_deref().unwrap_or_default(), demand);
    let has_ports = has_ports(found, demand);
    let has_rules = found.lb_config.port_rules.iter().collect::<BTreeSet<_>>() == rules.iter().collect();
    // The server may drop the end of the last line.
    let has_config = found.lb_config.config.as_deref().unwrap_or_default().trim_end() == config.trim_end();
    if has_ports && has_rules && has_config {
        return None;
    }
    let config = if has_config { found.lb_config.config.clone() } else { Some(config) };
    Some(Change {
        lb_config: LbConfig { port_rules: rules, config, ..found.lb_config.clone() },
        launch_config: (!has_ports)
            .then(|| LaunchConfig { ports: ports(demand), ..found.launch_config.clone() }),
        links: (services_of(found) != *services).then(|| services.clone()),
    })
}

/// The ports of a load balancer's container.
pub(crate) fn ports(demand: &Demand) -> Vec<String> {
    demand.ports.iter().map(|port| format!("{0}:{0}/{TCP}", port.source)).collect()
}

/// Whether a load balancer has the ports of the demand, in whatever spelling.
pub(crate) fn has_ports(found: &LoadBalancerService, demand: &Demand) -> bool {
    let found: BTreeSet<_> = found.launch_config.ports.iter().map(|text| public_port(text)).collect();
    found == demand.ports.iter().map(|port| Some(port.source)).collect()
}

/// The public TCP port in `80:80/tcp`, `80:80`, `80/tcp`, `80` or `0.0.0.0:80:80/tcp`.
fn public_port(text: &str) -> Option<u16> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, TCP));
    let mut parts = ports.rsplit(':');
    let private = parts.next()?;
    let public = parts.next().unwrap_or(private);
    if protocol.eq_ignore_ascii_case(TCP) { public.parse().ok() } else { None }
}

/// One rule for each port and service.
fn port_rules(demand: &Demand, services: &BTreeSet<String>) -> Vec<PortRule> {
    let rule = |port: &Port, service: &String| PortRule {
        source_port: Some(port.source),
        target_port: Some(port.target),
        service_id: Some(service.clone()),
        protocol: Some(TCP.to_owned()),
    };
    demand.ports.iter().flat_map(|port| services.iter().map(move |service| rule(port, service))).collect()
}

/// The services that a load balancer sends to.
pub(crate) fn services_of(found: &LoadBalancerService) -> BTreeSet<String> {
    found.lb_config.port_rules.iter().filter_map(|rule| rule.service_id.clone()).collect()
}

/// The status of a Service: each address once, IPv4 first.
pub(crate) fn status(found: &LoadBalancerService) -> LoadBalancerStatus {
    let endpoints = found.public_endpoints.iter();
    let ips: BTreeSet<IpAddr> =
        endpoints.filter_map(|endpoint| endpoint.ip_address.as_deref()?.trim().parse().ok()).collect();
    let ingress =
        |ip: IpAddr| LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: ips.into_iter().map(ingress).collect() }
}

#[cfg(test)]
mod tests;

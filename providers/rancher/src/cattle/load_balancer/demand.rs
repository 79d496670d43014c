//! What a Service asks for, and whether Cattle can do it.

use cloudprovider::{
    Error, ErrorKind, ExternalTrafficPolicy, LoadBalancerService, Protocol, Result, SessionAffinity,
    default_load_balancer_name,
};
use ipnet::IpNet;

use crate::config::ReservedPorts;

/// Rancher uses this port of each load balancer for health checks.
const RESERVED_PORT: u16 = 42;

/// The longest name of a service in Cattle.
const MAX_NAME: usize = 63;

/// What a load balancer has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Its ports, sorted.
    pub(crate) ports: Vec<Port>,
    /// Who may connect, sorted. Everybody if empty.
    pub(crate) source_ranges: Vec<IpNet>,
}

/// A port of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    /// What clients connect to.
    pub(crate) source: u16,
    /// The node port.
    pub(crate) target: u16,
}

impl Demand {
    /// What this Service asks for.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what Cattle cannot do, and for a port that is reserved; [`ErrorKind::InvalidInput`] for
    /// what nobody can.
    pub(crate) fn of(service: &LoadBalancerService, reserved: &ReservedPorts) -> Result<Self> {
        let unsupported =
            |what: String| Err(Error::unsupported(format!("a load balancer of Rancher cannot {what}")));
        if service.load_balancer_ip.as_deref().is_some_and(|ip| !ip.is_empty()) {
            return unsupported("have an address of one's choice: leave out spec.loadBalancerIP".to_owned());
        }
        if service.session_affinity != SessionAffinity::None {
            return unsupported("keep a client at one pod: set spec.sessionAffinity to None".to_owned());
        }
        if service.external_traffic_policy == ExternalTrafficPolicy::Local {
            return unsupported(
                "tell which nodes have pods, nor keep the client's address: set spec.externalTrafficPolicy to Cluster"
                    .to_owned(),
            );
        }
        let mut ports = Vec::new();
        for port in &service.ports {
            let number = port.port;
            match (port.protocol, port.node_port) {
                (Protocol::Tcp, _) if number == RESERVED_PORT => {
                    return unsupported(format!(
                        "serve port {RESERVED_PORT}, which Rancher uses for health checks"
                    ));
                }
                (Protocol::Tcp, _) if reserved.contains(number) => {
                    return unsupported(format!(
                        "serve port {number}: it is opened on the hosts, and loadBalancer.reservedPorts of the configuration keeps it for what listens there"
                    ));
                }
                (Protocol::Tcp, Some(target)) => ports.push(Port { source: number, target }),
                (Protocol::Tcp, None) => {
                    return unsupported(format!(
                        "serve port {number} without a node port: set spec.allocateLoadBalancerNodePorts to true"
                    ));
                }
                (Protocol::Udp, _) => {
                    return unsupported(format!("serve port {number}/UDP: only TCP is possible"));
                }
                (Protocol::Sctp, _) => {
                    return unsupported(format!("serve port {number}/SCTP: only TCP is possible"));
                }
            }
        }
        ports.sort_unstable();
        let mut source_ranges = Vec::new();
        for text in &service.load_balancer_source_ranges {
            let range = text.trim().parse::<IpNet>().map_err(|_| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("spec.loadBalancerSourceRanges: {text:?} is not a network such as 10.0.0.0/8"),
                )
            })?;
            source_ranges.push(range.trunc());
        }
        source_ranges.sort_unstable();
        source_ranges.dedup();
        // Everybody of both families is no limit.
        if source_ranges.iter().any(|range| range.prefix_len() == 0 && range.addr().is_ipv4())
            && source_ranges.iter().all(|range| range.addr().is_ipv4())
        {
            source_ranges.clear();
        }
        Ok(Self { ports, source_ranges })
    }
}

/// The name of a Service's load balancer, as rancher-cloud-controller-manager formed it.
pub(crate) fn load_balancer_name(service: &LoadBalancerService) -> String {
    format!("lb-{}", default_load_balancer_name(&service.uid))
}

/// The name of the external service of a Node, as rancher-cloud-controller-manager formed it: what is no letter,
/// digit or hyphen becomes a hyphen.
pub(crate) fn external_service_name(node: &str) -> String {
    let mut name = String::new();
    for c in node.chars() {
        let c = if c.is_ascii_alphanumeric() { c } else { '-' };
        if c != '-' || !name.ends_with('-') && !name.is_empty() {
            name.push(c);
        }
    }
    name.truncate(MAX_NAME);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use cloudprovider::ServicePort;

    use super::*;

    fn service() -> LoadBalancerService {
        let port =
            |port, node_port| ServicePort { port, node_port: Some(node_port), ..ServicePort::default() };
        LoadBalancerService {
            uid: "2f5a1b30-6c1e-4d2b-8f43-9d3f0e6a7b11".to_owned(),
            ports: vec![port(443, 30443), port(80, 30080)],
            ..LoadBalancerService::default()
        }
    }

    #[test]
    fn names_are_those_of_the_old_manager() {
        assert_eq!(load_balancer_name(&service()), "lb-a2f5a1b306c1e4d2b8f439d3f0e6a7b1");
        for (node, expected) in [
            ("node-1", "node-1"),
            ("node-1.example.org", "node-1-example-org"),
            ("a..b__c", "a-b-c"),
            (".a.", "a"),
            (&"a".repeat(70), &"a".repeat(63)),
        ] {
            assert_eq!(external_service_name(node), expected);
        }
    }

    #[test]
    fn ports_are_sorted() {
        let demand = Demand::of(&service(), &ReservedPorts::default()).expect("possible");
        assert_eq!(demand.ports, [Port { source: 80, target: 30080 }, Port { source: 443, target: 30443 }]);
        assert!(demand.source_ranges.is_empty());
    }

    #[test]
    fn what_cattle_cannot_do_is_refused() {
        let changed = |change: fn(&mut LoadBalancerService)| {
            let mut service = service();
            change(&mut service);
            Demand::of(&service, &ReservedPorts::default()).expect_err("refused")
        };
        for (error, part) in [
            (changed(|s| s.load_balancer_ip = Some("192.0.2.1".to_owned())), "spec.loadBalancerIP"),
            (
                changed(|s| s.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 5 }),
                "spec.sessionAffinity",
            ),
            (
                changed(|s| s.external_traffic_policy = ExternalTrafficPolicy::Local),
                "spec.externalTrafficPolicy",
            ),
            (changed(|s| s.ports[0].protocol = Protocol::Udp), "443/UDP"),
            (changed(|s| s.ports[0].protocol = Protocol::Sctp), "443/SCTP"),
            (changed(|s| s.ports[0].node_port = None), "allocateLoadBalancerNodePorts"),
            (changed(|s| s.ports[0].port = 42), "port 42"),
            (changed(|s| s.ports[0].port = 10250), "loadBalancer.reservedPorts"),
            (changed(|s| s.ports[0].port = 30001), "loadBalancer.reservedPorts"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = changed(|s| s.load_balancer_source_ranges = vec!["10.0.0.0".to_owned()]);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn source_ranges_are_networks() {
        let ranges = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            let service = LoadBalancerService { load_balancer_source_ranges: texts, ..service() };
            let ranges = Demand::of(&service, &ReservedPorts::default()).expect("possible").source_ranges;
            ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(ranges(&["10.1.2.3/8", " 10.0.0.0/8", "fd00::/8"]), ["10.0.0.0/8", "fd00::/8"]);
        assert!(ranges(&["0.0.0.0/0"]).is_empty(), "everybody");
    }
}

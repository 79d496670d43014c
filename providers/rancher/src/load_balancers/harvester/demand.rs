//! What a Service asks for, and whether Harvester can do it.

use std::net::IpAddr;

use address_pools::{KUBE_VIP_IPS, PICKED};
use cloudprovider::{Error, ErrorKind, IpFamilyPolicy, LoadBalancerService, Protocol, Result, dns};

use super::object::{CLUSTER, DHCP, GROUP, HealthCheck, Listener, Spec, Words};
use crate::config::{HarvesterAnnouncer, HarvesterConfig, Ipam, PoolAnnotation};

/// What the annotations of a Service begin with, as with harvester-cloud-provider.
const PREFIX: &str = "cloudprovider.harvesterhci.io/";

/// The label that makes a load balancer one of ours. Its value is the UID of the Service. It is written with
/// the object, and nothing without it is ever changed or deleted.
pub(super) const OWNER: &str = "service.cloudprovider.kubernetes.io/uid";

/// The longest name of a load balancer.
const MAX_NAME: usize = 63;

/// The length of the digest at its end.
const DIGEST: usize = 8;

/// What a load balancer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// The UID of the Service.
    pub(super) uid: String,
    /// The labels of the object, [`OWNER`] among them.
    pub(super) labels: Words,
    /// The annotations by which Harvester picks a pool. Its webhook derives most of them itself; a newer one
    /// takes the network.
    pub(super) annotations: Words,
    /// The rest.
    pub(super) spec: Spec,
    /// The way to an address that the Service itself names.
    pub(super) asked_ipam: Option<Ipam>,
    /// An address that a person asks for. Harvester takes no wishes, so it is good only if it is the one that
    /// Harvester gave.
    pub(super) asked_address: Option<AskedAddress>,
    /// Annotations of the Service that are left out, since the configuration does not permit them.
    pub(super) left_out: Vec<PoolAnnotation>,
}

/// An address that a person asks for, as text, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedAddress {
    pub(super) text: String,
    pub(super) place: &'static str,
}

impl AskedAddress {
    /// Whether it is this one.
    pub(super) fn is(&self, address: IpAddr) -> bool {
        self.text.trim().parse() == Ok(address)
    }

    /// The error of a Service that asks for an address.
    pub(super) fn refusal(&self) -> Error {
        let words = format!(
            "Harvester picks the address of a load balancer, so {} cannot ask for one: remove it",
            self.place
        );
        Error::unsupported(words)
    }
}

impl Demand {
    /// What this Service asks for.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what Harvester cannot do, and for what the configuration does not let
    /// Services choose; [`ErrorKind::InvalidInput`] for what no load balancer can.
    pub(super) fn of(
        cluster: &str,
        service: &LoadBalancerService,
        settings: &HarvesterConfig,
    ) -> Result<Self> {
        let annotation = |name: &str| {
            let value = service.annotations.get(&format!("{PREFIX}{name}"));
            value.map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        if annotation("primary-service").is_some() {
            return Err(Error::unsupported(format!(
                "the annotation {PREFIX}primary-service is not supported: a Service cannot share the address of another one"
            )));
        }
        refuse_families(service)?;
        if !dns::is_label(cluster) {
            let words = format!(
                "--cluster-name is {cluster:?}, which cannot be part of a name in Harvester: use at most 63 lower-case letters, digits and -"
            );
            return Err(Error::new(ErrorKind::InvalidConfiguration, words));
        }
        let chosen = |which: PoolAnnotation| annotation(which.as_str());
        let is_permitted = |which| settings.service_annotations.contains(&which);
        // Whether it would choose something else than the configuration has.
        let chooses = |which, configured: Option<&str>| {
            !is_permitted(which) && chosen(which).is_some_and(|value| Some(value) != configured)
        };
        let asked_ipam = chosen(PoolAnnotation::Ipam).map(ipam).transpose()?;
        // The Service would get an address from elsewhere than it asks for.
        for (which, configured) in [
            (PoolAnnotation::Ipam, Some(settings.ipam.as_str())),
            (PoolAnnotation::Network, settings.network.as_deref()),
        ] {
            if chooses(which, configured) {
                return Err(not_permitted(which));
            }
        }
        // Harvester sets these itself anyway.
        let left_out: Vec<_> = [PoolAnnotation::Project, PoolAnnotation::Namespace]
            .into_iter()
            .filter(|which| chosen(*which).is_some() && !is_permitted(*which))
            .collect();
        let ipam = asked_ipam.unwrap_or(settings.ipam);
        if ipam == Ipam::Dhcp && settings.announcer != HarvesterAnnouncer::KubeVip {
            return Err(Error::unsupported(
                "an address from a DHCP server (ipam: dhcp) can only be had where kube-vip announces the addresses",
            ));
        }
        let mut annotations = Words::new();
        let mut add = |name: &str, value: Option<&str>| {
            value.map(|value| annotations.insert(format!("{GROUP}/{name}"), value.to_owned()))
        };
        add("cluster", Some(cluster));
        add("network", chosen(PoolAnnotation::Network).or(settings.network.as_deref()));
        for which in
            [PoolAnnotation::Project, PoolAnnotation::Namespace].into_iter().filter(|one| is_permitted(*one))
        {
            add(which.as_str(), chosen(which));
        }
        let labels = [
            (OWNER.to_owned(), service.uid.clone()),
            (format!("{PREFIX}cluster"), cluster.to_owned()),
            (format!("{PREFIX}serviceNamespace"), service.namespace.clone()),
            (format!("{PREFIX}serviceName"), service.name.clone()),
        ];
        let spec = Spec {
            description: Some(format!("Service {}/{} of cluster {cluster}", service.namespace, service.name)),
            workload_type: Some(CLUSTER.to_owned()),
            ipam: Some(ipam.as_str().to_owned()),
            ip_pool: settings.ip_pool.clone().filter(|_| ipam == Ipam::Pool),
            listeners: service.ports.iter().map(listener).collect(),
            health_check: health_check(service, annotation)?,
        };
        Ok(Self {
            uid: service.uid.clone(),
            labels: labels.into_iter().collect(),
            annotations,
            spec,
            asked_ipam,
            asked_address: asked_address(service),
            left_out,
        })
    }
}

/// The error of a Service that chooses what is the operator's to choose.
fn not_permitted(which: PoolAnnotation) -> Error {
    let words = format!(
        "the annotation {PREFIX}{which} chooses where the address comes from, which is the operator's choice: remove it, or have {which} added to loadBalancer.harvester.serviceAnnotations in the configuration"
    );
    Error::unsupported(words)
}

/// Harvester gives one IPv4 address.
fn refuse_families(service: &LoadBalancerService) -> Result<()> {
    let has_v4 = service.ip_families.is_empty() || service.ip_families.iter().any(|family| family == "IPv4");
    if !has_v4 {
        return Err(Error::unsupported("Harvester gives IPv4 addresses only: add IPv4 to spec.ipFamilies"));
    }
    if service.ip_family_policy == Some(IpFamilyPolicy::RequireDualStack) {
        return Err(Error::unsupported(
            "Harvester gives one IPv4 address only: set spec.ipFamilyPolicy to SingleStack or PreferDualStack",
        ));
    }
    Ok(())
}

fn ipam(text: &str) -> Result<Ipam> {
    let found = Ipam::ALL.iter().copied().find(|one| one.as_str() == text);
    found.ok_or_else(|| {
        let words = format!("the annotation {PREFIX}ipam is {text:?}; it must be pool or dhcp");
        Error::new(ErrorKind::InvalidInput, words)
    })
}

fn listener(port: &cloudprovider::ServicePort) -> Listener {
    let protocol = match port.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    Listener {
        name: port.name.clone(),
        port: port.port,
        protocol: protocol.to_owned(),
        // kube-proxy needs no node port for an address that a Node has itself.
        backend_port: port.node_port.unwrap_or(port.port),
    }
}

/// The health check of the annotations. The defaults are those of harvester-cloud-provider.
fn health_check<'a>(
    service: &LoadBalancerService,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> Result<Option<HealthCheck>> {
    let invalid = |name: &str, words: &str| {
        Error::new(ErrorKind::InvalidInput, format!("the annotation {PREFIX}{name} {words}"))
    };
    let number = |name: &str, default: u32| match annotation(name).map(str::parse::<u32>) {
        None => Ok(default),
        Some(Ok(number)) if number > 0 => Ok(number),
        Some(_) => Err(invalid(name, "must be a whole number of 1 or more")),
    };
    if annotation("healthcheck-port").is_none() {
        return Ok(None);
    }
    let port = number("healthcheck-port", 0)?;
    let found = service.ports.iter().find(|one| u32::from(one.port) == port && one.protocol == Protocol::Tcp);
    let found = found.ok_or_else(|| invalid("healthcheck-port", "must be a TCP port of the Service"))?;
    let node_port = found.node_port.ok_or_else(|| {
        invalid("healthcheck-port", "needs a node port: set spec.allocateLoadBalancerNodePorts to true")
    })?;
    Ok(Some(HealthCheck {
        port: node_port.into(),
        success_threshold: number("healthcheck-success-threshold", 1)?,
        failure_threshold: number("healthcheck-failure-threshold", 3)?,
        period_seconds: number("healthcheck-periodseconds", 5)?,
        timeout_seconds: number("healthcheck-timeoutseconds", 3)?,
    }))
}

/// The address that a person asks for: not one that was picked here before.
fn asked_address(service: &LoadBalancerService) -> Option<AskedAddress> {
    let picked = service.annotations.get(PICKED);
    let asks = |place, text: Option<&String>| {
        let text = text.filter(|text| !text.is_empty() && Some(*text) != picked)?;
        // The word for DHCP names no address.
        let is_dhcp = text.trim().parse() == Ok(DHCP);
        (!is_dhcp).then(|| AskedAddress { text: text.clone(), place })
    };
    asks(KUBE_VIP_IPS, service.annotations.get(KUBE_VIP_IPS))
        .or_else(|| asks("spec.loadBalancerIP", service.load_balancer_ip.as_ref()))
}

/// The name of a Service's load balancer in Harvester, as harvester-cloud-provider forms it: readable, with a
/// digest of the whole that holds the Service's UID.
pub(super) fn name(cluster: &str, service: &LoadBalancerService) -> String {
    // Names in Harvester begin with a letter.
    let first = if cluster.starts_with(|c: char| c.is_ascii_lowercase()) { "" } else { "a" };
    let base = format!("{first}{cluster}-{}-{}-", service.namespace, service.name);
    let digest = crc32fast::hash(format!("{base}{}", service.uid).as_bytes());
    let kept: String = base.chars().take(MAX_NAME - DIGEST).collect();
    format!("{kept}{digest:08x}")
}

#[cfg(test)]
mod tests;

//! How a Service is decoded. One odd Service must not end the watch, so every field may be missing, and a number that is
//! no port counts as none.

use std::collections::BTreeMap;

use cloudprovider::{
    ExternalTrafficPolicy, IpFamilyPolicy, IpMode, LoadBalancerIngress, LoadBalancerService,
    LoadBalancerStatus, PortStatus, Protocol, ServicePort, SessionAffinity, TargetPort,
};
use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{ObjectMeta, Time},
    util::intstr::IntOrString,
};
use serde::{Deserialize, Deserializer};

use super::Service;

/// `spec.sessionAffinityConfig.clientIP.timeoutSeconds` where it is not set.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// The parts of a Service on the wire that are parsed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WireService {
    #[serde(default, deserialize_with = "needed_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(rename = "type")]
    service_type: Option<String>,
    load_balancer_class: Option<String>,
    ports: Option<Vec<WirePort>>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Option<Vec<String>>,
    ip_families: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
    #[serde(rename = "loadBalancerIP")]
    load_balancer_ip: Option<String>,
    load_balancer_source_ranges: Option<Vec<String>>,
    ip_family_policy: Option<String>,
    session_affinity: Option<String>,
    session_affinity_config: Option<WireAffinityConfig>,
    external_traffic_policy: Option<String>,
    health_check_node_port: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    name: Option<String>,
    protocol: Option<String>,
    app_protocol: Option<String>,
    port: i64,
    target_port: Option<IntOrString>,
    node_port: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireAffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<WireClientIp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClientIp {
    timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    load_balancer: Option<WireLoadBalancer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireLoadBalancer {
    ingress: Option<Vec<WireIngress>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireIngress {
    ip: Option<String>,
    hostname: Option<String>,
    ip_mode: Option<String>,
    ports: Option<Vec<WirePortStatus>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePortStatus {
    port: i64,
    protocol: Option<String>,
    error: Option<String>,
}

fn needed_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let wire = WireMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        namespace: wire.namespace,
        name: wire.name,
        uid: wire.uid,
        resource_version: wire.resource_version,
        deletion_timestamp: wire.deletion_timestamp,
        finalizers: wire.finalizers,
        labels: wire.labels,
        annotations: wire.annotations,
        ..ObjectMeta::default()
    })
}

crate::of_kind!(WireService, k8s_openapi::api::core::v1::Service);

impl From<WireService> for Service {
    fn from(wire: WireService) -> Self {
        let WireService { metadata, spec, status } = wire;
        let ingress =
            status.load_balancer.and_then(|load_balancer| load_balancer.ingress).unwrap_or_default();
        let timeout_seconds = spec
            .session_affinity_config
            .and_then(|config| config.client_ip?.timeout_seconds)
            .unwrap_or(DEFAULT_AFFINITY_SECONDS);
        let content = LoadBalancerService {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            ports: service_ports(spec.ports.unwrap_or_default()),
            cluster_ips: spec.cluster_ips.unwrap_or_default(),
            ip_families: spec.ip_families.unwrap_or_default(),
            ip_family_policy: spec.ip_family_policy.as_deref().and_then(ip_family_policy),
            external_ips: spec.external_ips.unwrap_or_default(),
            load_balancer_ip: some_text(spec.load_balancer_ip),
            load_balancer_source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
            session_affinity: match spec.session_affinity.as_deref() {
                Some("ClientIP") => SessionAffinity::ClientIp { timeout_seconds },
                _ => SessionAffinity::None,
            },
            external_traffic_policy: match spec.external_traffic_policy.as_deref() {
                Some("Local") => ExternalTrafficPolicy::Local,
                _ => ExternalTrafficPolicy::Cluster,
            },
            health_check_node_port: spec.health_check_node_port.and_then(port_number),
            status: LoadBalancerStatus { ingress: ingress.into_iter().map(ingress_point).collect() },
        };
        let service = Self {
            content,
            resource_version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            service_type: spec.service_type.unwrap_or_default(),
            load_balancer_class: spec.load_balancer_class,
        };
        service.without_needless()
    }
}

fn ip_family_policy(text: &str) -> Option<IpFamilyPolicy> {
    match text {
        "SingleStack" => Some(IpFamilyPolicy::SingleStack),
        "PreferDualStack" => Some(IpFamilyPolicy::PreferDualStack),
        "RequireDualStack" => Some(IpFamilyPolicy::RequireDualStack),
        _ => None,
    }
}

/// Decoding grows the vector to a capacity of four, and a collected vector takes over that memory: for one port, five times
/// what it needs, in every Service that is kept.
fn service_ports(wire: Vec<WirePort>) -> Vec<ServicePort> {
    let mut ports = Vec::with_capacity(wire.len());
    ports.extend(wire.into_iter().map(service_port));
    ports
}

fn service_port(wire: WirePort) -> ServicePort {
    ServicePort {
        name: wire.name.unwrap_or_default(),
        protocol: protocol(wire.protocol.as_deref()),
        app_protocol: some_text(wire.app_protocol),
        port: port_number(wire.port).unwrap_or_default(),
        target_port: match wire.target_port {
            Some(IntOrString::Int(number)) => port_number(number.into()).map(TargetPort::Number),
            Some(IntOrString::String(name)) => some_text(Some(name)).map(TargetPort::Name),
            None => None,
        },
        node_port: wire.node_port.and_then(port_number),
    }
}

fn ingress_point(wire: WireIngress) -> LoadBalancerIngress {
    let port = |wire: WirePortStatus| PortStatus {
        port: port_number(wire.port).unwrap_or_default(),
        protocol: protocol(wire.protocol.as_deref()),
        error: some_text(wire.error),
    };
    LoadBalancerIngress {
        ip: some_text(wire.ip),
        hostname: some_text(wire.hostname),
        ip_mode: match wire.ip_mode.as_deref() {
            Some("VIP") => Some(IpMode::Vip),
            Some("Proxy") => Some(IpMode::Proxy),
            _ => None,
        },
        ports: wire.ports.unwrap_or_default().into_iter().map(port).collect(),
    }
}

fn protocol(word: Option<&str>) -> Protocol {
    match word {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

/// 0 means that there is none.
fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn some_text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(any(test, feature = "testing"))]
impl Service {
    /// Reads a Service as the watch does, for tests.
    ///
    /// # Panics
    /// If it is none.
    #[allow(clippy::expect_used, reason = "a test gives it")]
    pub fn from_json(json: serde_json::Value) -> Self {
        serde_json::from_value::<WireService>(json).expect("a Service").into()
    }
}

#[cfg(test)]
mod tests;

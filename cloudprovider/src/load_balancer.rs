//! Load balancers for Services of type `LoadBalancer`.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;

use crate::{NodeIdentity, Result, UsedAddresses};

/// Load balancers in the cloud.
///
/// Three outcomes are special. They are returned as errors and are recognised through any wrapping:
/// - [`ErrorKind::ImplementedElsewhere`](crate::ErrorKind::ImplementedElsewhere): another component serves
///   this Service. The controller leaves its status alone and reports no failure.
/// - [`ErrorKind::InProgress`](crate::ErrorKind::InProgress) with [`retry_after`](crate::Error::retry_after):
///   the cloud is still working. The controller asks again after exactly this time.
/// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): the Service asks for something that the cloud
///   cannot do. The controller reports this once and waits for the Service to change.
#[async_trait]
pub trait LoadBalancer: fmt::Debug + Send + Sync {
    /// The name of the load balancer in the cloud. It must not change during the life of the Service.
    /// [`default_load_balancer_name`] is a usual choice.
    fn name(&self, cluster_name: &str, service: &LoadBalancerService) -> String;

    /// The present state of the load balancer, or `None` if there is none. A cloud that cannot tell is an error: a
    /// Service without a load balancer loses its finalizer, and the load balancer would never be deleted.
    async fn get(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>>;

    /// Creates the load balancer, or changes it to match `service` and `nodes`, which may be empty. Idempotent.
    ///
    /// Clients find the load balancer at the addresses in `service.status`, so such an address must not go to another Service.
    /// When the controller has written a status that lacks an address of before, it calls this again at once, with that status.
    /// If the second answer lacks one as well, the next call comes after a wait, as after a failure.
    async fn ensure(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus>;

    /// Sets the back ends of an existing load balancer to `nodes`. Changes nothing else.
    ///
    /// [`ImplementedElsewhere`](crate::ErrorKind::ImplementedElsewhere) means that this load balancer needs no list of nodes
    /// from the controller, since another component chooses them. Then the Service gets no event, and no other try is made.
    /// A provider that says so says it whatever the nodes are.
    async fn update(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<()>;

    /// Deletes the load balancer and everything that was created with it. Idempotent: succeeds if it is
    /// already gone. The load balancer is found by its [`name`](Self::name): the ports and nodes that `service` asks for may
    /// have changed since another process made it.
    ///
    /// The controller has cleared the status, so the addresses may go to others. Another component that writes the status may
    /// have written it since, as long as it is not told to stop.
    async fn delete(&self, cluster_name: &str, service: &LoadBalancerService) -> Result<()>;

    /// What an operator should know of addresses that this has to give and that the cluster shows in use. For `check`.
    async fn warnings_about(&self, _in_use: &UsedAddresses) -> Vec<String> {
        Vec::new()
    }
}

/// A Service of type `LoadBalancer`, as a provider sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerService {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, from which providers take their own settings.
    pub annotations: BTreeMap<String, String>,
    /// `spec.ports`, in order.
    pub ports: Vec<ServicePort>,
    /// `spec.clusterIPs`. The first one is the primary IP.
    pub cluster_ips: Vec<String>,
    /// `spec.ipFamilies` as `IPv4` and `IPv6`, in order.
    pub ip_families: Vec<String>,
    /// `spec.ipFamilyPolicy`. `None` where the API server does not say.
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<String>,
    /// `spec.loadBalancerIP`, deprecated in the API and still in use.
    pub load_balancer_ip: Option<String>,
    /// `spec.loadBalancerSourceRanges`, CIDRs as text.
    pub load_balancer_source_ranges: Vec<String>,
    /// `spec.sessionAffinity` with its timeout.
    pub session_affinity: SessionAffinity,
    /// `spec.externalTrafficPolicy`.
    pub external_traffic_policy: ExternalTrafficPolicy,
    /// `spec.healthCheckNodePort`, set if the policy is `Local`. `GET /healthz` on this port says whether a
    /// node has endpoints.
    pub health_check_node_port: Option<u16>,
    /// `status.loadBalancer` as last written.
    pub status: LoadBalancerStatus,
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// `name`, empty where there is one port only.
    pub name: String,
    /// `protocol`.
    pub protocol: Protocol,
    /// `appProtocol`, such as `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
    /// `port`: what clients connect to.
    pub port: u16,
    /// `targetPort` of the pods.
    pub target_port: Option<TargetPort>,
    /// `nodePort`: what the load balancer connects to. `None` where node ports are not allocated.
    pub node_port: Option<u16>,
}

/// A pod's port, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// A TCP or UDP port number.
    Number(u16),
    /// The name of a container port.
    Name(String),
}

/// `spec.ports[].protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `TCP`
    #[default]
    Tcp,
    /// `UDP`
    Udp,
    /// `SCTP`
    Sctp,
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionAffinity {
    /// `None`
    #[default]
    None,
    /// `ClientIP`, with the timeout of `spec.sessionAffinityConfig`.
    ClientIp {
        /// Idle time in seconds after which a client may be sent to another pod. Kubernetes' default is
        /// 10,800.
        timeout_seconds: u32,
    },
}

/// `spec.ipFamilyPolicy`: how many address families a Service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// `SingleStack`: one.
    SingleStack,
    /// `PreferDualStack`: both, or one where the cluster has no more.
    PreferDualStack,
    /// `RequireDualStack`: both.
    RequireDualStack,
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalTrafficPolicy {
    /// `Cluster`: any node takes traffic.
    #[default]
    Cluster,
    /// `Local`: only nodes with endpoints take traffic, and the client's address is kept.
    Local,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// Where clients reach the load balancer.
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerIngress {
    /// An IP address.
    pub ip: Option<String>,
    /// A DNS name.
    pub hostname: Option<String>,
    /// How nodes deliver packets to `ip`.
    pub ip_mode: Option<IpMode>,
    /// The state of individual ports, if the cloud reports it.
    pub ports: Vec<PortStatus>,
}

/// `status.loadBalancer.ingress[].ipMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpMode {
    /// `VIP`: packets arrive with the load balancer's address as destination.
    Vip,
    /// `Proxy`: packets arrive addressed to the node.
    Proxy,
}

/// `status.loadBalancer.ingress[].ports[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The Service's port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// Why the port does not work, as a CamelCase word. `None` if it works.
    pub error: Option<String>,
}

/// The load balancer name that upstream derives from the UID of a Service: `a` followed by the UID without
/// dashes, at most 32 characters.
pub fn default_load_balancer_name(service_uid: &str) -> String {
    std::iter::once('a').chain(service_uid.chars().filter(|c| *c != '-')).take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_name_is_upstreams() {
        assert_eq!(
            default_load_balancer_name("2f5a1b30-6c1e-4d2b-8f43-9d3f0e6a7b11"),
            "a2f5a1b306c1e4d2b8f439d3f0e6a7b1"
        );
        assert_eq!(default_load_balancer_name("x-y"), "axy");
    }
}

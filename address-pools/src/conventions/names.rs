//! The annotations that announcers read, and who announces.

/// kube-vip's annotation for the addresses of a Service. Everybody may ask for addresses with it.
pub const KUBE_VIP_IPS: &str = "kube-vip.io/loadbalancerIPs";
pub(super) const KUBE_VIP_INTERFACE: &str = "kube-vip.io/serviceInterface";
pub(super) const METALLB_IPS: &str = "metallb.io/loadBalancerIPs";
pub(super) const METALLB_SHARING: &str = "metallb.io/allow-shared-ip";
pub(super) const CILIUM_IPS: &str = "lbipam.cilium.io/ips";
pub(super) const CILIUM_SHARING: &str = "lbipam.cilium.io/sharing-key";
pub(super) const CILIUM_NAMESPACES: &str = "lbipam.cilium.io/sharing-cross-namespace";

/// Who makes the network deliver packets for the addresses to the Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Announcer {
    /// The daemon: the pod that leads holds the addresses.
    Itself,
    /// kube-vip. It writes `status.loadBalancer`.
    KubeVip,
    /// MetalLB. It writes `status.loadBalancer`.
    MetalLb,
    /// Cilium. It writes `status.loadBalancer`.
    Cilium,
    /// Nobody that the daemon knows of, such as a router with a static route.
    #[default]
    Nobody,
}

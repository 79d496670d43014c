//! The annotations that kube-vip, MetalLB and Cilium read, and what becomes of each here: they stay on Services when another
//! one announces.

use cloudprovider::LoadBalancerService;

use super::names::{
    Announcer, CILIUM_IPS, CILIUM_NAMESPACES, CILIUM_SHARING, KUBE_VIP_INTERFACE, KUBE_VIP_IPS, METALLB_IPS,
    METALLB_SHARING,
};

/// One annotation of an announcer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Annotation {
    pub(crate) key: &'static str,
    /// Whose it is.
    pub(crate) of: Announcer,
    pub(crate) meaning: Meaning,
}

/// What becomes of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The addresses that a person asks for. Honoured, whoever announces.
    Addresses,
    /// The pool that a person asks for. Mapped to the pool of this name, whoever announces.
    Pool,
    /// The key by which Services share an address. Mapped to the sharing key, whoever announces.
    SharingKey,
    /// Something that its announcer does. It is left to that one, and not supported where another one announces.
    Own,
    /// Not written by persons, or without a meaning of its own.
    Note,
}

use Meaning::{Addresses, Note, Own, Pool, SharingKey};

const fn kube_vip(key: &'static str, meaning: Meaning) -> Annotation {
    Annotation { key, of: Announcer::KubeVip, meaning }
}

const fn metallb(key: &'static str, meaning: Meaning) -> Annotation {
    Annotation { key, of: Announcer::MetalLb, meaning }
}

const fn cilium(key: &'static str, meaning: Meaning) -> Annotation {
    Annotation { key, of: Announcer::Cilium, meaning }
}

/// All of them, older spellings behind the present one.
pub(crate) const ANNOTATIONS: &[Annotation] = &[
    kube_vip(KUBE_VIP_IPS, Addresses),
    kube_vip(KUBE_VIP_INTERFACE, Own),
    kube_vip("kube-vip.io/serviceVLAN", Own),
    kube_vip("kube-vip.io/ignore", Own),
    kube_vip("kube-vip.io/ignore-service-security", Own),
    kube_vip("kube-vip.io/loadbalancerHostname", Own),
    kube_vip("kube-vip.io/macvlanName", Own),
    kube_vip("kube-vip.io/dhcp-broadcast", Own),
    kube_vip("kube-vip.io/ddns", Own),
    kube_vip("kube-vip.io/egress", Own),
    kube_vip("kube-vip.io/egress-internal", Own),
    kube_vip("kube-vip.io/egress-ipv6", Own),
    kube_vip("kube-vip.io/egress-destination-ports", Own),
    kube_vip("kube-vip.io/egress-source-ports", Own),
    kube_vip("kube-vip.io/egress-allowed-networks", Own),
    kube_vip("kube-vip.io/egress-denied-networks", Own),
    kube_vip("kube-vip.io/egress-no-internal-traffic", Own),
    kube_vip("kube-vip.io/egress-detect-api-server", Own),
    kube_vip("kube-vip.io/flush-conntrack", Own),
    kube_vip("kube-vip.io/forwardUPNP", Own),
    kube_vip("kube-vip.io/upnp-lease-duration", Own),
    kube_vip("kube-vip.io/rp_filter", Own),
    kube_vip("kube-vip.io/leaseName", Own),
    kube_vip("kube-vip.io/forcePerServiceElection", Own),
    kube_vip("kube-vip.io/allow-reconcile-without-endpoints", Own),
    kube_vip("kube-vip.io/hwaddr", Note),
    kube_vip("kube-vip.io/requestedIP", Note),
    kube_vip("kube-vip.io/vipHost", Note),
    kube_vip("kube-vip.io/active-endpoint", Note),
    kube_vip("kube-vip.io/active-endpoint-ipv6", Note),
    kube_vip("kube-vip.io/egress-nftables-table", Note),
    metallb(METALLB_IPS, Addresses),
    metallb("metallb.universe.tf/loadBalancerIPs", Addresses),
    metallb("metallb.io/address-pool", Pool),
    metallb("metallb.universe.tf/address-pool", Pool),
    metallb(METALLB_SHARING, SharingKey),
    metallb("metallb.universe.tf/allow-shared-ip", SharingKey),
    metallb("metallb.io/ip-allocated-from-pool", Note),
    metallb("metallb.universe.tf/ip-allocated-from-pool", Note),
    cilium(CILIUM_IPS, Addresses),
    cilium("io.cilium/lb-ipam-ips", Addresses),
    cilium(CILIUM_SHARING, SharingKey),
    cilium("io.cilium/lb-ipam-sharing-key", SharingKey),
    cilium(CILIUM_NAMESPACES, Note),
    cilium("io.cilium/lb-ipam-sharing-cross-namespace", Note),
];

impl Announcer {
    /// The annotations with this meaning, this announcer's first.
    pub(super) fn keys_for(self, meaning: Meaning) -> impl Iterator<Item = &'static str> {
        let of = move |is_own: bool| {
            ANNOTATIONS.iter().filter(move |one| one.meaning == meaning && (one.of == self) == is_own)
        };
        of(true).chain(of(false)).map(|one| one.key)
    }

    /// The annotations of a Service that have no effect, since they are of another announcer.
    pub(crate) fn unsupported(self, service: &LoadBalancerService) -> Vec<&'static str> {
        let others = ANNOTATIONS.iter().filter(|one| one.meaning == Own && one.of != self);
        others.map(|one| one.key).filter(|key| service.annotations.contains_key(*key)).collect()
    }
}

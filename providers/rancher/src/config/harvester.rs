//! The keys `loadBalancer.harvester`.

use std::fmt;

use cloudprovider::{FactoryInput, dns};
use provider_kit::{Findings, Settings};

use super::{
    files::resolve,
    keys::{HARVESTER, SCHEMA},
    load_balancer::LoadBalancerMode,
    words::words,
};
use crate::kubeconfig::KubernetesAccess;

/// The namespace of a kubeconfig that names none.
const NAMESPACE: &str = "default";

/// The longest name of an interface in Linux.
const MAX_INTERFACE_NAME: usize = 15;

/// What the keys begin with.
const PREFIX: &str = "loadBalancer.harvester.";

/// Settings of load balancers in Harvester.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HarvesterConfig {
    /// How Harvester is reached.
    pub access: KubernetesAccess,
    /// The namespace of the load balancers, which must be that of the cluster's virtual machines. Default: that of the
    /// kubeconfig's context.
    pub namespace: String,
    /// Where Harvester takes addresses from, unless a Service says otherwise. Default `pool`.
    pub ipam: Ipam,
    /// The `IPPool` to take addresses from. Without one Harvester picks it.
    pub ip_pool: Option<String>,
    /// The network of the cluster's virtual machines, as `<namespace>/<name>`, by which Harvester picks the pool. Only a newer
    /// Harvester takes it: others use the network of the first virtual machine whose name begins with the cluster's.
    pub network: Option<String>,
    /// The interface of the Nodes on which kube-vip announces.
    pub interface: Option<String>,
    /// Who announces the addresses in the cluster. Default `kube-vip`.
    pub announcer: HarvesterAnnouncer,
    /// With which annotations a Service may choose where its address comes from. Default none: that is the operator's choice,
    /// since a Service could take from what is meant for others.
    pub service_annotations: Vec<PoolAnnotation>,
}

words! {
    /// Where Harvester takes the address of a load balancer from.
    Ipam:
    /// One of its pools.
    Pool = "pool",
    /// A DHCP server, which kube-vip asks.
    Dhcp = "dhcp"
}

words! {
    /// An annotation of a Service that says where its address comes from, without its prefix.
    PoolAnnotation:
    /// A pool of Harvester, or a DHCP server.
    Ipam = "ipam",
    /// The network by which Harvester picks the pool.
    Network = "network",
    /// The project by which Harvester picks the pool.
    Project = "project",
    /// The namespace by which Harvester picks the pool.
    Namespace = "namespace"
}

words! {
    /// Who announces addresses of Harvester in the cluster.
    HarvesterAnnouncer:
    /// kube-vip, which writes the status of the Service.
    KubeVip = "kube-vip",
    /// Nobody that the daemon knows of. The daemon writes the status.
    None = "none"
}

/// Reads the keys, which only the mode `harvester` uses.
pub(super) fn harvester(
    settings: &Settings,
    input: &FactoryInput,
    mode: LoadBalancerMode,
    findings: &mut Findings,
) -> Option<HarvesterConfig> {
    if mode != LoadBalancerMode::Harvester {
        let keys = SCHEMA.section(HARVESTER).into_iter().flat_map(|section| section.keys);
        for at in keys.map(|key| (HARVESTER, "", key.name)).filter(|at| settings.has(*at)) {
            findings.warning(settings.origin(at), "has no effect: it is for loadBalancer.mode: harvester");
        }
        return None;
    }
    let key = |name: &str| format!("{PREFIX}{name}");
    let checked = |name: &str, is_good: fn(&str) -> bool, what: &str, findings: &mut Findings| {
        let text = settings.text(&key(name))?;
        if !is_good(text) {
            findings.problem(settings.origin(&key(name)), what);
        }
        Some(text.to_owned())
    };
    let access = access(settings, input, findings);
    let namespace =
        checked("namespace", dns::is_label, "must be the name of a namespace in Harvester", findings);
    let ipam = settings.word(&key("ipam"), (Ipam::ALL, Ipam::as_str), findings);
    let ip_pool =
        checked("ipPool", dns::is_subdomain, "must be the name of an IPPool in Harvester", findings);
    let is_network = |text: &str| {
        text.split_once('/')
            .is_some_and(|(namespace, name)| dns::is_label(namespace) && dns::is_subdomain(name))
    };
    let network = checked(
        "network",
        is_network,
        "must be a network of Harvester as NAMESPACE/NAME, such as default/vlan100",
        findings,
    );
    let is_interface = |text: &str| {
        text.len() <= MAX_INTERFACE_NAME && !text.contains(|c: char| c == '/' || c.is_whitespace())
    };
    let interface = checked(
        "interface",
        is_interface,
        "must be the name of a network interface: at most 15 characters",
        findings,
    );

    let announcer =
        settings.word(&key("announcedBy"), (HarvesterAnnouncer::ALL, HarvesterAnnouncer::as_str), findings);
    let service_annotations = service_annotations(settings, findings);
    let announcer = announcer.unwrap_or(HarvesterAnnouncer::KubeVip);
    let ipam = ipam.unwrap_or(Ipam::Pool);
    if (ipam, announcer) == (Ipam::Dhcp, HarvesterAnnouncer::None) {
        let what = "dhcp needs kube-vip, which asks the DHCP server: leave announcedBy out, or set pool";
        findings.problem(settings.origin(&key("ipam")), what);
    }
    if interface.is_some() && announcer == HarvesterAnnouncer::None {
        let what = "has no effect: it is for kube-vip, and announcedBy is none";
        findings.warning(settings.origin(&key("interface")), what);
    }
    let access = access?;
    let namespace = namespace.or_else(|| access.namespace().map(str::to_owned));
    Some(HarvesterConfig {
        namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
        access,
        ipam,
        ip_pool,
        network,
        interface,
        announcer,
        service_annotations,
    })
}

fn service_annotations(settings: &Settings, findings: &mut Findings) -> Vec<PoolAnnotation> {
    let key = format!("{PREFIX}serviceAnnotations");
    let Some(text) = settings.text(&key) else { return Vec::new() };
    let of = |word: &str| PoolAnnotation::ALL.iter().copied().find(|one| one.as_str() == word);
    let all: Option<Vec<_>> = text.split(',').map(|word| of(word.trim())).collect();
    all.unwrap_or_else(|| {
        let known: Vec<_> = PoolAnnotation::ALL.iter().map(|one| one.as_str()).collect();
        let what = format!("must be words out of {}, with commas between them", known.join(", "));
        findings.problem(settings.origin(&key), what);
        Vec::new()
    })
}

fn access(settings: &Settings, input: &FactoryInput, findings: &mut Findings) -> Option<KubernetesAccess> {
    let key = format!("{PREFIX}kubeconfig");
    let origin = settings.origin(&key);
    let Some(file) = settings.text(&key) else {
        if !settings.has(&key) {
            let what =
                "is missing; name the file with the kubeconfig of Harvester, which the mode harvester needs";
            findings.problem(origin, what);
        }
        return None;
    };
    match KubernetesAccess::read(input, &resolve(input, file)) {
        Ok(access) => {
            if access.is_insecure() {
                findings.warning(
                    origin,
                    "has insecure-skip-tls-verify, so the certificate of Harvester is not verified",
                );
            }
            Some(access)
        }
        Err(why) => {
            findings.problem(origin, why);
            None
        }
    }
}

#[cfg(test)]
mod tests;

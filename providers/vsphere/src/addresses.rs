//! Which addresses of a machine become addresses of its Node. Pure rules, no vCenter.
//!
//! The order of the rules is CPI's, and the same configuration gives the same addresses.
//! `docs/providers/vsphere/nodes.md` lists the differences.

use std::{cmp::Reverse, net::IpAddr};

use cloudprovider::{NodeAddress, append_missing_addresses};
use ipnet::IpNet;

use crate::vm::{AddressState, Tools, VirtualMachine, VmPower};

/// The annotation with the kubelet's `--node-ip`.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The most addresses of one family and type that are reported: a guest may have any number.
const MOST_ADDRESSES: usize = 32;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// From the word in the configuration, in any letter case.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Ipv4, Self::Ipv6].into_iter().find(|family| family.as_str().eq_ignore_ascii_case(word.trim()))
    }

    /// The word in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }

    fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::Ipv4)
    }
}

/// The operator's rules: the section `nodes` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressRules {
    /// What becomes `InternalIP`.
    pub(crate) internal: Side,
    /// What becomes `ExternalIP`.
    pub(crate) external: Side,
    /// Whether all addresses that match are reported, or only the first one of each family and type.
    pub(crate) all: bool,
}

/// The rules for one type of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// Networks that match, the first one first.
    pub(crate) networks: Vec<IpNet>,
    /// The port group that matches where no network does, in any letter case.
    pub(crate) network_name: Option<String>,
    /// Networks that are left out whatever else matches.
    pub(crate) exclude: Vec<IpNet>,
}

/// Why a machine has no addresses for its Node yet, worded for the Node's condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAddress {
    #[error("it is powered off")]
    Off,
    #[error("it is suspended")]
    Suspended,
    #[error(
        "VMware Tools are not installed in the guest, and nothing else tells vCenter its addresses; install open-vm-tools"
    )]
    ToolsNotInstalled,
    #[error(
        "VMware Tools do not run in the guest, and nothing else tells vCenter its addresses; start open-vm-tools"
    )]
    ToolsNotRunning,
    #[error("VMware Tools have reported no network interface yet")]
    NoNics,
    #[error("none of its interfaces is on the network {internal:?} or {external:?}; they are on {found}")]
    OtherNetworks { internal: String, external: String, found: String },
    #[error("its interfaces have no address that others could reach")]
    OnlyLocal,
    #[error("it has no {} address that the rules under nodes allow; it has {found}", family.as_str())]
    NoneOfFamily { family: Family, found: String },
}

/// An address that a Node may get.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    ip: IpAddr,
    network: &'a str,
    state: AddressState,
}

/// The addresses for the Node of `vm`: the guest's host name first, then by family in the order of
/// `families`.
///
/// `provided` are the addresses that the kubelet was started with ([`provided_node_ips`]). If several
/// addresses match a rule, one of these is preferred.
///
/// # Errors
/// Why there are no addresses. It is an error if any one of the families has none.
pub(crate) fn select(
    vm: &VirtualMachine,
    rules: &AddressRules,
    families: &[Family],
    provided: &[IpAddr],
) -> Result<Vec<NodeAddress>, NoAddress> {
    let candidates = candidates(vm, rules, provided)?;
    let mut addresses: Vec<_> =
        vm.guest_host_name.as_deref().map(NodeAddress::hostname).into_iter().collect();
    for family in families {
        let of_family: Vec<_> =
            candidates.iter().filter(|candidate| family.has(candidate.ip)).copied().collect();
        let (internal, external) = discover(&of_family, rules, provided);
        if internal.is_empty() && external.is_empty() {
            let found = list(candidates.iter().map(|candidate| candidate.ip.to_string()));
            return Err(NoAddress::NoneOfFamily { family: *family, found });
        }
        append_missing_addresses(&mut addresses, internal.into_iter().map(NodeAddress::internal_ip));
        append_missing_addresses(&mut addresses, external.into_iter().map(NodeAddress::external_ip));
    }
    Ok(addresses)
}

/// The addresses of a machine of any cluster: the guest's host name, then each address that others could reach, as internal and as
/// external. The rules of the configuration are those for the Nodes of the own cluster.
///
/// # Errors
/// Why there is none.
pub(crate) fn of_machine(vm: &VirtualMachine) -> Result<Vec<NodeAddress>, NoAddress> {
    let candidates = candidates(vm, &AddressRules::default(), &[])?;
    let of_family = |family: Family| {
        let of_family = candidates.iter().map(|candidate| candidate.ip).filter(move |ip| family.has(*ip));
        of_family.take(MOST_ADDRESSES)
    };
    let ips: Vec<_> = of_family(Family::Ipv4).chain(of_family(Family::Ipv6)).collect();
    let mut addresses: Vec<_> =
        vm.guest_host_name.as_deref().map(NodeAddress::hostname).into_iter().collect();
    append_missing_addresses(&mut addresses, ips.iter().copied().map(NodeAddress::internal_ip));
    append_missing_addresses(&mut addresses, ips.iter().copied().map(NodeAddress::external_ip));
    Ok(addresses)
}

/// The IP addresses in a Node's annotation, in its order. Entries that are not IP addresses are ignored.
pub(crate) fn provided_node_ips(annotations: &std::collections::BTreeMap<String, String>) -> Vec<IpAddr> {
    let value = annotations.get(PROVIDED_NODE_IP).map_or("", String::as_str);
    value.split(',').filter_map(|part| part.parse().ok()).filter(|ip: &IpAddr| !ip.is_unspecified()).collect()
}

/// The addresses that other machines can reach, best first: the kubelet's own choice, then those that
/// `guestinfo.metadata` configures (which excludes virtual IPs that move between machines), then the rest in
/// vCenter's order. Addresses that the guest itself marks as unusable come last.
fn candidates<'a>(
    vm: &'a VirtualMachine,
    rules: &AddressRules,
    provided: &[IpAddr],
) -> Result<Vec<Candidate<'a>>, NoAddress> {
    if !vm.has_guest_nics {
        return Err(no_nics(vm));
    }
    let nics = &vm.guest_nics;
    if let (Some(internal), Some(external)) = (&rules.internal.network_name, &rules.external.network_name)
        && !nics.iter().any(|nic| is_same(&nic.network, internal) || is_same(&nic.network, external))
    {
        let found = list(nics.iter().map(|nic| format!("{:?}", nic.network)));
        return Err(NoAddress::OtherNetworks {
            internal: internal.clone(),
            external: external.clone(),
            found,
        });
    }
    let mut candidates: Vec<_> = nics
        .iter()
        .flat_map(|nic| nic.addresses.iter().map(|address| (address, &*nic.network)))
        .map(|(address, network)| Candidate { ip: address.ip.to_canonical(), network, state: address.state })
        .filter(|candidate| is_reachable(candidate.ip))
        .collect();
    if candidates.is_empty() {
        return Err(NoAddress::OnlyLocal);
    }
    let place = |list: &[IpAddr], ip| list.iter().position(|other| other.to_canonical() == ip);
    candidates.sort_by_key(|candidate| {
        let preferred = place(provided, candidate.ip);
        let configured = place(&vm.static_addresses, candidate.ip);
        (
            (Reverse(preferred.is_some()), preferred),
            (Reverse(configured.is_some()), configured),
            match candidate.state {
                AddressState::Preferred | AddressState::Unknown => 0,
                AddressState::Deprecated => 1,
                AddressState::Unusable => 2,
            },
        )
    });
    Ok(candidates)
}

fn no_nics(vm: &VirtualMachine) -> NoAddress {
    match (vm.power, vm.tools) {
        (VmPower::Off, _) => NoAddress::Off,
        (VmPower::Suspended, _) => NoAddress::Suspended,
        (VmPower::On, Tools::NotInstalled) => NoAddress::ToolsNotInstalled,
        (VmPower::On, Tools::NotRunning) => NoAddress::ToolsNotRunning,
        (VmPower::On, Tools::Running | Tools::Unknown) => NoAddress::NoNics,
    }
}

/// The internal and the external addresses among those of one family.
fn discover(
    candidates: &[Candidate<'_>],
    rules: &AddressRules,
    provided: &[IpAddr],
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let allowed = |side: &Side| -> Vec<Candidate<'_>> {
        let is_excluded = |ip| side.exclude.iter().any(|network| network.contains(&ip));
        candidates.iter().filter(|candidate| !is_excluded(candidate.ip)).copied().collect()
    };
    let (internal, external) = (allowed(&rules.internal), allowed(&rules.external));
    let mut matches = (matching(&internal, &rules.internal), matching(&external, &rules.external));
    if matches.0.is_empty() && matches.1.is_empty() {
        // no rule applies: each address is internal and external
        let all = |candidates: &[Candidate<'_>]| candidates.iter().map(|candidate| candidate.ip).collect();
        matches = (all(&internal), all(&external));
    }
    let keep = |mut ips: Vec<IpAddr>| {
        if rules.all {
            ips.truncate(MOST_ADDRESSES);
            return ips;
        }
        let chosen = ips.iter().find(|ip| provided.iter().any(|other| other.to_canonical() == **ip));
        chosen.or(ips.first()).copied().into_iter().collect()
    };
    (keep(matches.0), keep(matches.1))
}

/// The addresses in a side's networks, in the order of the networks. If there are none, those on its port
/// group.
fn matching(candidates: &[Candidate<'_>], side: &Side) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for network in &side.networks {
        for candidate in candidates.iter().filter(|candidate| network.contains(&candidate.ip)) {
            if !found.contains(&candidate.ip) {
                found.push(candidate.ip);
            }
        }
    }
    if found.is_empty()
        && let Some(name) = &side.network_name
    {
        found.extend(
            candidates
                .iter()
                .filter(|candidate| is_same(candidate.network, name))
                .map(|candidate| candidate.ip),
        );
    }
    found
}

/// Whether two network names are equal, ignoring letter case.
fn is_same(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}

/// Whether other machines can reach the address: it is a unicast address, and not loopback or link-local.
pub(crate) fn is_reachable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_link_local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

/// Joins texts for a message. A long list is cut.
fn list(texts: impl Iterator<Item = String>) -> String {
    const MOST: usize = 8;
    let mut texts: Vec<_> = texts.collect();
    texts.dedup();
    let more = texts.len().saturating_sub(MOST);
    texts.truncate(MOST);
    match (texts.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => texts.join(", "),
        (false, more) => format!("{} and {more} more", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests;

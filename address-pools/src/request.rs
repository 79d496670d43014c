//! What a Service asks for.

use std::{net::IpAddr, sync::Arc};

use cloudprovider::{
    AddressUser, Error, ErrorKind, ExternalTrafficPolicy, IpFamilyPolicy, LoadBalancerService, Protocol,
    Result, ServiceRef, UsedAddresses,
};

use crate::{
    conventions::{Announcer, KUBE_VIP_IPS, PICKED, POOL},
    excess::Excess,
    range::Family,
};

/// The address that stands for one from a DHCP server, in kube-vip's words.
pub(crate) const DHCP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Seen with MetalLB 0.15.2.
const METALLB_NEEDS_ALL: &str =
    "MetalLB gives a Service of two families an address of each, or none; see spec.ipFamilyPolicy";

/// What a Service asks for, of all that its annotations and its spec say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The Service.
    pub(crate) service: ServiceRef,
    /// The families, those that it prefers first, each once.
    pub(crate) families: Vec<Family>,
    /// How many of the families it needs.
    pub(crate) need: Need,
    /// Why it needs more than it asks for.
    pub(crate) needs_more_since: Option<&'static str>,
    /// The addresses that a person asked for, at most one of each family. Other addresses are no substitute.
    pub(crate) asked: Vec<IpAddr>,
    /// Whether it may ask for an address that is in no pool.
    pub(crate) may_ask_outside: bool,
    /// What the cluster shows in use.
    pub(crate) in_use: Arc<UsedAddresses>,
    /// Addresses of the cloud itself.
    pub(crate) of_cloud: Arc<[IpAddr]>,
    /// What of the addresses in use does not count when an address is picked.
    pub(crate) excess: Arc<Excess>,
    /// Addresses that were picked for it earlier, or that it has in its status. It gets them again if they are free.
    pub(crate) preferred: Vec<IpAddr>,
    /// The addresses in its status.
    pub(crate) in_status: Vec<IpAddr>,
    /// The pool that it asks for by name.
    pub(crate) pool: Option<String>,
    /// The annotation that names the pool.
    pub(crate) pool_key: &'static str,
    /// Its sharing key.
    pub(crate) sharing_key: Option<String>,
    /// Its ports as `80/TCP`, sorted.
    pub(crate) ports: Vec<String>,
    /// Whether its `externalTrafficPolicy` is `Local`.
    pub(crate) is_local: bool,
    /// Whether it asks for an address from a DHCP server.
    pub(crate) asks_for_dhcp: bool,
}

/// How many of its families a Service needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Need {
    /// One address, of the first family that there is.
    #[default]
    One,
    /// One address at least (`PreferDualStack`).
    Some,
    /// An address of each family.
    All,
}

impl Request {
    /// Who uses an address beside claims.
    pub(crate) fn users(&self, address: IpAddr) -> impl Iterator<Item = &AddressUser> {
        let of_cloud = self.of_cloud.contains(&address).then_some(&AddressUser::Cloud);
        self.in_use.of(address).iter().chain(of_cloud)
    }

    /// Reads a Service.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: what it asks for cannot be read or contradicts itself.
    pub(crate) fn of(service: &LoadBalancerService, announcer: Announcer) -> Result<Self> {
        let (families, need) = families(service)?;
        let picked = service.annotations.get(PICKED).and_then(|text| addresses(PICKED, text).ok());
        let wishes = Wishes::of(service, announcer, picked.as_deref().unwrap_or_default())?;
        let asked = wishes.agreed()?;
        let asks_for_dhcp = asked.contains(&DHCP);
        if asks_for_dhcp && asked.len() > 1 {
            return Err(invalid(format!(
                "{KUBE_VIP_IPS} asks for DHCP (0.0.0.0) and for addresses; give one of the two"
            )));
        }
        let asked: Vec<_> = asked.into_iter().filter(|address| *address != DHCP).collect();
        if let Some(address) = asked.iter().find(|address| !families.contains(&Family::of(**address))) {
            let has: Vec<_> = families.iter().map(|family| family.as_str()).collect();
            return Err(invalid(format!(
                "{address} is asked for, and is no {} address; spec.ipFamilies says which families the Service has",
                has.join(" or "),
            )));
        }
        let ingress = service.status.ingress.iter();
        let in_status: Vec<IpAddr> =
            ingress.filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect();
        // One that it has already may have been assigned by MetalLB itself, which keeps it.
        let needs_more = need == Need::Some && announcer == Announcer::MetalLb && in_status.is_empty();
        let needs_more_since = (needs_more && families.len() > 1).then_some(METALLB_NEEDS_ALL);
        let need = if needs_more_since.is_some() { Need::All } else { need };
        let preferred = in_status.iter().copied().chain(picked.into_iter().flatten());
        let (pool, pool_key) = wanted_pool(service, announcer)?;
        let mut ports: Vec<_> =
            service.ports.iter().map(|port| format!("{}/{}", port.port, word(port.protocol))).collect();
        ports.sort_unstable();
        ports.dedup();
        Ok(Self {
            service: ServiceRef {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                uid: service.uid.clone(),
            },
            families,
            need,
            needs_more_since,
            asked,
            may_ask_outside: false,
            in_use: Arc::default(),
            of_cloud: Arc::default(),
            excess: Arc::default(),
            preferred: preferred.collect(),
            in_status,
            pool,
            pool_key,
            sharing_key: announcer.wanted_sharing_key(service),
            ports,
            is_local: service.external_traffic_policy == ExternalTrafficPolicy::Local,
            asks_for_dhcp,
        })
    }

    /// The asked-for address of a family.
    pub(crate) fn asked_of(&self, family: Family) -> Option<IpAddr> {
        self.asked.iter().copied().find(|address| Family::of(*address) == family)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

/// An annotation that is not empty.
fn text(service: &LoadBalancerService, key: &str) -> Option<String> {
    let text = service.annotations.get(key)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The pool that a Service asks for, and the annotation by which it does so.
fn wanted_pool(
    service: &LoadBalancerService,
    announcer: Announcer,
) -> Result<(Option<String>, &'static str)> {
    let mut wanted = announcer.pool_keys().filter_map(|key| Some((key, text(service, key)?)));
    let Some((key, pool)) = wanted.next() else { return Ok((None, POOL)) };
    match wanted.find(|(_, other)| *other != pool) {
        Some((second, other)) => Err(invalid(format!(
            "{key} asks for the pool {pool:?} and {second} for {other:?}; give one of the two"
        ))),
        None => Ok((Some(pool), key)),
    }
}

fn families(service: &LoadBalancerService) -> Result<(Vec<Family>, Need)> {
    let mut families = Vec::new();
    for name in &service.ip_families {
        let family = Family::from_kubernetes(name)
            .ok_or_else(|| invalid(format!("spec.ipFamilies has {name:?}; known: IPv4, IPv6")))?;
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        return Ok((Family::ALL.to_vec(), Need::One));
    }
    let need = match service.ip_family_policy {
        Some(IpFamilyPolicy::SingleStack) => {
            families.truncate(1);
            Need::All
        }
        Some(IpFamilyPolicy::RequireDualStack) => Need::All,
        // An API server that does not say it has one family, or prefers both.
        Some(IpFamilyPolicy::PreferDualStack) | None => Need::Some,
    };
    Ok((families, need))
}

fn addresses(key: &str, text: &str) -> Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let address: IpAddr = part.parse().map_err(|_| {
            invalid(format!("{key}: {part:?} is not an IP address; write one address, or one of each family joined by a comma"))
        })?;
        found.push(address.to_canonical());
    }
    Ok(found)
}

/// The field that was there before annotations.
const FIELD: &str = "spec.loadBalancerIP";

/// The addresses that a Service asks for, by where it does so.
struct Wishes(Vec<(&'static str, Vec<IpAddr>)>);

impl Wishes {
    /// Reads all places. What says the same as `picked` is no wish: it was not written by a person.
    fn of(service: &LoadBalancerService, announcer: Announcer, picked: &[IpAddr]) -> Result<Self> {
        let mut wishes = Vec::new();
        for key in announcer.address_keys() {
            let Some(text) = service.annotations.get(key) else { continue };
            let asked = addresses(key, text)?;
            let was_picked = !picked.is_empty()
                && asked.len() == picked.len()
                && asked.iter().all(|one| picked.contains(one));
            if !asked.is_empty() && !was_picked {
                wishes.push((key, asked));
            }
        }
        if let Some(text) = service.load_balancer_ip.as_deref().filter(|text| !text.trim().is_empty()) {
            let asked = addresses(FIELD, text)?;
            if asked.len() > 1 {
                return Err(invalid(format!(
                    "{FIELD} has {} addresses; give one, and several in {KUBE_VIP_IPS}",
                    asked.len()
                )));
            }
            if !asked.iter().all(|one| picked.contains(one)) {
                wishes.push((FIELD, asked));
            }
        }
        Ok(Self(wishes))
    }

    /// The wishes as one, in the order of the first place.
    fn agreed(&self) -> Result<Vec<IpAddr>> {
        let mut agreed: Vec<(&str, IpAddr)> = Vec::new();
        for (key, asked) in &self.0 {
            for address in asked {
                match agreed.iter().find(|(_, known)| Family::of(*known) == Family::of(*address)) {
                    Some((_, known)) if known == address => {}
                    Some((first, known)) if first == key => {
                        return Err(invalid(format!(
                            "{key} asks for {known} and {address}; give one address of each family"
                        )));
                    }
                    Some((first, known)) => {
                        return Err(invalid(format!(
                            "{first} asks for {known} and {key} for {address}; give one of the two"
                        )));
                    }
                    None => agreed.push((*key, *address)),
                }
            }
        }
        Ok(agreed.into_iter().map(|(_, address)| address).collect())
    }
}

#[cfg(test)]
mod tests;

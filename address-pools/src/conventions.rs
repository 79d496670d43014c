//! The annotations and labels of those who announce addresses.

mod annotations;
mod names;

use std::net::IpAddr;

use cloudprovider::{LoadBalancerService, ServiceChange};

pub use self::names::{Announcer, KUBE_VIP_IPS};
use self::{
    annotations::Meaning,
    names::{
        CILIUM_IPS, CILIUM_NAMESPACES, CILIUM_SHARING, KUBE_VIP_INTERFACE, METALLB_IPS, METALLB_SHARING,
    },
};

/// The pool that a Service wants its addresses from. Value: the name of a pool.
pub const POOL: &str = "service.cloudprovider.kubernetes.io/address-pool";
/// Services with the same value may share an address, where their pool allows it.
pub const SHARING_KEY: &str = "service.cloudprovider.kubernetes.io/sharing-key";
/// The addresses that were picked for a Service and written into the annotation of whoever announces them. It tells such
/// an annotation from one that a person wrote. Not set by people.
pub const PICKED: &str = "service.cloudprovider.kubernetes.io/picked-ips";

/// The interface that was written for kube-vip. It tells that from one that a person wrote. Not set by people.
pub(crate) const PICKED_INTERFACE: &str = "service.cloudprovider.kubernetes.io/picked-interface";

/// The sharing key that was written for MetalLB or Cilium. It tells that from one that a person wrote. Not set by people.
pub(crate) const PICKED_SHARING_KEY: &str = "service.cloudprovider.kubernetes.io/picked-sharing-key";

const KUBE_VIP_LABEL: (&str, &str) = ("implementation", "kube-vip");
/// The label of Services that have an address for Cilium. Cilium's pools select it, so that Cilium picks none by itself.
const CILIUM_LABEL: (&str, &str) = ("service.cloudprovider.kubernetes.io/announced-by", "cilium");
/// The value of Cilium's annotation for all namespaces.
const ALL_NAMESPACES: &str = "*";

/// What is written into a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The addresses in the order of `spec.ipFamilies`, or kube-vip's word for DHCP.
    pub addresses: &'a [IpAddr],
    /// The interface of their pool.
    pub interface: Option<&'a str>,
    /// The key by which the Service shares them.
    pub sharing_key: Option<&'a str>,
}

impl Announcer {
    /// Those that can be named in a configuration.
    pub(crate) const OTHERS: [Self; 4] = [Self::KubeVip, Self::MetalLb, Self::Cilium, Self::Nobody];

    /// The word in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Itself => "itself",
            Self::KubeVip => "kube-vip",
            Self::MetalLb => "metallb",
            Self::Cilium => "cilium",
            Self::Nobody => "none",
        }
    }

    /// Whether it writes `status.loadBalancer` itself.
    pub(crate) fn writes_status(self) -> bool {
        matches!(self, Self::KubeVip | Self::MetalLb | Self::Cilium)
    }

    /// The annotations by which a Service asks for addresses. Ours is the first one.
    pub(crate) fn address_keys(self) -> impl Iterator<Item = &'static str> {
        self.keys_for(Meaning::Addresses)
    }

    /// The annotations by which a Service asks for a pool. Ours is the first one.
    pub(crate) fn pool_keys(self) -> impl Iterator<Item = &'static str> {
        std::iter::once(POOL).chain(self.keys_for(Meaning::Pool))
    }

    /// The key by which a person wants the Service to share addresses. What was written here is no wish.
    pub(crate) fn wanted_sharing_key(self, service: &LoadBalancerService) -> Option<String> {
        let annotations = &service.annotations;
        let picked = annotations.get(PICKED_SHARING_KEY);
        let is_ours =
            |key: &str| [METALLB_SHARING, CILIUM_SHARING].contains(&key) && annotations.get(key) == picked;
        let keys = std::iter::once(SHARING_KEY).chain(self.keys_for(Meaning::SharingKey));
        let wishes = keys.filter(|key| !is_ours(key));
        let mut keys = wishes.filter_map(|key| annotations.get(key).map(|text| text.trim()));
        keys.find(|key| !key.is_empty()).map(str::to_owned)
    }

    /// The annotation that it takes a sharing key from, where it has one.
    fn written_sharing_key(self) -> Option<&'static str> {
        match self {
            Self::MetalLb => Some(METALLB_SHARING),
            Self::Cilium => Some(CILIUM_SHARING),
            Self::Itself | Self::KubeVip | Self::Nobody => None,
        }
    }

    /// The annotation that it takes addresses from, where it does.
    fn written_addresses(self) -> Option<&'static str> {
        match self {
            Self::KubeVip => Some(KUBE_VIP_IPS),
            Self::MetalLb => Some(METALLB_IPS),
            Self::Cilium => Some(CILIUM_IPS),
            Self::Itself | Self::Nobody => None,
        }
    }

    /// What to write so that it announces the addresses.
    pub fn change(self, service: &LoadBalancerService, outcome: &Outcome<'_>) -> ServiceChange {
        let mut change = Change { service, change: ServiceChange::default() };
        match self {
            Self::Itself | Self::Nobody => {}
            Self::KubeVip => {
                change.remove_label(CILIUM_LABEL);
                change.addresses(KUBE_VIP_IPS, outcome.addresses);
                // kube-vip before it knew the annotation reads this field. A Service whose address a person wrote into the
                // annotation alone keeps the field as it is.
                if change.is_picked() {
                    change.load_balancer_ip(outcome.addresses.first());
                } else if change.field_was_picked() {
                    change.load_balancer_ip(None);
                }
                change.label(KUBE_VIP_LABEL);
                change.interface(outcome.interface);
            }
            Self::MetalLb => {
                change.remove_label(CILIUM_LABEL);
                // MetalLB refuses a Service that has both this annotation and spec.loadBalancerIP.
                let is_asked_by_field = outcome.addresses.len() == 1
                    && parsed(service.load_balancer_ip.as_deref()) == outcome.addresses.first().copied();
                if is_asked_by_field {
                    change.remove_picked(METALLB_IPS);
                } else {
                    change.addresses(METALLB_IPS, outcome.addresses);
                    change.load_balancer_ip(None);
                }
            }
            Self::Cilium => {
                change.addresses(CILIUM_IPS, outcome.addresses);
                change.label(CILIUM_LABEL);
                if outcome.sharing_key.is_some() {
                    change.set(CILIUM_NAMESPACES, ALL_NAMESPACES);
                }
            }
        }
        if let Some(key) = self.written_sharing_key() {
            change.sharing_key(key, outcome.sharing_key);
        }
        if let Some(key) = self.written_addresses() {
            change.remove_picked_for_others(key);
        }
        change.change
    }

    /// What to remove from a Service that gives its addresses back: what was picked for it, not what a person wrote.
    pub fn removal(self, service: &LoadBalancerService) -> ServiceChange {
        let mut change = ServiceChange::default();
        if let Some(picked) = service.annotations.get(PICKED_INTERFACE) {
            change.annotations.insert(PICKED_INTERFACE.to_owned(), None);
            if service.annotations.get(KUBE_VIP_INTERFACE) == Some(picked) {
                change.annotations.insert(KUBE_VIP_INTERFACE.to_owned(), None);
            }
        }
        let mut sharing = Change { service, change };
        for key in [METALLB_SHARING, CILIUM_SHARING] {
            sharing.sharing_key(key, None);
        }
        sharing.remove_label(CILIUM_LABEL);
        let mut change = sharing.change;
        let Some(picked) = service.annotations.get(PICKED) else { return change };
        change.annotations.insert(PICKED.to_owned(), None);
        for key in [KUBE_VIP_IPS, METALLB_IPS, CILIUM_IPS] {
            if service.annotations.get(key) == Some(picked) {
                change.annotations.insert(key.to_owned(), None);
            }
        }
        if self == Self::KubeVip && service.load_balancer_ip.as_deref() == picked.split(',').next() {
            change.load_balancer_ip = Some(None);
        }
        let mut change = Change { service, change };
        if self == Self::KubeVip {
            change.remove_label(KUBE_VIP_LABEL);
        }
        change.change
    }
}

/// A change that is being put together.
struct Change<'a> {
    service: &'a LoadBalancerService,
    change: ServiceChange,
}

impl Change<'_> {
    fn set(&mut self, key: &str, value: &str) {
        if self.service.annotations.get(key).map(String::as_str) != Some(value) {
            self.change.annotations.insert(key.to_owned(), Some(value.to_owned()));
        }
    }

    fn has_label(&self, (label, value): (&str, &str)) -> bool {
        self.service.labels.get(label).map(String::as_str) == Some(value)
    }

    fn label(&mut self, label: (&str, &str)) {
        if !self.has_label(label) {
            self.change.labels.insert(label.0.to_owned(), Some(label.1.to_owned()));
        }
    }

    fn remove_label(&mut self, label: (&str, &str)) {
        if self.has_label(label) {
            self.change.labels.insert(label.0.to_owned(), None);
        }
    }

    /// Writes the addresses and that they were picked. What a person wrote stays as it is if it says the same.
    fn addresses(&mut self, key: &str, addresses: &[IpAddr]) {
        let text = joined(addresses);
        let present = self.service.annotations.get(key).map(String::as_str);
        if present.is_some_and(|present| says(present, addresses)) {
            let picked = self.service.annotations.get(PICKED);
            // A person wrote other addresses than those that were picked before.
            if picked.is_some_and(|picked| *picked != text) {
                self.change.annotations.insert(PICKED.to_owned(), None);
            }
            return;
        }
        self.set(key, &text);
        self.set(PICKED, &text);
    }

    /// Writes kube-vip's interface and that it was written here. Another one, which a person wrote, stays.
    fn interface(&mut self, interface: Option<&str>) {
        let annotations = &self.service.annotations;
        let (present, picked) = (annotations.get(KUBE_VIP_INTERFACE), annotations.get(PICKED_INTERFACE));
        if present.is_some() && present != picked {
            if picked.is_some() {
                self.change.annotations.insert(PICKED_INTERFACE.to_owned(), None);
            }
            return;
        }
        for key in [KUBE_VIP_INTERFACE, PICKED_INTERFACE] {
            match interface {
                Some(interface) => self.set(key, interface),
                None if annotations.contains_key(key) => {
                    self.change.annotations.insert(key.to_owned(), None);
                }
                None => {}
            }
        }
    }

    /// Writes a sharing key and that it was written here, or takes it back. A person's stays if it says the same, or if
    /// nothing is shared.
    fn sharing_key(&mut self, key: &str, value: Option<&str>) {
        let annotations = &self.service.annotations;
        let (present, picked) = (annotations.get(key), annotations.get(PICKED_SHARING_KEY));
        let is_ours = present.is_some() && present == picked;
        if let Some(value) = value.filter(|value| is_ours || present.is_none_or(|present| present != value)) {
            self.set(key, value);
            self.set(PICKED_SHARING_KEY, value);
            return;
        }
        if is_ours {
            self.change.annotations.insert(key.to_owned(), None);
            let namespaces = annotations.get(CILIUM_NAMESPACES).map(String::as_str);
            if key == CILIUM_SHARING && namespaces == Some(ALL_NAMESPACES) {
                self.change.annotations.insert(CILIUM_NAMESPACES.to_owned(), None);
            }
        }
        if picked.is_some() {
            self.change.annotations.insert(PICKED_SHARING_KEY.to_owned(), None);
        }
    }

    /// Removes an annotation that was picked.
    fn remove_picked(&mut self, key: &str) {
        let annotations = &self.service.annotations;
        if let Some(picked) = annotations.get(PICKED) {
            self.change.annotations.insert(PICKED.to_owned(), None);
            if annotations.get(key) == Some(picked) {
                self.change.annotations.insert(key.to_owned(), None);
            }
        }
    }

    /// Removes addresses that were picked while somebody else announced. With other addresses they would look like a wish.
    fn remove_picked_for_others(&mut self, own: &str) {
        let annotations = &self.service.annotations;
        let Some(picked) = annotations.get(PICKED) else { return };
        for key in [KUBE_VIP_IPS, METALLB_IPS, CILIUM_IPS].into_iter().filter(|key| *key != own) {
            if annotations.get(key) == Some(picked) {
                self.change.annotations.insert(key.to_owned(), None);
            }
        }
    }

    /// Whether the annotation with the addresses is, or becomes, one that was picked.
    fn is_picked(&self) -> bool {
        match self.change.annotations.get(PICKED) {
            Some(change) => change.is_some(),
            None => self.service.annotations.contains_key(PICKED),
        }
    }

    /// Whether `spec.loadBalancerIP` is an address that was picked before.
    fn field_was_picked(&self) -> bool {
        let picked = self.service.annotations.get(PICKED);
        let field = self.service.load_balancer_ip.as_deref();
        picked.zip(field).is_some_and(|(picked, field)| picked.split(',').any(|one| one == field))
    }

    fn load_balancer_ip(&mut self, address: Option<&IpAddr>) {
        let present = self.service.load_balancer_ip.as_deref().filter(|text| !text.is_empty());
        if parsed(present) != address.copied() {
            self.change.load_balancer_ip = Some(address.map(ToString::to_string));
        }
    }
}

fn parsed(text: Option<&str>) -> Option<IpAddr> {
    text?.trim().parse().ok()
}

/// Whether a list of addresses as text has exactly these.
fn says(text: &str, addresses: &[IpAddr]) -> bool {
    let found: Option<Vec<IpAddr>> = text.split(',').map(|part| parsed(Some(part))).collect();
    found.is_some_and(|found| {
        found.len() == addresses.len() && addresses.iter().all(|address| found.contains(address))
    })
}

/// Addresses as all these annotations have them.
pub(crate) fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;

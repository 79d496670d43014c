//! Pools of addresses.

use std::{collections::BTreeMap, net::IpAddr};

use crate::range::{AddressRange, AddressSet, Family, Order};

/// Addresses that Services of certain namespaces may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The operator's name, or the key in kube-vip's `ConfigMap`.
    pub name: String,
    /// The addresses.
    pub addresses: AddressSet,
    /// The namespaces that may use it. Empty: all.
    pub namespaces: Vec<String>,
    /// The network interface that the addresses belong to. `None`: whoever announces them decides.
    pub interface: Option<String>,
    /// Whether a Service that asks for nothing in particular may get an address of this pool.
    pub auto_assign: bool,
    /// Whether the network is asked for an address before the daemon announces it for the first time.
    pub probe: bool,
    /// Which Services may have one address together.
    pub sharing: Sharing,
    /// Which end is handed out first.
    pub order: Order,
    /// Whether IPv4 addresses that end in 0 or 255 are never picked. They can still be asked for.
    pub skips_0_and_255: bool,
    /// Whether the addresses come from a DHCP server. The pool then has no addresses of its own.
    pub dhcp: bool,
    /// Why the pool cannot be used: it cannot be read, and has no addresses. Only pools of a `ConfigMap` have faults; a
    /// configuration with a fault is refused.
    pub fault: Option<String>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            name: String::new(),
            addresses: AddressSet::default(),
            namespaces: Vec::new(),
            interface: None,
            auto_assign: false,
            probe: true,
            sharing: Sharing::default(),
            order: Order::default(),
            skips_0_and_255: false,
            dhcp: false,
            fault: None,
        }
    }
}

/// Which Services may share an address of a pool. In any case their ports differ and all have
/// `externalTrafficPolicy: Cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    #[default]
    Never,
    /// Those with the same sharing key, in whatever namespace.
    ByKey,
    /// All. A new Service gets an address that is in use already if that has its ports free.
    Always,
}

impl Pool {
    /// Whether Services of this namespace may use the pool.
    pub fn serves(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|served| served == namespace)
    }

    /// The first hit in the ranges of a family, in the order of the pool.
    pub(crate) fn first<T>(&self, family: Family, find: impl Fn(&AddressRange) -> Option<T>) -> Option<T> {
        let mut ranges = self.addresses.of_family(family);
        match self.order {
            Order::Ascending => ranges.find_map(find),
            Order::Descending => ranges.rev().find_map(find),
        }
    }

    /// Whether the pool never picks this address by itself.
    pub fn skips(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.skips_0_and_255 && matches!(address.octets()[3], 0 | 255),
            IpAddr::V6(_) => false,
        }
    }
}

/// All pools of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// The pools, those that are used first at the beginning.
    pub pools: Vec<Pool>,
    /// Which of the pools that serve a namespace it gets addresses from.
    pub choice: Choice,
    /// Where the pools are written, for messages.
    pub origin: String,
    /// Namespaces whose Services have addresses on another interface than that of the pool. Empty: on none in particular.
    pub interfaces: BTreeMap<String, String>,
    /// Namespaces whose Services share in another way than the pool says.
    pub sharing: BTreeMap<String, Sharing>,
}

/// Which of several pools a Service that asks for none in particular gets addresses from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Pools for the namespace alone come before pools for all. An exhausted pool is followed by the next one.
    #[default]
    All,
    /// The first pool that serves the namespace, even if it is exhausted, as kube-vip does.
    First,
}

impl Pools {
    /// The pools that a Service of this namespace gets addresses from, the first one first.
    pub fn automatic(&self, namespace: &str) -> Vec<&Pool> {
        let serving = || self.pools.iter().filter(|pool| pool.serves(namespace));
        match self.choice {
            Choice::First => serving().next().into_iter().collect(),
            Choice::All => {
                let (own, common): (Vec<_>, Vec<_>) =
                    serving().filter(|pool| pool.auto_assign).partition(|pool| !pool.namespaces.is_empty());
                own.into_iter().chain(common).collect()
            }
        }
    }

    /// The pool of this name.
    pub fn named(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The pool that has this address, one that serves the namespace if there is such a one.
    pub fn of_address(&self, address: IpAddr, namespace: &str) -> Option<&Pool> {
        let having = || self.pools.iter().filter(|pool| pool.addresses.contains(address));
        having().find(|pool| pool.serves(namespace)).or_else(|| having().next())
    }

    /// The addresses of all pools.
    pub(crate) fn addresses(&self) -> AddressSet {
        self.pools.iter().flat_map(|pool| pool.addresses.ranges()).copied().collect()
    }

    /// The interface of a pool's addresses for Services of this namespace.
    pub fn interface<'a>(&'a self, pool: &'a Pool, namespace: &str) -> Option<&'a str> {
        let interface = self.interfaces.get(namespace).or(pool.interface.as_ref());
        interface.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether Services of this namespace share addresses without asking for it.
    pub(crate) fn all_share(&self, namespace: &str) -> bool {
        self.pools.iter().any(|pool| self.sharing(pool, namespace) == Sharing::Always)
    }

    /// How Services of this namespace share addresses of a pool.
    pub fn sharing(&self, pool: &Pool, namespace: &str) -> Sharing {
        self.sharing.get(namespace).copied().unwrap_or(pool.sharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, namespaces: &[&str], auto_assign: bool) -> Pool {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        Pool { name: name.to_owned(), namespaces, auto_assign, ..Pool::default() }
    }

    #[test]
    fn pools_of_the_namespace_come_first() {
        let all = vec![
            pool("common", &[], true),
            pool("fixed", &[], false),
            pool("shop", &["shop"], true),
            pool("other", &["other"], true),
        ];
        let names = |pools: &Pools, namespace: &str| {
            pools.automatic(namespace).iter().map(|pool| pool.name.clone()).collect::<Vec<_>>()
        };
        let mut pools = Pools { pools: all, ..Pools::default() };
        assert_eq!(names(&pools, "shop"), ["shop", "common"]);
        assert_eq!(names(&pools, "default"), ["common"]);
        pools.choice = Choice::First;
        assert_eq!(names(&pools, "shop"), ["common"]);
    }

    #[test]
    fn addresses_that_end_in_0_or_255_may_be_skipped() {
        let skipping = Pool { skips_0_and_255: true, ..Pool::default() };
        for (address, is_skipped) in [
            ("10.0.0.0", true),
            ("10.0.0.255", true),
            ("10.0.255.1", false),
            ("fd00::", false),
            ("fd00::ff", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(skipping.skips(address), is_skipped, "{address}");
            assert!(!Pool::default().skips(address));
        }
    }
}

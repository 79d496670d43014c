//! Addresses in use beyond those that one writer may block.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Weak},
};

use cloudprovider::{AddressUser, UsedAddresses};
use parking_lot::Mutex;

use crate::pool::Pools;

/// How many addresses in pools one Node blocks. Its kubelet can write any addresses into `status.addresses`, and a compromised one
/// must not block a pool. A Node has four as a rule, an internal and an external address of each family: twice that is room enough.
const OF_NODE: usize = 8;

/// How many external IPs in pools one namespace blocks for the Services of others. A quota limits how many addresses its Services of
/// type `LoadBalancer` take, but one Service has any number of external IPs. An operator who has more of them keeps them out of pools.
const OF_SERVICES: usize = 16;

/// How many endpoints of Clusters in pools one namespace blocks. A Cluster has one, and any user of the namespace writes it.
const OF_CLUSTERS: usize = 16;

/// Who writes addresses that nobody verifies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Writer {
    /// The kubelet of this Node.
    Node(String),
    /// The users of this namespace, in Services.
    Services(String),
    /// The same, in Clusters.
    Clusters(String),
}

impl Writer {
    fn of(user: &AddressUser) -> Option<Self> {
        match user {
            AddressUser::Node(name) => Some(Self::Node(name.clone())),
            AddressUser::ExternalIp(service) => Some(Self::Services(service.namespace.clone())),
            AddressUser::ControlPlane { namespace, .. } => Some(Self::Clusters(namespace.clone())),
            _ => None,
        }
    }

    fn limit(&self) -> usize {
        match self {
            Self::Node(_) => OF_NODE,
            Self::Services(_) => OF_SERVICES,
            Self::Clusters(_) => OF_CLUSTERS,
        }
    }

    /// Whether an address that it writes blocks one of these pools.
    fn reaches(&self, pools: &Pools, address: IpAddr) -> bool {
        pools.pools.iter().any(|pool| {
            let counts = match self {
                Self::Node(_) | Self::Clusters(_) => true,
                Self::Services(namespace) => pool.serves(namespace),
            };
            counts && pool.addresses.contains(address)
        })
    }
}

/// The addresses in pools that a writer lists who lists too many.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    all: usize,
    /// The lowest ones. They are the same for every daemon, whatever it saw first.
    counting: BTreeSet<IpAddr>,
}

/// The writers who list more addresses in pools than count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess(HashMap<Writer, Listed>);

impl Excess {
    pub(crate) fn of(pools: &Pools, used: &UsedAddresses) -> Self {
        let mut listed: HashMap<Writer, BTreeSet<IpAddr>> = HashMap::new();
        for (address, user) in used.iter() {
            if let Some(writer) = Writer::of(user).filter(|writer| writer.reaches(pools, address)) {
                listed.entry(writer).or_default().insert(address);
            }
        }
        let too_many = listed.into_iter().filter(|(writer, all)| all.len() > writer.limit());
        let listed = too_many.map(|(writer, all)| {
            let (count, limit) = (all.len(), writer.limit());
            (writer, Listed { all: count, counting: all.into_iter().take(limit).collect() })
        });
        Self(listed.collect())
    }

    /// Whether this use of an address in a pool does not count.
    pub(crate) fn has(&self, address: IpAddr, user: &AddressUser) -> bool {
        let listed = Writer::of(user).and_then(|writer| self.0.get(&writer));
        listed.is_some_and(|listed| !listed.counting.contains(&address))
    }

    /// What an operator should know, a line for each writer.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines_beside(&Self::default())
    }

    /// The lines of writers that the other one does not have.
    fn lines_beside(&self, other: &Self) -> Vec<String> {
        let mut new: Vec<_> = self.0.iter().filter(|(writer, _)| !other.0.contains_key(writer)).collect();
        new.sort_unstable_by_key(|(writer, _)| *writer);
        new.into_iter().map(|(writer, listed)| line(writer, listed)).collect()
    }
}

fn line(writer: &Writer, listed: &Listed) -> String {
    let (all, counting) = (listed.all, listed.counting.len());
    match writer {
        Writer::Node(name) => format!(
            "Node {name} has {all} addresses of pools in status.addresses, of which the lowest {counting} count, and Services get the others; \
             find out who wrote them"
        ),
        Writer::Clusters(name) => format!(
            "the Clusters of the namespace {name} have {all} addresses of pools in spec.controlPlaneEndpoint, of which the lowest {counting} \
             count, and Services get the others; take them out of the pools"
        ),
        Writer::Services(name) => format!(
            "the Services of the namespace {name} have {all} addresses of pools in spec.externalIPs, of which the lowest {counting} count for \
             other namespaces, and Services there get the others; limit who may write that field, or give the namespace a pool of its own"
        ),
    }
}

/// The excess of what was in use last. It is computed again when something else is in use, or the pools are others.
#[derive(Debug, Default)]
pub(crate) struct LastExcess(Mutex<(Weak<Pools>, Weak<UsedAddresses>, Arc<Excess>)>);

impl LastExcess {
    /// The excess with these pools and this use. It logs who lists too many since the last call.
    pub(crate) fn of(&self, pools: &Arc<Pools>, used: &Arc<UsedAddresses>) -> Arc<Excess> {
        let mut last = self.0.lock();
        let (of_pools, of_used, excess) = &mut *last;
        // A pointer to what is gone equals no other one, since it keeps the room.
        if of_pools.as_ptr() != Arc::as_ptr(pools) || of_used.as_ptr() != Arc::as_ptr(used) {
            let now = Excess::of(pools, used);
            for line in now.lines_beside(excess) {
                tracing::warn!("{line}");
            }
            (*of_pools, *of_used, *excess) = (Arc::downgrade(pools), Arc::downgrade(used), Arc::new(now));
        }
        Arc::clone(excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ip, pools, service_ref};

    #[test]
    fn the_lowest_addresses_of_pools_count() {
        let pools = pools(
            r#"{"pools": [
                {"name": "main", "addresses": ["10.0.0.0/24"]},
                {"name": "shop", "addresses": ["10.0.1.0/24"], "namespaces": ["shop"]}
            ]}"#,
        );
        let external = |number: u8| AddressUser::ExternalIp(service_ref(&number.to_string()));
        let node = || AddressUser::Node("n".to_owned());
        let listed = |of_node: u8, of_namespace: u8| -> UsedAddresses {
            let nodes = (1..=of_node).map(|last| (IpAddr::from([10, 0, last % 2, last]), node()));
            let external_ips =
                (1..=of_namespace).map(|last| (IpAddr::from([10, 0, 0, last]), external(last)));
            // The namespace has no use of this pool, and nobody of these addresses.
            let others = (1..=99).flat_map(|last| {
                let (shop, outside) = (IpAddr::from([10, 0, 1, last]), IpAddr::from([192, 0, 2, last]));
                [(shop, external(0)), (outside, external(0)), (outside, node())]
            });
            nodes.chain(external_ips).chain(others).collect()
        };
        assert_eq!(Excess::of(&pools, &listed(8, 16)), Excess::default());
        let excess = Excess::of(&pools, &listed(9, 17));
        // The even ones come first.
        for (address, user, is_too_much) in [
            ("10.0.1.7", node(), false),
            ("10.0.1.9", node(), true),
            ("10.0.0.16", external(16), false),
            ("10.0.0.17", external(17), true),
            ("10.0.1.9", AddressUser::Node("other".to_owned()), false),
            ("10.0.1.9", AddressUser::ApiServer, false),
        ] {
            assert_eq!(excess.has(ip(address), &user), is_too_much, "{address} {user:?}");
        }
    }
}

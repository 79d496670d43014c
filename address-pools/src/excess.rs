//! Addresses in use beyond those that one writer may block.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Weak},
};

use cloudprovider::{AddressUser, UsedAddresses};
use parking_lot::Mutex;

use crate::{index::Index, pool::Pools};

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
pub(crate) enum Writer {
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
                Self::Node(_) => true,
                Self::Services(namespace) | Self::Clusters(namespace) => pool.serves(namespace),
            };
            counts && pool.addresses.contains(address)
        })
    }
}

/// The writers who list more addresses in pools than count, with all of these.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess(HashMap<Writer, BTreeSet<IpAddr>>);

impl Excess {
    pub(crate) fn of(pools: &Pools, used: &UsedAddresses) -> Self {
        // Most addresses are in no pool.
        let of_pools = pools.addresses();
        let mut listed: HashMap<Writer, BTreeSet<IpAddr>> = HashMap::new();
        for (address, user) in used.iter().filter(|(address, _)| of_pools.contains(*address)) {
            if let Some(writer) = Writer::of(user).filter(|writer| writer.reaches(pools, address)) {
                listed.entry(writer).or_default().insert(address);
            }
        }
        listed.retain(|writer, all| all.len() > writer.limit());
        Self(listed)
    }

    /// Whether this use of an address in a pool does not count: its writer lists enough lower ones, beside those that Services
    /// have claimed. The lowest ones are the same for every daemon, whatever it saw first.
    pub(crate) fn has(&self, address: IpAddr, user: &AddressUser, index: &Index) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let listed = Writer::of(user).and_then(|writer| self.0.get_key_value(&writer));
        listed.is_some_and(|(writer, all)| {
            unclaimed(all.range(..address), index).take(writer.limit()).count() == writer.limit()
        })
    }

    /// What an operator should know, a line for each writer.
    pub(crate) fn lines(&self, index: &Index) -> BTreeMap<Writer, String> {
        let too_many = |(writer, all): &(&Writer, &BTreeSet<IpAddr>)| {
            unclaimed(all.iter(), index).nth(writer.limit()).is_some()
        };
        let listed = self.0.iter().filter(too_many);
        listed.map(|(writer, all)| (writer.clone(), line(writer, all.len()))).collect()
    }
}

/// Those that no Service has claimed.
fn unclaimed<'a>(
    addresses: impl Iterator<Item = &'a IpAddr>,
    index: &Index,
) -> impl Iterator<Item = &'a IpAddr> {
    addresses.filter(|address| index.claim(**address).is_none())
}

fn line(writer: &Writer, all: usize) -> String {
    let limit = writer.limit();
    match writer {
        Writer::Node(name) => format!(
            "Node {name} has {all} addresses of pools in status.addresses; the lowest {limit} without a claim count, and Services that ask \
             for no address get the others; find out who wrote them"
        ),
        Writer::Clusters(name) => format!(
            "the Clusters of the namespace {name} have {all} addresses of pools in spec.controlPlaneEndpoint; the lowest {limit} without a \
             claim count, and Services that ask for no address get the others; take those out of the pools that no Service is to have"
        ),
        Writer::Services(name) => format!(
            "the Services of the namespace {name} have {all} addresses of pools in spec.externalIPs; the lowest {limit} without a claim \
             count for other namespaces, and Services there that ask for no address get the others; limit who may write that field, or \
             give the namespace a pool of its own"
        ),
    }
}

/// The excess of what was in use last. It is computed again when something else is in use, or the pools are others.
#[derive(Debug, Default)]
pub(crate) struct LastExcess(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    pools: Weak<Pools>,
    used: Weak<UsedAddresses>,
    excess: Arc<Excess>,
    /// The lines that were logged of it, or before and still hold.
    lines: BTreeMap<Writer, String>,
}

impl LastExcess {
    /// The excess with these pools and this use. It logs who lists too many since the last call.
    pub(crate) fn of(&self, pools: &Arc<Pools>, used: &Arc<UsedAddresses>, index: &Index) -> Arc<Excess> {
        let mut last = self.0.lock();
        // A pointer to what is gone equals no other one, since it keeps the room.
        if last.pools.as_ptr() != Arc::as_ptr(pools) || last.used.as_ptr() != Arc::as_ptr(used) {
            let excess = Excess::of(pools, used);
            let lines = excess.lines(index);
            for (_, line) in lines.iter().filter(|(writer, _)| !last.lines.contains_key(writer)) {
                tracing::warn!("{line}");
            }
            let (pools, used) = (Arc::downgrade(pools), Arc::downgrade(used));
            *last = Last { pools, used, excess: Arc::new(excess), lines };
        }
        Arc::clone(&last.excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{claim, ip, pools, service_ref};

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
        let cluster = || AddressUser::ControlPlane { namespace: "default".into(), name: "prod".into() };
        let listed = |of_node: u8, of_namespace: u8| -> UsedAddresses {
            let nodes = (1..=of_node).map(|last| (IpAddr::from([10, 0, last % 2, last]), node()));
            let external_ips =
                (1..=of_namespace).map(|last| (IpAddr::from([10, 0, 0, last]), external(last)));
            // The namespace has no use of the pool shop, and nobody of what is in no pool.
            let others = (1..=99).flat_map(|last| {
                let (shop, outside) = (IpAddr::from([10, 0, 1, last]), IpAddr::from([192, 0, 2, last]));
                [(shop, external(0)), (shop, cluster()), (outside, external(0)), (outside, node())]
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
            assert_eq!(excess.has(ip(address), &user, &Index::default()), is_too_much, "{address} {user:?}");
        }
        let writers = |index: &Index| excess.lines(index).into_keys().collect::<Vec<_>>();
        let both = [Writer::Node("n".to_owned()), Writer::Services("default".to_owned())];
        assert_eq!(writers(&Index::default()), both);
        // An address that a Service has claimed leaves room for another one.
        let claimed = Index::new(vec![claim("10.0.0.2", "a")], Vec::new());
        assert!(!excess.has(ip("10.0.1.9"), &node(), &claimed));
        assert!(!excess.has(ip("10.0.0.17"), &external(17), &claimed));
        assert_eq!(writers(&claimed), []);
    }
}

//! Warnings about Services. Each is given once a term.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

use cloudprovider::{AddressUser, ServiceAccess, ServiceRef, UsedAddresses};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    allocate::Plan,
    conventions::SHARING_KEY,
    excess::Excess,
    index::Index,
    pool::{Pool, Pools},
    request::Request,
};

/// The reason of warnings about addresses that something else uses.
pub(crate) const IN_USE: &str = "LoadBalancerAddressInUse";

/// A Warning event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The warnings that were given in this term.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Their messages, by the UID of the Service.
    given: Mutex<HashMap<String, HashSet<String>>>,
}

impl Warnings {
    fn given(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.given.lock()
    }

    /// Gives a warning, unless it was given before.
    pub(crate) fn give(&self, access: &dyn ServiceAccess, service: &ServiceRef, warning: Warning) {
        let Warning { reason, message } = warning;
        if self.given().entry(service.uid.clone()).or_default().insert(message.clone()) {
            access.warn(service, reason, message);
        }
    }

    /// Forgets a Service that has no load balancer any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.given().remove(uid);
    }

    /// Forgets all: the term has ended.
    pub(crate) fn clear(&self) {
        self.given().clear();
    }
}

/// How many addresses of a pool that are in use are named.
const IN_USE_NAMED: usize = 5;

/// What an operator should know of pools that have addresses in use. No claims are known, and no Clusters.
pub(crate) fn pools_in_use(pools: &Pools, in_use: &UsedAddresses) -> Vec<String> {
    let (excess, unclaimed) = (Excess::of(pools, in_use), Index::default());
    let of_pool = |pool: &Pool| {
        let matters = |user: &AddressUser| match user {
            AddressUser::ExternalIp(service) => pool.serves(&service.namespace),
            _ => true,
        };
        let used: BTreeMap<IpAddr, &AddressUser> = in_use
            .iter()
            .filter(|(address, user)| pool.addresses.contains(*address) && matters(user))
            .filter(|(address, user)| !excess.has(*address, user, &unclaimed))
            .collect();
        let named =
            used.iter().take(IN_USE_NAMED).map(|(address, user)| format!("{address} ({})", who(user)));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if used.len() > IN_USE_NAMED { ", ..." } else { "" };
        (!used.is_empty()).then(|| {
            format!(
                "the pool {:?} has {} addresses that the cluster uses, and no Service gets them: {named}{more}; take them out of the pool",
                pool.name,
                used.len()
            )
        })
    };
    pools.pools.iter().filter_map(of_pool).chain(excess.lines(&unclaimed).into_values()).collect()
}

/// Who uses an address, for an operator.
fn who(user: &AddressUser) -> String {
    match user {
        AddressUser::Node(name) => format!("Node {name}"),
        AddressUser::ApiServer => "API server".to_owned(),
        AddressUser::ExternalIp(service) => format!("external IP of Service {service}"),
        AddressUser::OtherLoadBalancer(service) => format!("Service {service} of another class"),
        AddressUser::Cloud => "the cloud itself".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// What a person should know of a plan.
pub(crate) fn warnings_of(request: &Request, plan: &Plan) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut add = |reason, message| warnings.push(Warning { reason, message });
    for (family, why) in &plan.left_out {
        let message = format!("the Service prefers to have an {family} address too, and gets none: {why}");
        add("LoadBalancerFamilyLeftOut", message);
    }
    let namespace = &request.service.namespace;
    if !plan.passed_over.is_empty() {
        let all = plan.passed_over.iter().map(|(address, why)| format!("{address} ({why})"));
        let all = all.collect::<Vec<_>>().join(", ");
        add(
            IN_USE,
            format!(
                "addresses of the pools that are in use were passed over: {all}; take them out of the pools"
            ),
        );
    }
    for one in &plan.held {
        let address = one.address;
        if let Some(used) = &one.in_use {
            add(
                IN_USE,
                format!("{address} is kept, and {used} as well; give one of the two another address"),
            );
        }
        if one.shared_before && one.sharing_key.is_none() {
            let message = format!(
                "{address} is shared with other Services, as before, and nothing allows that; set allowSharing for the pool and the annotation {SHARING_KEY} on all of them, or ask for another address"
            );
            add("LoadBalancerAddressShared", message);
        }
        if let Some((old, why)) = &one.replaces {
            add("LoadBalancerAddressChanged", format!("{old} is replaced by {address}: {why}"));
        }
        if one.is_outside {
            let message = if request.may_ask_outside {
                format!(
                    "{address} is in no pool for the namespace {namespace}; see to it that nothing else uses it"
                )
            } else {
                format!(
                    "{address} is kept, and is in no pool for the namespace {namespace} any more; add it to one, or ask for another address"
                )
            };
            add("LoadBalancerAddressOutsidePools", message);
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ip, pools, service_ref};

    #[test]
    fn an_operator_is_told_of_pools_with_addresses_in_use() {
        let pools = pools(
            r#"{"pools": [
                {"name": "main", "addresses": ["10.0.0.0/24"]},
                {"name": "shop", "addresses": ["10.0.1.0/24"], "namespaces": ["shop"]}
            ]}"#,
        );
        let used: UsedAddresses = [
            (ip("10.0.0.2"), AddressUser::Node("n1".to_owned())),
            (ip("10.0.0.1"), AddressUser::ApiServer),
            (ip("10.0.1.1"), AddressUser::ExternalIp(service_ref("a"))),
            (ip("192.0.2.1"), AddressUser::Cloud),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            pools_in_use(&pools, &used),
            [
                "the pool \"main\" has 2 addresses that the cluster uses, and no Service gets them: 10.0.0.1 (API server), \
              10.0.0.2 (Node n1); take them out of the pool"
            ]
        );
        assert!(pools_in_use(&pools, &UsedAddresses::default()).is_empty());
    }

    #[test]
    fn an_operator_is_told_who_lists_more_addresses_of_pools_than_count() {
        let pools = pools(r#"{"pools": [{"name": "main", "addresses": ["10.0.0.0/24"]}]}"#);
        let used = (1..=200).flat_map(|last| {
            let address = IpAddr::from([10, 0, 0, last]);
            [
                (address, AddressUser::Node("n1".to_owned())),
                (address, AddressUser::ExternalIp(service_ref("a"))),
            ]
        });
        let warnings = pools_in_use(&pools, &used.collect());
        let [pool, node, namespace] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(pool.starts_with("the pool \"main\" has 16 addresses that the cluster uses"), "{pool}");
        assert!(node.starts_with("Node n1 has 200 addresses of pools in status.addresses"), "{node}");
        assert!(node.contains("the lowest 8 without a claim count"), "{node}");
        assert!(namespace.contains("the namespace default have 200 addresses of pools"), "{namespace}");
        assert!(
            namespace.contains("the lowest 16 without a claim count for other namespaces"),
            "{namespace}"
        );
    }
}

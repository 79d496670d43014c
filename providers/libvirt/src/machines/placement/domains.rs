//! Failure domains, as the configuration groups hypervisors.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::machines::FailureDomain;

use crate::config::HypervisorConfig;

/// The failure domains of the hypervisors, sorted by name, for
/// [`ClusterReport::failure_domains`](cloudprovider::machines::ClusterReport::failure_domains). Attributes: `hypervisors`, and `region` and `zone` if all hypervisors of it have the same one.
pub(crate) fn failure_domains(hypervisors: &[HypervisorConfig]) -> Vec<FailureDomain> {
    let mut members: BTreeMap<&str, Vec<&HypervisorConfig>> = BTreeMap::new();
    for hypervisor in hypervisors {
        members.entry(hypervisor.failure_domain()).or_default().push(hypervisor);
    }
    members
        .into_iter()
        .map(|(name, members)| {
            let mut domain = FailureDomain::new(name);
            let mut set = |key: &str, values: BTreeSet<Option<&str>>| {
                if let (1, Some(Some(value))) = (values.len(), values.first()) {
                    domain.attributes.insert(key.to_owned(), (*value).to_owned());
                }
            };
            set("region", members.iter().map(|one| one.region.as_deref()).collect());
            set("zone", members.iter().map(|one| one.zone.as_deref()).collect());
            let names: BTreeSet<&str> = members.iter().map(|one| one.name.as_str()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            domain.attributes.insert("hypervisors".to_owned(), names);
            domain
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn zones_are_failure_domains_where_nothing_else_is_said() {
        let text = "hypervisors:\n\
            - {name: kvm2, uri: 'test:///b', zone: rack-1, region: north}\n\
            - {name: kvm1, uri: 'test:///a', zone: rack-1, region: north}\n\
            - {name: kvm3, uri: 'test:///c', zone: rack-2, failureDomain: hall-2}\n\
            - {name: kvm4, uri: 'test:///d', zone: rack-3, failureDomain: hall-2, region: south}\n\
            - {name: kvm5, uri: 'test:///e'}\n";
        let config = Config::parse(text, None).expect("valid");
        let seen: Vec<_> = failure_domains(&config.hypervisors)
            .into_iter()
            .map(|domain| (domain.name, domain.attributes.into_iter().collect::<Vec<_>>()))
            .collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            seen,
            [
                ("hall-2".to_owned(), vec![pair("hypervisors", "kvm3, kvm4")]),
                ("kvm5".to_owned(), vec![pair("hypervisors", "kvm5")]),
                (
                    "rack-1".to_owned(),
                    vec![pair("hypervisors", "kvm1, kvm2"), pair("region", "north"), pair("zone", "rack-1")]
                ),
            ]
        );
    }
}

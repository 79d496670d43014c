//! Zone and region of a host, from its labels.

use std::collections::BTreeMap;

use cloudprovider::{Zone, label_value_fault};

use crate::config::ZoneRules;

/// The constants of rancher-cloud-controller-manager.
const LEGACY_ZONE: &str = "FailureDomain1";
const LEGACY_REGION: &str = "Region1";

/// Where a host with these labels is. A value that cannot be the value of a Node's label counts as absent.
pub(crate) fn zone_of(labels: &BTreeMap<String, String>, rules: &ZoneRules) -> Zone {
    let value = |key: &str| {
        let value = labels.get(key).filter(|value| !value.is_empty())?;
        label_value_fault(value).is_none().then(|| value.clone())
    };
    let legacy = |constant: &str| rules.legacy_zones.then(|| constant.to_owned());
    Zone {
        zone: value(&rules.zone_label).or_else(|| legacy(LEGACY_ZONE)),
        region: value(&rules.region_label).or_else(|| legacy(LEGACY_REGION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn zones_are_those_of_the_host_or_nothing() {
        let rules = ZoneRules::default();
        let all = labels(&[("topology.kubernetes.io/zone", "a"), ("topology.kubernetes.io/region", "eu")]);
        let zone = zone_of(&all, &rules);
        assert_eq!((zone.zone.as_deref(), zone.region.as_deref()), (Some("a"), Some("eu")));
        for bad in ["", "two words", "-a"] {
            assert_eq!(
                zone_of(&labels(&[("topology.kubernetes.io/zone", bad)]), &rules).zone,
                None,
                "{bad:?}"
            );
        }
    }

    #[test]
    fn the_old_constants_are_for_hosts_without_labels() {
        let rules = ZoneRules { legacy_zones: true, zone_label: "rack".to_owned(), ..ZoneRules::default() };
        let zone = zone_of(&BTreeMap::new(), &rules);
        assert_eq!((zone.zone.as_deref(), zone.region.as_deref()), (Some("FailureDomain1"), Some("Region1")));
        assert_eq!(zone_of(&labels(&[("rack", "r7")]), &rules).zone.as_deref(), Some("r7"));
    }
}

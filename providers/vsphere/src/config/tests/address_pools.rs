//! The section that only this provider has.

use ::address_pools::{Announcer, Source};
use cloudprovider::CloudProvider as _;

use super::*;

#[test]
fn pools_are_read_from_yaml() {
    let text = format!(
        "{MINIMAL}addressPools:\n  announce: true\n  pools:\n  - name: main\n    addresses: [192.0.2.0/28, 'fd00::7']\n    \
         skipEnds: true\n    namespaces: [007]\n"
    );
    let config = parse(&text);
    assert_eq!(config.warnings(), []);
    let found = config.address_pools.clone().expect("pools");
    let Source::Own(pools) = &found.source else { panic!("{found:?}") };
    assert_eq!(pools.pools[0].addresses.to_string(), "192.0.2.1-192.0.2.14, fd00::7");
    assert_eq!(
        (found.announcer, pools.pools[0].namespaces.as_slice()),
        (Announcer::Itself, &["007".to_owned()][..])
    );
    let provider = crate::VSphereProvider::new(config);
    assert!(provider.load_balancer().is_some() && provider.service_access_needs().claims);
    assert!(provider.changes_host_network(), "it announces");
    let without = crate::VSphereProvider::new(parse(MINIMAL));
    assert!(without.load_balancer().is_none() && !without.service_access_needs().claims);
}

#[test]
fn they_stand_beside_the_load_balancers_of_nsx() {
    let text = format!(
        "{MINIMAL}loadBalancer: {{size: SMALL}}\naddressPools: {{kubeVipConfigMap: {{name: pools}}}}\n"
    );
    let config = parse(&text);
    assert!(config.nsx.load_balancer && config.address_pools.is_some());
}

#[test]
fn faults_stop_the_start() {
    let text = format!(
        "{MINIMAL}addressPools: {{announce: maybe, pools: [{{name: a, addresses: [10.0.0.0/33], nmae: b}}]}}\n"
    );
    assert_eq!(
        problems(&text),
        [
            "addressPools.announce: must be true or false",
            "addressPools.pools[0].addresses[0]: \"10.0.0.0/33\" is not a network, range or address; \
             write 10.0.0.0/24, 10.0.0.10-10.0.0.20 or 10.0.0.7",
            "addressPools.pools[0].nmae: unknown key; did you mean \"name\"?",
        ]
    );
}

#[test]
fn of_two_sections_the_last_one_counts() {
    let text = format!(
        "{MINIMAL}addressPools: {{announce: true, pools: [{{name: a, addresses: [192.0.2.1]}}]}}\n\
         addressPools: {{kubeVipConfigMap: {{}}}}\n"
    );
    let pools = parse(&text).address_pools.expect("pools");
    assert_eq!(pools.announcer, Announcer::KubeVip);
    assert_eq!(warnings(&text), ["addressPools: stands there twice; the last one counts"]);
}

#[test]
fn in_ini_they_are_refused_with_the_way_out() {
    let found =
        warnings("[VirtualCenter \"vc1\"]\nuser = u\npassword = p\n[AddressPools]\nannounce = true\n");
    assert_eq!(
        found,
        [": address pools can be given in the YAML format only; write the file in that format"
            .trim_start_matches(": ")]
    );
    let found = warnings(&format!("{MINIMAL}addresspools: {{}}\n"));
    assert!(found[0].contains("did you mean addressPools?"), "{found:?}");
}

use address_pools::Announcer;
use cloudprovider::{CloudProvider as _, FactoryInput};

use super::*;
use crate::{
    RancherProvider,
    config::{Config, Environment},
};

const POOLS: &str = "addressPools: {announce: true, pools: [{name: main, addresses: [192.0.2.0/28]}]}\n";

fn read(rest: &str) -> Result<Config, Vec<String>> {
    let text = format!("url: https://rancher.example.org/v2-beta\naccessKey: a\nsecretKey: b\n{rest}");
    let config = Config::read(&FactoryInput::new(text), &Environment::default());
    config.map_err(|error| error.problems().iter().map(ToString::to_string).collect())
}

fn provider(rest: &str) -> RancherProvider {
    RancherProvider::new(&read(rest).expect("a good configuration")).expect("a provider")
}

#[test]
fn pools_are_a_mode_of_their_own() {
    for mode in ["", "loadBalancer: {mode: pool}\n"] {
        let config = read(&format!("{POOLS}{mode}")).expect("good");
        assert_eq!(config.load_balancer.mode, LoadBalancerMode::Pool);
        assert_eq!(config.address_pools.expect("pools").announcer, Announcer::Itself);
        let provider = provider(&format!("{POOLS}{mode}"));
        assert!(provider.load_balancer().is_some() && provider.service_access_needs().claims);
        assert!(provider.changes_host_network(), "it announces");
    }
}

#[test]
fn the_other_modes_need_nothing_of_the_cluster() {
    for (mode, has) in [("none", false), ("cattle", true)] {
        let provider = provider(&format!("loadBalancer: {{mode: {mode}}}\n"));
        assert_eq!(provider.load_balancer().is_some(), has, "{mode}");
        assert_eq!(provider.service_access_needs(), cloudprovider::ServiceAccessNeeds::default());
        assert!(!provider.changes_host_network());
    }
}

#[test]
fn pools_and_the_mode_belong_together() {
    for (text, expected) in [
        (
            "loadBalancer: {mode: pool}\n".to_owned(),
            "loadBalancer.mode: is pool, which needs the section addressPools",
        ),
        (
            format!("{POOLS}loadBalancer: {{mode: cattle}}\n"),
            "loadBalancer.mode: is cattle, and there are addressPools",
        ),
        (
            format!("{POOLS}loadBalancer: {{mode: none}}\n"),
            "loadBalancer.mode: is none, and there are addressPools",
        ),
        ("addressPools: {pools: []}\n".to_owned(), "addressPools.pools: is empty"),
        (
            "loadBalancer: {mode: pools}\n".to_owned(),
            "loadBalancer.mode: must be one of none, cattle, pool, harvester",
        ),
    ] {
        let faults = read(&text).expect_err("refused");
        assert!(faults.len() == 1 && faults[0].starts_with(expected), "{faults:?}");
    }
}

#[test]
fn in_gcfg_pools_are_refused_with_the_way_out() {
    let text = "[Global]\ncattle-url = https://rancher.example.org\ncattle-access-key = a\ncattle-secret-key = b\n\
                [AddressPools]\nannounce = true\n";
    let error = Config::read(&FactoryInput::new(text), &Environment::default()).expect_err("refused");
    assert!(error.to_string().contains("write the file in YAML"), "{error}");
}

#[test]
fn the_operator_says_which_ports_no_service_gets() {
    let reserved = |value: &str| {
        let config = read(&format!("loadBalancer: {{reservedPorts: {value}}}\n"));
        config.map(|config| config.cattle.reserved_ports)
    };
    assert!(read("").expect("good").cattle.reserved_ports.contains(10250), "closed by default");
    assert!(!reserved("none").expect("good").contains(10250));
    let some = reserved("'22, 8000-8002'").expect("good");
    assert!(some.contains(8001) && !some.contains(10250));
    let faults = reserved("ssh").expect_err("refused");
    assert!(
        faults.len() == 1 && faults[0].starts_with("loadBalancer.reservedPorts: must be ports and ranges"),
        "{faults:?}"
    );
}

use cloudprovider::ErrorKind;

use super::*;
use crate::config::{Config, Environment};

const KUBECONFIG: &str = "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a, namespace: vms}}]\n\
                          clusters: [{name: a, cluster: {server: 'https://10.0.0.1', insecure-skip-tls-verify: true}}]\n\
                          users: [{name: a, user: {token: correct-horse-battery}}]\n";

const RANCHER: &str = "url: https://rancher.example.org\naccessKey: a\nsecretKey: b\n";

fn input(text: &str) -> FactoryInput {
    let files = |path: &std::path::Path| match path.to_str() {
        Some("/etc/ccm/harvester") => Ok(KUBECONFIG.into()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    FactoryInput::new(text).with_path("/etc/ccm/config").with_reader(files)
}

fn read(text: &str) -> (Result<Config, Vec<String>>, Vec<String>) {
    let input = input(text);
    let config = Config::read(&input, &Environment::default()).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        error.problems().iter().map(ToString::to_string).collect()
    });
    (config, input.warnings().iter().map(ToString::to_string).collect())
}

fn yaml(load_balancer: &str) -> (Result<Config, Vec<String>>, Vec<String>) {
    read(&format!("{RANCHER}loadBalancer: {load_balancer}\n"))
}

#[test]
fn little_is_required() {
    let (config, warnings) = yaml("{mode: harvester, harvester: {kubeconfig: harvester}}");
    let found = config.expect("good").harvester.expect("settings");
    assert_eq!(
        (found.namespace.as_str(), found.ipam, found.announcer),
        ("vms", Ipam::Pool, HarvesterAnnouncer::KubeVip)
    );
    assert_eq!((found.ip_pool, found.network, found.interface), (None, None, None));
    assert!(found.service_annotations.is_empty(), "where an address comes from is the operator's choice");
    assert_eq!(
        warnings,
        [
            "loadBalancer.harvester.kubeconfig: has insecure-skip-tls-verify, so the certificate of Harvester is not verified"
        ]
    );
}

#[test]
fn both_formats_have_all_keys() {
    let (config, _) = yaml(
        "{mode: harvester, harvester: {kubeconfig: harvester, namespace: guests, ipam: pool, ipPool: public, \
         network: default/vlan7, interface: eth1, announcedBy: kube-vip, serviceAnnotations: 'ipam, network'}}",
    );
    let gcfg = "[Global]\ncattle-url = https://rancher.example.org\ncattle-access-key = a\ncattle-secret-key = b\n\
                [LoadBalancer]\nmode = harvester\n[Harvester]\nkubeconfig = harvester\nnamespace = guests\nipam = pool\n\
                ip-pool = public\nnetwork = default/vlan7\ninterface = eth1\nannounced-by = kube-vip\n\
                service-annotations = ipam,network\n";
    for config in [config, read(gcfg).0] {
        let found = config.expect("good").harvester.expect("settings");
        assert_eq!(found.namespace, "guests");
        assert_eq!(found.ip_pool.as_deref(), Some("public"));
        assert_eq!(found.network.as_deref(), Some("default/vlan7"));
        assert_eq!(found.interface.as_deref(), Some("eth1"));
        assert_eq!(found.service_annotations, [PoolAnnotation::Ipam, PoolAnnotation::Network]);
    }
}

#[test]
fn faults_name_their_keys() {
    let (config, _) = yaml(
        "{mode: harvester, harvester: {kubeconfig: no-such, namespace: Guests, ipam: static, ipPool: 'a b', \
         network: vlan7, interface: a/b, announcedBy: metallb, serviceAnnotations: 'ipam, healthcheck-port'}}",
    );
    let faults = config.expect_err("refused");
    let keys: Vec<_> = faults.iter().filter_map(|fault| fault.split_once(": ")).map(|(key, _)| key).collect();
    let all = [
        "kubeconfig",
        "namespace",
        "ipam",
        "ipPool",
        "network",
        "interface",
        "announcedBy",
        "serviceAnnotations",
    ];
    assert_eq!(keys, all.map(|name| format!("loadBalancer.harvester.{name}")));
    for (text, expected) in [
        ("{mode: harvester}", "loadBalancer.harvester.kubeconfig: is missing; name the file"),
        (
            "{mode: harvester, harvester: {kubeconfig: harvester, ipam: dhcp, announcedBy: none}}",
            "loadBalancer.harvester.ipam: dhcp needs kube-vip",
        ),
    ] {
        let faults = yaml(text).0.expect_err("refused");
        assert!(faults.len() == 1 && faults[0].starts_with(expected), "{faults:?}");
    }
}

#[test]
fn keys_of_another_mode_are_warned_of() {
    let (config, warnings) = yaml("{mode: none, harvester: {kubeconfig: no-such}}");
    assert!(config.expect("good").harvester.is_none());
    assert_eq!(
        warnings,
        ["loadBalancer.harvester.kubeconfig: has no effect: it is for loadBalancer.mode: harvester"]
    );
}

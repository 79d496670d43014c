//! Services and settings for unit tests.

use cloudprovider::{FactoryInput, LoadBalancerService, Protocol, ServicePort};

use crate::config::{Config, Environment, HarvesterConfig};

pub(super) const UID: &str = "2f5a1b30-6c1e-4d2b-8f43-9d3f0e6a7b11";

/// A Service with a TCP port and a UDP port; the latter has no node port.
pub(super) fn service() -> LoadBalancerService {
    let port = |name: &str, port, protocol, node_port| ServicePort {
        name: name.to_owned(),
        port,
        protocol,
        node_port,
        ..ServicePort::default()
    };
    LoadBalancerService {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: UID.to_owned(),
        ports: vec![port("http", 80, Protocol::Tcp, Some(30080)), port("dns", 53, Protocol::Udp, None)],
        ..LoadBalancerService::default()
    }
}

/// The settings of a configuration that says nothing about them.
pub(super) fn settings() -> HarvesterConfig {
    let kubeconfig = "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a, namespace: vms}}]\n\
                      clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {token: t}}]\n";
    let text = "url: https://rancher.example.org\naccessKey: a\nsecretKey: b\n\
                loadBalancer: {mode: harvester, harvester: {kubeconfig: k}}\n";
    let input = FactoryInput::new(text).with_reader(|_| Ok(kubeconfig.into()));
    let config = Config::read(&input, &Environment::default()).expect("a good configuration");
    config.harvester.expect("settings")
}

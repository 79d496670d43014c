//! The keys of Rancher 1.6.

mod ports;

use std::fmt;

use provider_kit::{Findings, Settings};

pub use self::ports::ReservedPorts;
use super::{
    url::ServerUrl,
    words::{ApiVersion, words},
};

/// What is served of a Rancher 1.6 server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CattleConfig {
    /// The project (environment). `None`: that of the API key.
    pub project: Option<String>,
    /// The types of Node addresses.
    pub address_types: AddressTypes,
    /// The stack that holds all load balancers of the cluster. Default `kubernetes-loadbalancers`.
    pub stack_name: String,
    /// The external ID of this stack. Default `kubernetes-loadbalancers://`.
    pub stack_external_id: String,
    /// The setting of Rancher that names the image of load balancers. Default `lb.instance.image`.
    pub image_setting: String,
    /// Ports that no Service gets: a load balancer's ports are opened on the hosts, where others listen.
    pub reserved_ports: ReservedPorts,
}

impl Default for CattleConfig {
    fn default() -> Self {
        Self {
            project: None,
            address_types: AddressTypes::Internal,
            stack_name: "kubernetes-loadbalancers".to_owned(),
            stack_external_id: "kubernetes-loadbalancers://".to_owned(),
            image_setting: "lb.instance.image".to_owned(),
            reserved_ports: ReservedPorts::default(),
        }
    }
}

words! {
    /// The types that the IP addresses of a host get on its Node.
    AddressTypes:
    /// `InternalIP`.
    Internal = "internal",
    /// `ExternalIP`.
    External = "external",
    /// Both types for each address, as rancher-cloud-controller-manager had it.
    Both = "both"
}

/// Keys of load balancers that only the mode `cattle` uses.
const OF_LOAD_BALANCERS: [&str; 4] =
    ["loadBalancer.stackName", "loadBalancer.stackExternalID", "loadBalancer.imageSetting", RESERVED_PORTS];

const RESERVED_PORTS: &str = "loadBalancer.reservedPorts";

/// Reads the keys. `version` is what the configuration says of the server.
pub(super) fn cattle(
    settings: &Settings,
    url: Option<&ServerUrl>,
    version: ApiVersion,
    findings: &mut Findings,
) -> CattleConfig {
    let default = CattleConfig::default();
    if version == ApiVersion::V3 {
        for name in OF_LOAD_BALANCERS.into_iter().filter(|name| settings.has(*name)) {
            findings.warning(settings.origin(name), "has no effect: it is for load balancers of Rancher 1.6");
        }
    }
    let project = url.and_then(|url| project(settings, url, findings));
    let address_types = settings.word("addresses.types", (AddressTypes::ALL, AddressTypes::as_str), findings);
    let reserved_ports = settings.text(RESERVED_PORTS).map(ReservedPorts::parse).transpose();
    let reserved_ports = reserved_ports.unwrap_or_else(|why| {
        findings.problem(settings.origin(RESERVED_PORTS), why);
        None
    });
    let text = |name: &str, default: String| settings.text(name).map_or(default, str::to_owned);
    CattleConfig {
        project,
        address_types: address_types.unwrap_or(default.address_types),
        stack_name: text("loadBalancer.stackName", default.stack_name),
        stack_external_id: text("loadBalancer.stackExternalID", default.stack_external_id),
        image_setting: text("loadBalancer.imageSetting", default.image_setting),
        reserved_ports: reserved_ports.unwrap_or_default(),
    }
}

/// The project, from its key or from the URL.
fn project(settings: &Settings, url: &ServerUrl, findings: &mut Findings) -> Option<String> {
    let Some(project) = settings.text("projectID") else { return url.project.clone() };
    if !project.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let what = "must be the ID of a project (environment), such as 1a5";
        findings.problem(settings.origin("projectID"), what);
    } else if url.project.as_deref().is_some_and(|other| other != project) {
        let what = "is not the project of the url; give one of the two";
        findings.problem(settings.origin("projectID"), what);
    }
    Some(project.to_owned())
}

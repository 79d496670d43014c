//! The keys of Rancher 2.x.

use cloudprovider::dns;
use ipnet::IpNet;
use provider_kit::{Findings, Settings};

use super::{
    parts::{AddressRules, ClusterSelector, ManagementConfig},
    words::ApiVersion,
};

/// The longest name of a cluster.
const MAX_NAME: usize = 253;

/// What is served of Rancher 2.x, if the configuration is for it.
pub(super) fn management(
    settings: &Settings,
    version: ApiVersion,
    findings: &mut Findings,
) -> Option<ManagementConfig> {
    if version != ApiVersion::V3 {
        return None;
    }
    let namespace = settings.text("namespace").map(str::to_owned);
    if namespace.as_deref().is_some_and(|namespace| !dns::is_label(namespace)) {
        findings
            .problem(settings.origin("namespace"), "must be the name of a namespace, such as fleet-default");
    }
    let addresses = AddressRules {
        internal: networks(settings, "addresses.nodeIPCIDR", findings),
        excluded: networks(settings, "addresses.excludeCIDRs", findings),
    };
    let (id, name) = (settings.text("clusterID"), settings.text("clusterName"));
    let cluster = match (id, name) {
        (Some(id), None) => {
            if !dns::is_label(id) {
                let what = "must be the ID of a cluster, such as local, c-abcde or c-m-abcdefgh";
                findings.problem(settings.origin("clusterID"), what);
            }
            ClusterSelector::Id(id.to_owned())
        }
        (None, Some(name)) => {
            if name.len() > MAX_NAME {
                let what = format!("must be the name of a cluster, of at most {MAX_NAME} bytes");
                findings.problem(settings.origin("clusterName"), what);
            }
            ClusterSelector::Name(name.to_owned())
        }
        (Some(_), Some(_)) => {
            findings.problem(settings.origin("clusterName"), "stands beside clusterID; give one of the two");
            return None;
        }
        (None, None) => {
            if !settings.has("clusterID") && !settings.has("clusterName") {
                let what = "is missing; give clusterID or clusterName, the cluster whose Nodes are served";
                findings.problem(settings.origin("clusterID"), what);
            }
            return None;
        }
    };
    Some(ManagementConfig { cluster, namespace, addresses })
}

/// Networks, with commas between them.
fn networks(settings: &Settings, name: &str, findings: &mut Findings) -> Vec<IpNet> {
    let parts = settings.text(name).unwrap_or_default().split(',').map(str::trim);
    let read: Result<Vec<IpNet>, _> = parts.filter(|part| !part.is_empty()).map(str::parse).collect();
    read.unwrap_or_else(|_| {
        let what = "must be networks with commas between them, such as 10.0.0.0/8,fd00::/8";
        findings.problem(settings.origin(name), what);
        Vec::new()
    })
}

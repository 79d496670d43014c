//! Kubernetes clusters, as named in the metadata of domains.

use std::collections::BTreeSet;

use cloudprovider::{Clusters, ControlPlaneEndpoint, Error, ErrorKind, NodeAddressType, Result, async_trait};
use jiff::Timestamp;

use crate::{domain::Domain, inventory::Inventory, provider::LibvirtProvider};

/// The value of the attribute `role` of a control-plane domain.
const CONTROL_PLANE: &str = "control-plane";

/// The API server's port if the metadata has none.
const API_SERVER_PORT: u16 = 6443;

#[async_trait]
impl Clusters for LibvirtProvider {
    async fn list(&self) -> Result<Vec<String>> {
        let view = self.view();
        if let Some(staleness) = view.staleness() {
            return Err(staleness.with_operation("list clusters"));
        }
        let names: BTreeSet<&str> = view
            .hosts()
            .iter()
            .flat_map(|host| host.state.inventory.domains())
            .filter_map(cluster_of)
            .collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    async fn control_plane_endpoint(&self, cluster: &str) -> Result<Option<ControlPlaneEndpoint>> {
        let view = self.view();
        let members: Vec<(&Inventory, &Domain)> = view
            .hosts()
            .iter()
            .filter(|host| host.state.is_live())
            .flat_map(|host| host.state.inventory.domains().map(|domain| (&host.state.inventory, domain)))
            .filter(|(_, domain)| cluster_of(domain) == Some(cluster))
            .collect();
        let mut control_plane: Vec<_> =
            members.iter().filter(|(_, domain)| domain.is_running() && is_control_plane(domain)).collect();
        control_plane.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let now = Timestamp::now().as_second();
        let endpoint = control_plane.iter().find_map(|(inventory, domain)| {
            let named = domain.metadata.as_ref().and_then(|metadata| metadata.endpoint.as_deref());
            if let Some(endpoint) = named.and_then(parse_endpoint) {
                return Some(endpoint);
            }
            let addresses = inventory.addresses(domain, &self.config().addresses, now);
            let internal = addresses.iter().find(|one| one.address_type == NodeAddressType::InternalIp);
            let address = internal.or(addresses.first())?;
            Some(ControlPlaneEndpoint { host: address.address.clone(), port: API_SERVER_PORT })
        });
        match (endpoint, view.staleness()) {
            (Some(endpoint), _) => Ok(Some(endpoint)),
            (None, Some(staleness)) => Err(staleness.with_operation("find the control plane")),
            (None, None) if members.is_empty() => {
                Err(Error::new(ErrorKind::NotFound, format!("no domain belongs to a cluster {cluster:?}")))
            }
            (None, None) => Ok(None),
        }
    }
}

fn cluster_of(domain: &Domain) -> Option<&str> {
    domain.metadata.as_ref()?.cluster.as_deref()
}

fn is_control_plane(domain: &Domain) -> bool {
    domain.metadata.as_ref().is_some_and(|metadata| metadata.role.as_deref() == Some(CONTROL_PLANE))
}

/// Parses `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
fn parse_endpoint(text: &str) -> Option<ControlPlaneEndpoint> {
    let endpoint =
        |host: &str, port| (!host.is_empty()).then(|| ControlPlaneEndpoint { host: host.to_owned(), port });
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => endpoint(host, port.parse().ok()?),
            None if rest.is_empty() => endpoint(host, API_SERVER_PORT),
            None => None,
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => endpoint(text, API_SERVER_PORT),
        Some((host, port)) => endpoint(host, port.parse().ok()?),
        None => endpoint(text, API_SERVER_PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let text = |text: &str| parse_endpoint(text).map(|endpoint| endpoint.to_string());
        for (given, expected) in [
            ("api.example.org", Some("api.example.org:6443")),
            ("10.0.0.1:443", Some("10.0.0.1:443")),
            ("[fd00::1]:443", Some("[fd00::1]:443")),
            ("[fd00::1]", Some("[fd00::1]:6443")),
            ("fd00::1", Some("[fd00::1]:6443")),
            ("host:port", None),
            (":443", None),
            ("[fd00::1", None),
            ("[fd00::1]x", None),
        ] {
            assert_eq!(text(given).as_deref(), expected, "{given}");
        }
    }
}

//! The addresses that the cluster shows in use, beside those that Services have from us.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use cloudprovider::{AddressUser, ServiceRef, UsedAddresses};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{Service, ServiceStore};
use crate::{
    cache::Changes,
    nodes::{Node, NodeStore},
};

/// How often the addresses of the API server are read.
const READ_INTERVAL: Duration = Duration::from_secs(300);

/// Deadline of that request. Services wait for it.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The API server's own Service, and its `EndpointSlice`: the namespace and the name.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// What uses addresses, by the objects that watches show.
#[derive(Debug)]
pub(super) struct InUse {
    nodes: NodeStore,
    services: ServiceStore,
    /// The host in the URL of the API server.
    host: Option<IpAddr>,
    known: Mutex<Known>,
    /// Locked while the addresses of the API server are read, with when that was done last.
    read: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    nodes: Changes,
    services: Changes,
    by_node: HashMap<String, Vec<(IpAddr, AddressUser)>>,
    by_service: HashMap<String, Vec<(IpAddr, AddressUser)>>,
    control_planes: Vec<ControlPlanes>,
    api_server: Vec<IpAddr>,
    used: Arc<UsedAddresses>,
}

/// The control planes of clusters, as a watch of Cluster API's Clusters shows them.
pub struct ControlPlanes {
    changes: Changes,
    host: Box<dyn Fn(&str) -> Option<String> + Send + Sync>,
    by_cluster: HashMap<String, Vec<(IpAddr, AddressUser)>>,
}

impl ControlPlanes {
    /// `changes` are of Clusters, and `host` gives the host of the endpoint of one, by its namespace and name.
    pub fn new(changes: Changes, host: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { changes, host: Box::new(host), by_cluster: HashMap::new() }
    }
}

impl fmt::Debug for ControlPlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlanes").field("by_cluster", &self.by_cluster).finish_non_exhaustive()
    }
}

impl InUse {
    pub(super) fn new(nodes: NodeStore, services: ServiceStore, host: Option<IpAddr>) -> Self {
        let known = Known {
            nodes: nodes.subscribe(),
            services: services.subscribe(),
            by_node: HashMap::new(),
            by_service: HashMap::new(),
            control_planes: Vec::new(),
            api_server: Vec::new(),
            used: Arc::new(host.map(|address| (address, AddressUser::ApiServer)).into_iter().collect()),
        };
        Self { nodes, services, host, known: Mutex::new(known), read: tokio::sync::Mutex::default() }
    }

    /// From now on the endpoints of these are in use.
    pub(super) fn add(&self, control_planes: ControlPlanes) {
        self.known.lock().control_planes.push(control_planes);
    }

    /// The addresses in use as the watches show them now.
    pub(super) async fn get(&self, client: &Client) -> Arc<UsedAddresses> {
        self.read_api_server(client).await;
        let mut known = self.known.lock();
        let Known { nodes, services, by_node, by_service, control_planes, used, .. } = &mut *known;
        renew(used, by_node, nodes.take(), |name| self.nodes.get(name).map(|node| of_node(&node)));
        renew(used, by_service, services.take(), |key| {
            self.services.get(key).map(|service| of_service(&service))
        });
        for ControlPlanes { changes, host, by_cluster } in control_planes {
            renew(used, by_cluster, changes.take(), |key| host(key).map(|host| of_control_plane(key, &host)));
        }
        Arc::clone(used)
    }

    /// Reads where the API server answers, from time to time. What cannot be read stays as it was.
    async fn read_api_server(&self, client: &Client) {
        let mut read = self.read.lock().await;
        if read.is_some_and(|read| read.elapsed() < READ_INTERVAL) {
            return;
        }
        *read = Some(Instant::now());
        let Some(addresses) = endpoints(client).await else { return };
        let mut known = self.known.lock();
        let before = std::mem::replace(&mut known.api_server, addresses.clone());
        if before == addresses {
            return;
        }
        let used = Arc::make_mut(&mut known.used);
        for address in before.into_iter().filter(|address| self.host != Some(*address)) {
            used.remove(address, &AddressUser::ApiServer);
        }
        used.extend(addresses.into_iter().map(|address| (address, AddressUser::ApiServer)));
    }
}

/// Where the API server answers, as its own `EndpointSlice` says. `None`: that cannot be read.
async fn endpoints(client: &Client) -> Option<Vec<IpAddr>> {
    let (namespace, name) = API_SERVER;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let found = match timeout(READ_TIMEOUT, slices.get_opt(name)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot read the addresses of the API server; pools must not have them");
            return None;
        }
        Err(_) => return None,
    };
    let endpoints = found.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let addresses = endpoints.flat_map(|endpoint| endpoint.addresses);
    Some(addresses.filter_map(|text| text.parse().ok()).collect())
}

/// Where the API server answers.
pub(super) async fn of_api_server(client: &Client) -> Vec<(IpAddr, AddressUser)> {
    let addresses = endpoints(client).await.unwrap_or_default().into_iter();
    addresses.map(|address| (address, AddressUser::ApiServer)).collect()
}

/// Takes over what these objects use now, if they use something else than before.
fn renew(
    used: &mut Arc<UsedAddresses>,
    known: &mut HashMap<String, Vec<(IpAddr, AddressUser)>>,
    changed: HashSet<String>,
    now: impl Fn(&str) -> Option<Vec<(IpAddr, AddressUser)>>,
) {
    for key in changed {
        let now = now(&key).unwrap_or_default();
        if known.get(&key).map(Vec::as_slice).unwrap_or_default() == now {
            continue;
        }
        let used = Arc::make_mut(used);
        for (address, user) in known.remove(&key).unwrap_or_default() {
            used.remove(address, &user);
        }
        used.extend(now.iter().cloned());
        if !now.is_empty() {
            known.insert(key, now);
        }
    }
}

/// The addresses in these texts. Others are names.
fn addresses<'a>(texts: impl Iterator<Item = &'a str> + 'a) -> impl Iterator<Item = IpAddr> + 'a {
    texts.filter_map(|text| text.trim().parse::<IpAddr>().ok()).map(|address| address.to_canonical())
}

pub(super) fn of_node(node: &Node) -> Vec<(IpAddr, AddressUser)> {
    let user = AddressUser::Node(node.name().to_owned());
    let texts = node.identity.addresses.iter().map(|address| address.address.as_str());
    addresses(texts).map(|address| (address, user.clone())).collect()
}

/// The endpoint of a Cluster, which may have a name for its host.
fn of_control_plane(key: &str, host: &str) -> Vec<(IpAddr, AddressUser)> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let user = AddressUser::ControlPlane { namespace: namespace.to_owned(), name: name.to_owned() };
    addresses(std::iter::once(host)).map(|address| (address, user.clone())).collect()
}

pub(super) fn of_service(service: &Service) -> Vec<(IpAddr, AddressUser)> {
    let content = &service.content;
    let name = ServiceRef {
        namespace: content.namespace.clone(),
        name: content.name.clone(),
        uid: content.uid.clone(),
    };
    let external = addresses(content.external_ips.iter().map(String::as_str));
    let external = external.map(|address| (address, AddressUser::ExternalIp(name.clone())));
    let is_elsewhere = service.is_load_balancer() && !service.wants_load_balancer();
    let ingress = content.status.ingress.iter().filter(|_| is_elsewhere);
    let shown = addresses(ingress.filter_map(|ingress| ingress.ip.as_deref()));
    external.chain(shown.map(|address| (address, AddressUser::OtherLoadBalancer(name.clone())))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(json: serde_json::Value) -> Service {
        Service::from_json(json).without_needless()
    }

    #[test]
    fn external_ips_and_addresses_of_other_classes_are_in_use() {
        let of = |service_type: &str, class: Option<&str>| {
            let service = service(json!({
                "metadata": {"namespace": "a", "name": "b", "uid": "u"},
                "spec": {"type": service_type, "loadBalancerClass": class, "externalIPs": ["192.0.2.1", "odd"]},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "x"}]}},
            }));
            let mut found: Vec<_> = of_service(&service).into_iter().map(|(ip, _)| ip.to_string()).collect();
            found.sort();
            found
        };
        assert_eq!(of("ClusterIP", None), ["192.0.2.1"]);
        assert_eq!(of("LoadBalancer", None), ["192.0.2.1"]);
        assert_eq!(of("LoadBalancer", Some("x/y")), ["192.0.2.1", "192.0.2.2"]);
    }

    #[tokio::test]
    async fn what_watches_show_is_followed() {
        let sandbox = sandbox::Sandbox::new();
        let (nodes, services) = (NodeStore::new(), ServiceStore::new());
        let host = "192.0.2.100".parse().ok();
        let in_use = InUse::new(nodes.clone(), services.clone(), host);
        let shown = async || {
            let used = in_use.get(&sandbox.client()).await;
            let mut all: Vec<_> = used.iter().map(|(address, _)| address.to_string()).collect();
            all.sort();
            all
        };
        let node = |name: &str, address: &str| {
            serde_json::from_value::<Node>(json!({
                "metadata": {"name": name},
                "status": {"addresses": [
                    {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address},
                ]},
            }))
            .expect("a Node")
        };
        assert_eq!(shown().await, ["192.0.2.100"]);
        nodes.apply(node("a", "192.0.2.2"));
        nodes.apply(node("b", "192.0.2.2"));
        services.apply(service(json!({
            "metadata": {"namespace": "a", "name": "b", "uid": "u"},
            "spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.3"]},
        })));
        assert_eq!(shown().await, ["192.0.2.100", "192.0.2.2", "192.0.2.2", "192.0.2.3"]);
        nodes.apply(node("a", "192.0.2.4"));
        nodes.remove("b");
        services.remove("a/b");
        assert_eq!(shown().await, ["192.0.2.100", "192.0.2.4"]);
    }
}

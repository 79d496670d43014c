//! The addresses that the cluster shows in use, beside those that Services have from us.

use std::{collections::HashMap, fmt, net::IpAddr, sync::Arc, time::Duration};

use cloudprovider::{AddressUser, ServiceRef, UsedAddresses};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{Service, ServiceStore};
use crate::{
    cache::{Cache, CachedObject, Changes},
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
    /// The host in the URL of the API server.
    host: Option<IpAddr>,
    known: Mutex<Known>,
    /// Locked while the addresses of the API server are read, with when that was done last.
    read: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    objects: Vec<Objects>,
    api_server: Vec<IpAddr>,
    used: Arc<UsedAddresses>,
}

/// The addresses that an object uses.
type Uses = Vec<(IpAddr, AddressUser)>;

/// Objects of one kind that use addresses, as a watch shows them.
struct Objects {
    /// `None` until the addresses in use are asked for. Where no provider has pools of addresses, nobody would take the keys, and each
    /// object that ever was would have one.
    changes: Option<Changes>,
    subscribe: Box<dyn Fn() -> Changes + Send + Sync>,
    /// What the object with this key uses now.
    uses: Box<dyn Fn(&str) -> Uses + Send + Sync>,
    by_key: HashMap<String, Uses>,
}

impl Objects {
    fn of<T: CachedObject>(cache: Cache<T>, uses: impl Fn(&T) -> Uses + Send + Sync + 'static) -> Self {
        let shown = cache.clone();
        Self {
            changes: None,
            subscribe: Box::new(move || shown.subscribe()),
            uses: Box::new(move |key| cache.get(key).map(|object| uses(&object)).unwrap_or_default()),
            by_key: HashMap::new(),
        }
    }

    /// Takes over what the objects use now that use something else than before.
    fn renew(&mut self, used: &mut Arc<UsedAddresses>) {
        // To a new subscriber all objects that exist have changed.
        let changed = self.changes.get_or_insert_with(&self.subscribe).take();
        for key in changed {
            let now = (self.uses)(&key);
            if self.by_key.get(&key).map(Vec::as_slice).unwrap_or_default() == now {
                continue;
            }
            let used = Arc::make_mut(used);
            for (address, user) in self.by_key.remove(&key).unwrap_or_default() {
                used.remove(address, &user);
            }
            used.extend(now.iter().cloned());
            if !now.is_empty() {
                self.by_key.insert(key, now);
            }
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("by_key", &self.by_key).finish_non_exhaustive()
    }
}

/// The control planes of clusters, as a watch of Cluster API's Clusters shows them.
#[derive(Debug)]
pub struct ControlPlanes(Objects);

impl ControlPlanes {
    /// `host` gives the host of the endpoint of a Cluster.
    pub fn new<T: CachedObject>(
        clusters: Cache<T>,
        host: impl Fn(&T) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        Self(Objects::of(clusters, move |cluster| {
            host(cluster).map(|host| of_control_plane(&cluster.key(), host)).unwrap_or_default()
        }))
    }
}

impl InUse {
    pub(super) fn new(nodes: NodeStore, services: ServiceStore, host: Option<IpAddr>) -> Self {
        let known = Known {
            objects: vec![Objects::of(nodes, of_node), Objects::of(services, of_service)],
            api_server: Vec::new(),
            used: Arc::new(host.map(|address| (address, AddressUser::ApiServer)).into_iter().collect()),
        };
        Self { host, known: Mutex::new(known), read: tokio::sync::Mutex::default() }
    }

    /// From now on the endpoints of these are in use.
    pub(super) fn add(&self, control_planes: ControlPlanes) {
        self.known.lock().objects.push(control_planes.0);
    }

    /// The addresses in use as the watches show them now.
    pub(super) async fn get(&self, client: &Client) -> Arc<UsedAddresses> {
        self.read_api_server(client).await;
        let mut known = self.known.lock();
        let Known { objects, used, .. } = &mut *known;
        for objects in objects {
            objects.renew(used);
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
        // No keys are collected until the addresses are asked for.
        assert_eq!((nodes.subscribers(), services.subscribers()), (0, 0));
        nodes.apply(node("a", "192.0.2.2"));
        assert_eq!(shown().await, ["192.0.2.100", "192.0.2.2"]);
        assert_eq!((nodes.subscribers(), services.subscribers()), (1, 1));
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

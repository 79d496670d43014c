//! Which addresses a download may go to.
//!
//! A URL is a tenant's, and the daemon is in a network that the tenant is not in. So a connection goes only
//! to addresses that were looked at: those of the host are looked up once, here, and the client gets them and
//! no others. A proxy looks names up by itself, and is in that network too, so only hosts of the
//! configuration are reached through one.

use std::{
    env, fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use cloudprovider::{async_trait, leads_to};
use http::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use ipnet::IpNet;
use netlink::Netlink;
use parking_lot::RwLock;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};

use crate::allow::{ImageHosts, is_public};

/// The address of the API server, as each pod has it.
const API_SERVER: &str = "KUBERNETES_SERVICE_HOST";

/// How to reach a host.
#[derive(Debug)]
pub(super) enum Way {
    /// At one of these addresses, with the port of the URL.
    Addresses(Vec<SocketAddr>),
    /// Through a proxy.
    Proxy {
        /// Where the proxy is.
        uri: String,
        /// What it is shown.
        authorization: Option<HeaderValue>,
    },
}

/// A host may not be reached, or there is no such host. Which of them it is, is nothing that a tenant may
/// learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotFromHere;

/// What is known of the network.
#[async_trait]
pub(super) trait Neighbours: fmt::Debug + Send + Sync {
    /// The addresses of a host. Empty if there are none.
    async fn look_up(&self, host: &str, port: u16) -> Vec<IpAddr>;

    /// The networks that this machine is in, with its own addresses, and the API server. `None` if they are
    /// not known.
    async fn own(&self) -> Option<Vec<IpNet>>;
}

/// The network as downloads see it.
#[derive(Debug)]
pub(super) struct Network {
    neighbours: Box<dyn Neighbours>,
    proxies: Matcher,
    inside: Inside,
}

/// Networks that no tenant is in, beside those of [`Neighbours::own`], as they become known. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside(Arc<RwLock<Vec<IpNet>>>);

impl Inside {
    /// Adds addresses.
    pub(crate) fn add(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.0.write().extend(addresses.into_iter().map(|address| IpNet::from(address.to_canonical())));
    }

    /// Adds ranges that are separated by commas. Gives the parts that are no range, which are left out.
    #[must_use]
    pub(crate) fn add_ranges<'a>(&self, ranges: &'a str) -> Vec<&'a str> {
        let mut left_out = Vec::new();
        for part in ranges.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse() {
                Ok(range) => self.0.write().push(range),
                Err(_) => left_out.push(part),
            }
        }
        left_out
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<IpNet> {
        self.0.read().clone()
    }
}

impl Network {
    pub(super) fn new(neighbours: Box<dyn Neighbours>, proxies: Matcher, inside: Inside) -> Self {
        Self { neighbours, proxies, inside }
    }

    /// The network of this machine, with the proxies of the environment.
    pub(super) fn of_environment(inside: Inside) -> Self {
        Self::new(Box::new(Machine), Matcher::from_env(), inside)
    }

    /// How to reach the host of a URL.
    pub(super) async fn way_to(
        &self,
        url: &Url,
        hosts: &ImageHosts,
    ) -> std::result::Result<Way, NotFromHere> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(NotFromHere);
        };
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_named =
            hosts.has_name(host, port) || literal.is_some_and(|address| hosts.has_address(address, port));
        if let Some(proxy) = url.as_str().parse().ok().and_then(|uri| self.proxies.intercept(&uri)) {
            if !is_named {
                tracing::info!(
                    host,
                    port,
                    "an image is not fetched: the host is not configured, and there is a proxy"
                );
                return Err(NotFromHere);
            }
            let (uri, authorization) = (proxy.uri().to_string(), proxy.basic_auth().cloned());
            return Ok(Way::Proxy { uri, authorization });
        }
        let found = match literal {
            Some(address) => vec![address],
            None => self.neighbours.look_up(host, port).await,
        };
        let own = if is_named { Some(Vec::new()) } else { self.neighbours.own().await };
        let inside = own.map(|own| [own, self.inside.all()].concat());
        let may_reach = |address: &IpAddr| {
            let forms = [address.to_canonical(), leads_to(*address)];
            let has_it = |network: &IpNet| forms.iter().any(|form| network.contains(form));
            let is_strange = |inside: &Vec<IpNet>| !inside.iter().any(has_it);
            is_named
                || hosts.has_address(*address, port)
                || is_public(*address) && inside.as_ref().is_some_and(is_strange)
        };
        // All of them: a host that has other addresses too, now or the next time, is not a public one.
        if found.is_empty() || !found.iter().all(may_reach) {
            tracing::info!(host, port, addresses = ?found, "an image is not fetched: the host may not be reached");
            return Err(NotFromHere);
        }
        Ok(Way::Addresses(found.into_iter().map(|address| SocketAddr::new(address, port)).collect()))
    }
}

/// Answers with addresses that were checked, whatever the name.
pub(super) struct Fixed(pub(super) Vec<SocketAddr>);

impl Resolve for Fixed {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// This machine.
#[derive(Debug)]
struct Machine;

#[async_trait]
impl Neighbours for Machine {
    async fn look_up(&self, host: &str, port: u16) -> Vec<IpAddr> {
        match tokio::net::lookup_host((host, port)).await {
            Ok(found) => found.map(|address| address.ip()).collect(),
            Err(error) => {
                tracing::info!(host, %error, "an image is not fetched: there is no such host");
                Vec::new()
            }
        }
    }

    async fn own(&self) -> Option<Vec<IpNet>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let messages = Netlink::default().list(request).await;
        let messages =
            messages.inspect_err(|error| tracing::warn!(%error, "cannot list the addresses of this machine"));
        let mut own: Vec<IpNet> = messages.ok()?.iter().flat_map(networks).collect();
        let api_server = env::var(API_SERVER).ok().and_then(|address| address.parse::<IpAddr>().ok());
        own.extend(api_server.map(|address| IpNet::from(address.to_canonical())));
        Some(own)
    }
}

/// The networks of an address of an interface.
fn networks(message: &RouteNetlinkMessage) -> Vec<IpNet> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return Vec::new() };
    let network = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Address(address) | AddressAttribute::Local(address) => {
            IpNet::new(*address, message.header.prefix_len).ok()
        }
        _ => None,
    };
    message.attributes.iter().filter_map(network).collect()
}

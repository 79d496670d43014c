//! The kernel's interfaces and addresses, by netlink.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use netlink::Netlink;
use rtnetlink::{
    AddressMessageBuilder, MulticastGroup, RouteMessageBuilder,
    packet_core::NetlinkPayload,
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo},
        link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage},
        route::{RouteAttribute, RouteHeader, RouteMessage, RouteType},
    },
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    error::{Error, Result},
    interface::{ADDRESS_PROTOCOL, Host, HostAddress, Interface, single},
    limit::Limit,
};

/// How many requests may wait for their answers, which must fit into the socket's buffer.
const MAX_IN_FLIGHT: usize = 64;

/// How long the kernel may take to receive packets for an IPv6 address that it has acknowledged, and how often to look.
const EFFECT_TIMEOUT: Duration = Duration::from_millis(500);
const EFFECT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The kernel's interfaces and addresses.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    netlink: Netlink,
    limit: Limit,
}

/// An address to set on, or to delete from, the interface with an index.
pub(crate) type Target = (IpAddr, u32);

impl Kernel {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { netlink: Netlink::default(), limit }
    }

    /// The interfaces and addresses of the host, without its routes.
    pub(crate) async fn host(&self) -> Result<Host> {
        let mut links = LinkMessage::default();
        links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let links = self.list(RouteNetlinkMessage::GetLink(links), "list the interfaces").await?;
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let addresses = self.list(addresses, "list the addresses").await?;
        let mut host = Host::default();
        for message in links {
            if let RouteNetlinkMessage::NewLink(link) = message {
                host.interfaces.extend(interface(&link));
            }
        }
        for message in addresses {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                host.addresses.extend(host_address(&address));
            }
        }
        Ok(host)
    }

    /// The interfaces of the default routes, of IPv4 and IPv6.
    pub(crate) async fn default_routes(&self) -> Result<[Option<u32>; 2]> {
        let mut interfaces = [None, None];
        for (interface, family) in interfaces.iter_mut().zip([AddressFamily::Inet, AddressFamily::Inet6]) {
            let mut request: RouteMessage = RouteMessageBuilder::<IpAddr>::new().build();
            request.header.address_family = family;
            let routes = self.list(RouteNetlinkMessage::GetRoute(request), "list the routes").await?;
            *interface = default_route(&routes);
        }
        Ok(interfaces)
    }

    /// Sets these addresses, or renews their lives. The answers have the order of `targets`.
    pub(crate) async fn set(&self, targets: &[Target]) -> Vec<Result<()>> {
        each(targets, |target| self.set_one(target).boxed()).await
    }

    /// Deletes these addresses. One that is gone already is no error.
    pub(crate) async fn delete(&self, targets: &[Target]) -> Vec<Result<()>> {
        each(targets, |target| self.delete_one(target).boxed()).await
    }

    /// Waits until the host receives packets for these addresses, which it has acknowledged. For IPv6 that comes some
    /// milliseconds later, in the kernel's own time. Until then a host that forwards packets would send those for the address
    /// back to the network, and so lose its neighbours' answers: traffic would stop for a second.
    pub(crate) async fn take_effect(&self, addresses: &[IpAddr]) {
        let of_ipv6 = addresses.iter().copied().filter(IpAddr::is_ipv6);
        if let Some(address) = wait_until_local(of_ipv6, |address| self.is_local(address).boxed()).await {
            tracing::debug!(%address, "is announced, though the kernel does not receive packets for it yet");
        }
    }

    /// Whether packets for the address stay on this host. An unanswered question counts as yes.
    async fn is_local(&self, address: IpAddr) -> bool {
        let question = RouteMessageBuilder::<IpAddr>::new().destination_prefix(address, single(address));
        let Ok(question) = question else { return true };
        match self.netlink.get(RouteNetlinkMessage::GetRoute(question.build())).await {
            Ok(RouteNetlinkMessage::NewRoute(route)) => route.header.kind == RouteType::Local,
            // no route at all
            Err(netlink::Error::Refused { .. }) => false,
            _ => true,
        }
    }

    async fn list(&self, what: RouteNetlinkMessage, action: &str) -> Result<Vec<RouteNetlinkMessage>> {
        self.netlink.list(what).await.map_err(|error| failed(action, &error))
    }

    /// Sets an address for as long as the limit allows, or renews it. The limit is asked for each one: the process may have
    /// stood still before.
    async fn set_one(&self, (address, interface): Target) -> Result<()> {
        let seconds = self.limit.lifetime().as_secs();
        if seconds == 0 {
            return Err(Error::NotLeading);
        }
        let mut message = message((address, interface));
        let mut lifetime = CacheInfo::default();
        // a preferred life of 0: never a source of the host's own connections
        lifetime.ifa_preferred = 0;
        lifetime.ifa_valid = u32::try_from(seconds).unwrap_or(u32::MAX);
        let mut flags = AddressFlags::Noprefixroute;
        if address.is_ipv6() {
            // The leader before may still have the address; the detection of duplicates would refuse it.
            flags |= AddressFlags::Nodad;
        }
        message.attributes.extend([
            AddressAttribute::CacheInfo(lifetime),
            AddressAttribute::Flags(flags),
            AddressAttribute::Protocol(AddressProtocol::Other(ADDRESS_PROTOCOL)),
        ]);
        match self.netlink.set(RouteNetlinkMessage::NewAddress(message)).await {
            Err(error) if address.is_ipv6() && error.errno() == Some(libc::EACCES) => {
                Err(Error::Ipv6Off { interface: interface.to_string() })
            }
            answer => {
                answer.map_err(|error| failed(&format!("set {address} on interface {interface}"), &error))
            }
        }
    }

    async fn delete_one(&self, (address, interface): Target) -> Result<()> {
        let message = message((address, interface));
        match self.netlink.delete(RouteNetlinkMessage::DelAddress(message)).await {
            Err(error) if matches!(error.errno(), Some(libc::EADDRNOTAVAIL | libc::ENODEV | libc::ENXIO)) => {
                Ok(())
            }
            answer => answer
                .map_err(|error| failed(&format!("delete {address} from interface {interface}"), &error)),
        }
    }
}

/// Waits until `is_local` holds for each of these addresses. Returns the first one for which it does not in time.
async fn wait_until_local<'a>(
    addresses: impl Iterator<Item = IpAddr>,
    is_local: impl Fn(IpAddr) -> BoxFuture<'a, bool>,
) -> Option<IpAddr> {
    let deadline = Instant::now() + EFFECT_TIMEOUT;
    for address in addresses {
        loop {
            // The answer may never come.
            match timeout_at(deadline, is_local(address)).await {
                Ok(true) => break,
                Ok(false) if Instant::now() < deadline => sleep(EFFECT_POLL_INTERVAL).await,
                Ok(false) | Err(_) => return Some(address),
            }
        }
    }
    None
}

/// Acts on each of these, on many at once. The answers have the order of `targets`.
async fn each<'a>(targets: &[Target], act: impl Fn(Target) -> BoxFuture<'a, Result<()>>) -> Vec<Result<()>> {
    // a list, since the compiler cannot prove that a task may move with a lazy iterator
    let acts: Vec<_> = targets.iter().map(|target| act(*target)).collect();
    stream::iter(acts).buffered(MAX_IN_FLIGHT).collect().await
}

/// Reports the indices of interfaces that change. Ends if the kernel's messages cannot be followed any more.
pub(crate) fn link_changes() -> Result<(LinkChanges, mpsc::UnboundedReceiver<u32>)> {
    let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
        .map_err(|error| Error::Kernel {
            action: "follow the interfaces".to_owned(),
            reason: error.to_string(),
        })?;
    let (sender, receiver) = mpsc::unbounded_channel();
    let followed = tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection.fuse());
        loop {
            let message = tokio::select! {
                () = &mut connection => return,
                message = messages.next() => message,
            };
            let Some((message, _)) = message else { return };
            let changed = match message.payload {
                NetlinkPayload::InnerMessage(
                    RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
                ) => link.header.index,
                _ => continue,
            };
            if sender.send(changed).is_err() {
                return;
            }
        }
    });
    Ok((LinkChanges(followed), receiver))
}

/// Follows the interfaces until it is dropped.
#[derive(Debug)]
pub(crate) struct LinkChanges(JoinHandle<()>);

impl Drop for LinkChanges {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The interface of the default route with the smallest metric.
fn default_route(routes: &[RouteNetlinkMessage]) -> Option<u32> {
    let defaults = routes.iter().filter_map(|message| {
        let RouteNetlinkMessage::NewRoute(route) = message else { return None };
        let is_default = route.header.destination_prefix_length == 0
            && route.header.table == RouteHeader::RT_TABLE_MAIN
            // the others reject packets, such as the one that the kernel may have on its loopback interface
            && route.header.kind == RouteType::Unicast;
        let value = |of: fn(&RouteAttribute) -> Option<u32>| route.attributes.iter().find_map(of);
        let interface = value(|one| match one {
            RouteAttribute::Oif(index) => Some(*index),
            // of several gateways the first
            RouteAttribute::MultiPath(hops) => hops.first().map(|hop| hop.interface_index),
            _ => None,
        });
        let metric =
            value(|one| if let RouteAttribute::Priority(metric) = one { Some(*metric) } else { None });
        is_default.then_some((metric.unwrap_or_default(), interface?))
    });
    defaults.min().map(|(_, interface)| interface)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    let mut name = None;
    let mut mac = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) if link.header.link_layer_type == LinkLayerType::Ether => {
                mac = bytes.as_slice().try_into().ok();
            }
            _ => {}
        }
    }
    Some(Interface {
        index: link.header.index,
        name: name?,
        mac,
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_no_arp: flags.contains(LinkFlags::Noarp),
        is_up: flags.contains(LinkFlags::Up) && flags.contains(LinkFlags::LowerUp),
    })
}

fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut peer, mut local, mut protocol, mut valid_for) = (None, None, None, None);
    let mut is_deprecated = false;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(address) => peer = Some(*address),
            // the own address where the other one is that of the peer of a point-to-point link
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Protocol(number) => protocol = Some(u8::from(*number)),
            AddressAttribute::CacheInfo(info) if info.ifa_valid != u32::MAX => {
                valid_for = Some(Duration::from_secs(info.ifa_valid.into()));
            }
            AddressAttribute::Flags(flags) => is_deprecated = flags.contains(AddressFlags::Deprecated),
            _ => {}
        }
    }
    Some(HostAddress {
        interface: message.header.index,
        address: local.or(peer)?,
        prefix_length: message.header.prefix_len,
        protocol,
        valid_for,
        is_deprecated,
    })
}

/// A single address on the interface with an index.
fn message((address, interface): Target) -> AddressMessage {
    let length = single(address);
    match address {
        IpAddr::V4(address) => {
            AddressMessageBuilder::<Ipv4Addr>::new().index(interface).address(address, length).build()
        }
        IpAddr::V6(address) => {
            AddressMessageBuilder::<Ipv6Addr>::new().index(interface).address(address, length).build()
        }
    }
}

fn failed(action: &str, error: &netlink::Error) -> Error {
    if error.errno() == Some(libc::EPERM) {
        return Error::Permission { action: "change addresses of interfaces", capability: "NET_ADMIN" };
    }
    Error::Kernel { action: action.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_says_which_addresses_are_its_own() {
        let kernel = Kernel::default();
        for (address, is_local) in [("127.0.0.1", true), ("192.0.2.1", false)] {
            assert_eq!(kernel.is_local(address.parse().expect("an address")).await, is_local, "{address}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_not_waited_for() {
        let address: IpAddr = "fd00::1".parse().expect("an address");
        let began = Instant::now();
        let late = wait_until_local([address].into_iter(), |_| std::future::pending().boxed()).await;
        assert_eq!((late, began.elapsed()), (Some(address), EFFECT_TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_waited_for_until_they_take_effect() {
        let addresses = ["fd00::1", "fd00::2"].map(|text| text.parse::<IpAddr>().expect("an address"));
        let began = Instant::now();
        let later = |milliseconds: u64| {
            let then = began + Duration::from_millis(milliseconds);
            move |_: IpAddr| async move { Instant::now() >= then }.boxed()
        };
        assert_eq!(wait_until_local(addresses.into_iter(), later(20)).await, None);
        assert_eq!(began.elapsed(), Duration::from_millis(20));
        // and not for ever
        assert_eq!(wait_until_local(addresses.into_iter(), later(5_000)).await, Some(addresses[0]));
        assert_eq!(began.elapsed(), Duration::from_millis(20) + EFFECT_TIMEOUT);
    }

    /// A route of the main table to everything, out of this interface.
    fn default(kind: RouteType, metric: u32, interface: u32) -> RouteNetlinkMessage {
        let mut route = RouteMessage::default();
        (route.header.table, route.header.kind) = (RouteHeader::RT_TABLE_MAIN, kind);
        route.attributes = vec![RouteAttribute::Priority(metric), RouteAttribute::Oif(interface)];
        RouteNetlinkMessage::NewRoute(route)
    }

    #[test]
    fn the_default_route_with_the_smallest_metric_counts() {
        let routes = [default(RouteType::Unicast, 200, 2), default(RouteType::Unicast, 100, 3)];
        assert_eq!(default_route(&routes), Some(3));
        assert_eq!(default_route(&[]), None);
    }

    #[test]
    fn a_default_route_that_rejects_packets_is_none() {
        for kind in [RouteType::Unreachable, RouteType::BlackHole, RouteType::Prohibit, RouteType::Throw] {
            assert_eq!(default_route(&[default(kind, 0, 1)]), None, "{kind:?}");
            assert_eq!(default_route(&[default(kind, 0, 1), default(RouteType::Unicast, 1024, 2)]), Some(2));
        }
    }
}

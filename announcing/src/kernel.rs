//! The kernel's interfaces and addresses, by netlink.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use rtnetlink::{
    Handle, MulticastGroup, RouteMessageBuilder,
    packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo},
        link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage},
        route::{RouteAttribute, RouteHeader, RouteMessage},
    },
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    LIFETIME,
    error::{Error, Result},
    interface::{ADDRESS_PROTOCOL, Host, HostAddress, Interface, single},
};

/// How long the kernel may take to answer. It answers at once; an answer can only be lost if memory is short.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How many requests may wait for their answers, which must fit into the socket's buffer.
const MAX_IN_FLIGHT: usize = 64;

/// The longest pause between two of many addresses that are set. It is much shorter than the lease of the election.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// How long to wait before a listing is done again.
const LISTING_DELAY: Duration = Duration::from_millis(10);

/// How often a listing is tried that something changed meanwhile.
const MAX_LISTINGS: usize = 5;

/// A connection to the kernel, opened when it is needed, and again after a failure.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// An address to set on, or to delete from, the interface with an index.
pub(crate) type Target = (IpAddr, u32);

impl Kernel {
    fn handle(&mut self) -> Result<Handle> {
        if let Some(open) = self.open.as_ref().filter(|open| !open.connection.is_finished()) {
            return Ok(open.handle.clone());
        }
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| refused("open a netlink socket", &error))?;
        self.open = Some(Open { handle: handle.clone(), connection: tokio::spawn(connection) });
        Ok(handle)
    }

    /// Forgets a connection that lost an answer.
    fn note<T>(&mut self, answer: Result<T>) -> Result<T> {
        if matches!(answer, Err(Error::Kernel { .. })) {
            self.open = None;
        }
        answer
    }

    /// The interfaces and addresses of the host, without its routes.
    pub(crate) async fn host(&mut self) -> Result<Host> {
        let handle = self.handle()?;
        let answer = read_host(&handle).await;
        self.note(answer)
    }

    /// The interfaces of the default routes, of IPv4 and IPv6.
    pub(crate) async fn default_routes(&mut self) -> Result<[Option<u32>; 2]> {
        let handle = self.handle()?;
        let answer = async {
            Ok([
                default_route(&handle, AddressFamily::Inet).await?,
                default_route(&handle, AddressFamily::Inet6).await?,
            ])
        };
        let answer = answer.await;
        self.note(answer)
    }

    /// Sets these addresses, or renews their lives. The answers have the order of `targets`. `decided` is when the caller
    /// looked at the host. If the process stands still after that, nothing more is set: another host may have the addresses
    /// by now.
    pub(crate) async fn set(&mut self, targets: &[Target], decided: Instant) -> Vec<Result<()>> {
        let last = Arc::new(Mutex::new(decided));
        let act = |handle: Handle, target: Target| {
            let last = Arc::clone(&last);
            async move {
                {
                    let (now, mut last) =
                        (Instant::now(), last.lock().unwrap_or_else(PoisonError::into_inner));
                    if now - *last > MAX_PAUSE {
                        let reason = "the process stood still meanwhile".to_owned();
                        return Err(Error::Kernel { action: format!("set {}", target.0), reason });
                    }
                    *last = now;
                }
                set(&handle, target).await
            }
            .boxed()
        };
        self.each(targets, act).await
    }

    /// Deletes these addresses. One that is gone already is no error.
    pub(crate) async fn delete(&mut self, targets: &[Target]) -> Vec<Result<()>> {
        self.each(targets, |handle, target| async move { delete(&handle, target).await }.boxed()).await
    }

    async fn each(
        &mut self,
        targets: &[Target],
        act: impl Fn(Handle, Target) -> BoxFuture<'static, Result<()>>,
    ) -> Vec<Result<()>> {
        let handle = match self.handle() {
            Ok(handle) => handle,
            Err(error) => return vec![Err(error); targets.len()],
        };
        // a list, since the compiler cannot prove that a task may move with a lazy iterator
        let acts: Vec<_> = targets.iter().map(|target| act(handle.clone(), *target)).collect();
        let answers: Vec<_> = stream::iter(acts).buffered(MAX_IN_FLIGHT).collect().await;
        answers.into_iter().map(|answer| self.note(answer)).collect()
    }
}

/// Reports the indices of interfaces that change. Ends if the kernel's messages cannot be followed any more.
pub(crate) fn link_changes() -> Result<(LinkChanges, mpsc::UnboundedReceiver<u32>)> {
    let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
        .map_err(|error| refused("follow the interfaces", &error))?;
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

async fn read_host(handle: &Handle) -> Result<Host> {
    let mut links = LinkMessage::default();
    links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let links = dump(handle, RouteNetlinkMessage::GetLink(links), "list the interfaces").await?;
    let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let addresses = dump(handle, addresses, "list the addresses").await?;
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

/// The interface of the default route with the smallest metric.
async fn default_route(handle: &Handle, family: AddressFamily) -> Result<Option<u32>> {
    let mut request: RouteMessage = RouteMessageBuilder::<IpAddr>::new().build();
    request.header.address_family = family;
    let routes = dump(handle, RouteNetlinkMessage::GetRoute(request), "list the routes").await?;
    let defaults = routes.into_iter().filter_map(|message| {
        let RouteNetlinkMessage::NewRoute(route) = message else { return None };
        let is_default =
            route.header.destination_prefix_length == 0 && route.header.table == RouteHeader::RT_TABLE_MAIN;
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
    Ok(defaults.min().map(|(_, interface)| interface))
}

/// All messages of a listing. A listing during which something changed may be incomplete, and is done again.
async fn dump(
    handle: &Handle,
    request: RouteNetlinkMessage,
    action: &'static str,
) -> Result<Vec<RouteNetlinkMessage>> {
    let mut request = NetlinkMessage::from(request);
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    for _ in 0..MAX_LISTINGS {
        let mut answers = handle.clone().request(request.clone()).map_err(|error| failed(action, &error))?;
        let (mut messages, mut is_interrupted) = (Vec::new(), false);
        loop {
            let Ok(answer) = timeout(TIMEOUT, answers.next()).await else { return Err(silent(action)) };
            let Some(answer) = answer else { break };
            is_interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => messages.push(message),
                // the listing before was given up, and the kernel is still at it
                NetlinkPayload::Error(error) if error.to_io().raw_os_error() == Some(libc::EBUSY) => {
                    is_interrupted = true;
                }
                NetlinkPayload::Error(error) => return Err(refused(action, &error.to_io())),
                _ => {}
            }
        }
        if !is_interrupted {
            return Ok(messages);
        }
        sleep(LISTING_DELAY).await;
    }
    Err(Error::Kernel { action: action.to_owned(), reason: "they change all the time".to_owned() })
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

/// Sets an address for [`LIFETIME`], or renews it.
async fn set(handle: &Handle, (address, interface): Target) -> Result<()> {
    let mut request = handle.address().add(interface, address, single(address)).replace();
    let mut lifetime = CacheInfo::default();
    // a preferred life of 0: never a source of the host's own connections
    lifetime.ifa_preferred = 0;
    lifetime.ifa_valid = u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX);
    let mut flags = AddressFlags::Noprefixroute;
    if address.is_ipv6() {
        // The leader before may still have the address; the detection of duplicates would refuse it.
        flags |= AddressFlags::Nodad;
    }
    request.message_mut().attributes.extend([
        AddressAttribute::CacheInfo(lifetime),
        AddressAttribute::Flags(flags),
        AddressAttribute::Protocol(AddressProtocol::Other(ADDRESS_PROTOCOL)),
    ]);
    let action = || format!("set {address} on interface {interface}");
    match timeout(TIMEOUT, request.execute()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => match errno(&error) {
            Some(libc::EACCES) if address.is_ipv6() => {
                Err(Error::Ipv6Off { interface: interface.to_string() })
            }
            _ => Err(failed(&action(), &error)),
        },
        Err(_) => Err(silent(&action())),
    }
}

async fn delete(handle: &Handle, (address, interface): Target) -> Result<()> {
    let request = handle.address().add(interface, address, single(address)).message_mut().clone();
    let action = || format!("delete {address} from interface {interface}");
    match timeout(TIMEOUT, handle.address().del(request).execute()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => match errno(&error) {
            Some(libc::EADDRNOTAVAIL | libc::ENODEV | libc::ENXIO) => Ok(()),
            _ => Err(failed(&action(), &error)),
        },
        Err(_) => Err(silent(&action())),
    }
}

fn errno(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().raw_os_error(),
        _ => None,
    }
}

fn failed(action: &str, error: &rtnetlink::Error) -> Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => refused(action, &message.to_io()),
        other => Error::Kernel { action: action.to_owned(), reason: other.to_string() },
    }
}

fn refused(action: &str, error: &io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EPERM) {
        return Error::Permission { action: "change addresses of interfaces", capability: "NET_ADMIN" };
    }
    Error::Kernel { action: action.to_owned(), reason: error.to_string() }
}

fn silent(action: &str) -> Error {
    let reason = format!("the kernel did not answer within {} s", TIMEOUT.as_secs());
    Error::Kernel { action: action.to_owned(), reason }
}

//! Routes of the kernel, by netlink.

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Result};
use futures::StreamExt as _;
use ipnet::IpNet;
use rtnetlink::{
    Handle, RouteMessageBuilder,
    packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::{LinkAttribute, LinkExtentMask, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType},
    },
};
use tokio::{
    sync::Mutex,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::table::KernelRoute;

/// How long the kernel may take to answer. It answers at once; an answer can only be lost if memory is short.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before a listing is done again.
const LISTING_DELAY: Duration = Duration::from_millis(10);

/// How often a listing is tried that something changed meanwhile.
const MAX_LISTINGS: usize = 10;

/// A connection to the kernel, opened when it is needed, and again after a failure.
#[derive(Debug, Default)]
pub(super) struct Netlink {
    open: Mutex<Option<Open>>,
    /// The kernel makes one listing at a time for a socket.
    listing: Mutex<()>,
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

impl Netlink {
    async fn handle(&self) -> Result<Handle> {
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| !open.connection.is_finished()) {
            return Ok(open.handle.clone());
        }
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| refused("open a netlink socket", &error))?;
        *open = Some(Open { handle: handle.clone(), connection: tokio::spawn(connection) });
        Ok(handle)
    }

    /// Waits for an answer. A connection that lost one is closed.
    async fn answer<T>(&self, action: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
        if let Ok(answer) = timeout(TIMEOUT, answer).await {
            return answer;
        }
        *self.open.lock().await = None;
        let words = format!("cannot {action}: the kernel did not answer within {} s", TIMEOUT.as_secs());
        Err(Error::new(ErrorKind::Timeout, words))
    }

    /// All routes of the main tables of IPv4 and IPv6.
    pub(super) async fn routes(&self) -> Result<Vec<KernelRoute>> {
        let action = "list the routes of this host";
        let _one_at_a_time = self.listing.lock().await;
        let handle = self.handle().await?;
        self.answer(action, async {
            let mut links = LinkMessage::default();
            links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
            let links = dump(&handle, RouteNetlinkMessage::GetLink(links), action).await?;
            let names: HashMap<u32, String> = links.iter().filter_map(named_link).collect();
            let mut routes = Vec::new();
            for family in [AddressFamily::Inet, AddressFamily::Inet6] {
                let mut request = RouteMessage::default();
                request.header.address_family = family;
                let messages = dump(&handle, RouteNetlinkMessage::GetRoute(request), action).await?;
                for message in messages {
                    if let RouteNetlinkMessage::NewRoute(route) = message {
                        routes.extend(kernel_route(&route, family, &names));
                    }
                }
            }
            Ok(routes)
        })
        .await
    }

    /// Adds a route. One to the same network with the same metric must not exist.
    pub(super) async fn add(&self, route: &KernelRoute) -> Result<()> {
        let action = format!("add the route {route}");
        let handle = self.handle().await?;
        let request = handle.route().add(message(route)?);
        self.answer(&action, async { request.execute().await.map_err(|error| failed(&action, &error)) }).await
    }

    /// Deletes a route. One that is gone already is no error.
    pub(super) async fn delete(&self, route: &KernelRoute) -> Result<()> {
        let action = format!("delete the route {route}");
        let handle = self.handle().await?;
        let request = handle.route().del(message(route)?);
        let answer = async {
            match request.execute().await {
                Err(rtnetlink::Error::NetlinkError(error))
                    if matches!(error.to_io().raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) =>
                {
                    Ok(())
                }
                answer => answer.map_err(|error| failed(&action, &error)),
            }
        };
        self.answer(&action, answer).await
    }
}

/// Fails if this host does not forward packets of the family, as it must between Nodes.
pub(super) fn check_forwarding(destination: IpNet) -> Result<()> {
    let sysctl = match destination {
        IpNet::V4(_) => "net.ipv4.ip_forward",
        IpNet::V6(_) => "net.ipv6.conf.all.forwarding",
    };
    // A host on which it cannot be read is not known to be wrong.
    let value = fs::read_to_string(format!("/proc/sys/{}", sysctl.replace('.', "/"))).unwrap_or_default();
    if value.trim() != "0" {
        return Ok(());
    }
    let message = format!(
        "this host forwards no packets to {destination}: its sysctl {sysctl} is 0; set it to 1 there"
    );
    Err(Error::new(ErrorKind::InvalidConfiguration, message))
}

fn named_link(message: &RouteNetlinkMessage) -> Option<(u32, String)> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    Some((link.header.index, name?))
}

fn kernel_route(
    route: &RouteMessage,
    family: AddressFamily,
    names: &HashMap<u32, String>,
) -> Option<KernelRoute> {
    let (mut destination, mut gateway, mut interface, mut metric) = (None, None, None, 0);
    let mut table = u32::from(route.header.table);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    if table != u32::from(RouteHeader::RT_TABLE_MAIN) {
        return None;
    }
    let default = match family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let length = route.header.destination_prefix_length;
    Some(KernelRoute {
        destination: IpNet::new(destination.unwrap_or(default), length).ok()?,
        gateway,
        interface,
        interface_name: interface.and_then(|index| names.get(&index).cloned()).unwrap_or_default(),
        protocol: route.header.protocol.into(),
        metric,
        is_unicast: route.header.kind == RouteType::Unicast,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn message(route: &KernelRoute) -> Result<RouteMessage> {
    fn invalid(error: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Internal, error.to_string())
    }
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(route.destination.addr(), route.destination.prefix_len())
        .map_err(invalid)?
        .protocol(RouteProtocol::from(route.protocol))
        .priority(route.metric);
    if let Some(gateway) = route.gateway {
        builder = builder.gateway(gateway).map_err(invalid)?;
    }
    if let Some(interface) = route.interface {
        builder = builder.output_interface(interface);
    }
    Ok(builder.build())
}

/// All messages of a listing. A listing during which something changed may be incomplete, and is done again.
async fn dump(
    handle: &Handle,
    request: RouteNetlinkMessage,
    action: &str,
) -> Result<Vec<RouteNetlinkMessage>> {
    let mut request = NetlinkMessage::from(request);
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    for _ in 0..MAX_LISTINGS {
        let mut answers = handle.clone().request(request.clone()).map_err(|error| failed(action, &error))?;
        let (mut messages, mut is_interrupted) = (Vec::new(), false);
        while let Some(answer) = answers.next().await {
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
    Err(Error::new(ErrorKind::Unavailable, format!("cannot {action}: they change all the time")))
}

fn failed(action: &str, error: &rtnetlink::Error) -> Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => refused(action, &message.to_io()),
        other => Error::new(ErrorKind::Unavailable, format!("cannot {action}: {other}")),
    }
}

fn refused(action: &str, error: &io::Error) -> Error {
    let (kind, hint) = match error.raw_os_error() {
        Some(libc::EPERM) => (ErrorKind::PermissionDenied, "; the daemon needs the capability NET_ADMIN"),
        Some(libc::EEXIST) => (ErrorKind::Conflict, ""),
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("cannot {action}: {error}{hint}"))
}

//! Routes of the kernel, by netlink.

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use cloudprovider::{Error, ErrorKind, Result};
use ipnet::IpNet;
use netlink::Netlink;
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::{LinkAttribute, LinkExtentMask, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType},
    },
};

use super::table::{KernelRoute, Routing};

/// The kernel's routes.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    netlink: Netlink,
}

impl Kernel {
    /// All routes of the main tables of IPv4 and IPv6, and the host's own addresses.
    pub(super) async fn routing(&self) -> Result<Routing> {
        let mut links = LinkMessage::default();
        links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let links = self.list(RouteNetlinkMessage::GetLink(links)).await?;
        let names: HashMap<u32, String> = links.iter().filter_map(named_link).collect();
        let mut routing = Routing::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            for message in self.list(RouteNetlinkMessage::GetRoute(request)).await? {
                if let RouteNetlinkMessage::NewRoute(route) = message {
                    routing.own_addresses.extend(own_address(&route));
                    routing.routes.extend(kernel_route(&route, family, &names));
                }
            }
        }
        Ok(routing)
    }

    async fn list(&self, what: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>> {
        self.netlink.list(what).await.map_err(|error| failed("list the routes of this host", &error))
    }

    /// Adds a route. One to the same network with the same metric must not exist.
    pub(super) async fn add(&self, route: &KernelRoute) -> Result<()> {
        let added = self.netlink.create(RouteNetlinkMessage::NewRoute(message(route)?)).await;
        added.map_err(|error| failed(&format!("add the route {route}"), &error))
    }

    /// Deletes a route. One that is gone already is no error.
    pub(super) async fn delete(&self, route: &KernelRoute) -> Result<()> {
        match self.netlink.delete(RouteNetlinkMessage::DelRoute(message(route)?)).await {
            Err(error) if matches!(error.errno(), Some(libc::ESRCH | libc::ENODEV)) => Ok(()),
            deleted => deleted.map_err(|error| failed(&format!("delete the route {route}"), &error)),
        }
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

/// The address that packets stay on this host for.
fn own_address(route: &RouteMessage) -> Option<IpAddr> {
    let find = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    };
    let address = route.attributes.iter().find_map(find)?;
    let is_single = route.header.destination_prefix_length == if address.is_ipv4() { 32 } else { 128 };
    (route.header.kind == RouteType::Local && is_single && !address.is_loopback()).then_some(address)
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

fn failed(action: &str, error: &netlink::Error) -> Error {
    let (kind, hint) = match (error, error.errno()) {
        (_, Some(libc::EPERM)) => {
            (ErrorKind::PermissionDenied, "; the daemon needs the capability NET_ADMIN")
        }
        (_, Some(libc::EEXIST)) => (ErrorKind::Conflict, ""),
        (netlink::Error::Silent, _) => (ErrorKind::Timeout, ""),
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("cannot {action}: {error}{hint}"))
}

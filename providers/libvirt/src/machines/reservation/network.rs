//! What the XML of a libvirt network says about DHCP.

use std::{fmt::Write as _, net::IpAddr};

use ipnet::IpNet;
use quick_xml::escape::escape;
use serde::Deserialize;

use crate::mac::Mac;

/// An address that a network keeps for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The libvirt network.
    pub(crate) network: String,
    /// The MAC address of the interface.
    pub(crate) mac: Mac,
    /// The host name that the server gives to the guest, and that its DNS server answers for.
    pub(crate) name: String,
    /// The address, in a subnet of the network that has DHCP.
    pub(crate) address: IpAddr,
}

/// The DHCP of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkDhcp {
    /// In the order of the XML.
    pub(crate) subnets: Vec<Subnet>,
}

/// An `<ip>` of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// Its place among those of the network. A change names it.
    pub(crate) index: i32,
    /// The network's own address there, with the length of the prefix.
    pub(crate) own: IpNet,
    /// Whether it has a DHCP server.
    pub(crate) has_dhcp: bool,
    /// The ranges from which the server gives leases: first and last address.
    pub(crate) ranges: Vec<(IpAddr, IpAddr)>,
    /// What it keeps.
    pub(crate) hosts: Vec<HostEntry>,
}

/// A host entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEntry {
    /// The MAC address of its interface.
    pub(crate) mac: Option<Mac>,
    /// The host name.
    pub(crate) name: Option<String>,
    /// The address.
    pub(crate) address: Option<IpAddr>,
}

impl HostEntry {
    /// The entry of a reservation.
    pub(crate) fn of(reservation: &Reservation) -> Self {
        let Reservation { mac, name, address, .. } = reservation;
        Self { mac: Some(*mac), name: Some(name.clone()), address: Some(*address) }
    }

    /// Whether it is the entry of this interface.
    pub(crate) fn is_of(&self, mac: Mac, name: &str) -> bool {
        self.mac == Some(mac) && self.name.as_deref() == Some(name)
    }

    /// Whether it is one of these.
    pub(crate) fn is_one_of(&self, entries: &[(Mac, String)]) -> bool {
        entries.iter().any(|(mac, name)| self.is_of(*mac, name))
    }

    /// The entry as libvirt reads it.
    pub(crate) fn to_xml(&self) -> String {
        let mut xml = "<host".to_owned();
        let mut attribute = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                // writing to a text cannot fail
                let _ = write!(xml, " {key}='{}'", escape(&value));
            }
        };
        attribute("mac", self.mac.map(|mac| mac.to_string()));
        attribute("name", self.name.clone());
        attribute("ip", self.address.map(|address| address.to_string()));
        xml.push_str("/>");
        xml
    }
}

impl NetworkDhcp {
    /// Reads the XML of a network.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(xml: &str) -> Result<Self, String> {
        let network: NetworkXml = quick_xml::de::from_str(xml).map_err(|error| error.to_string())?;
        let subnets =
            network.ips.into_iter().zip(0..).map(|(ip, index)| ip.subnet(index)).collect::<Result<_, _>>()?;
        Ok(Self { subnets })
    }

    /// All host entries.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostEntry> {
        self.subnets.iter().flat_map(|subnet| &subnet.hosts)
    }
}

impl Subnet {
    /// Whether the server may give the address to anyone.
    pub(crate) fn is_dynamic(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    /// Whether it is an address that a guest can have.
    pub(crate) fn is_usable(&self, address: IpAddr) -> bool {
        let (net, has_ends) = (self.own, self.own.prefix_len() < self.own.max_prefix_len() - 1);
        let is_end =
            has_ends && address.is_ipv4() && (address == net.network() || address == net.broadcast());
        net.contains(&address) && !is_end && address != net.addr()
    }
}

#[derive(Deserialize)]
struct NetworkXml {
    #[serde(rename = "ip", default)]
    ips: Vec<IpXml>,
}

#[derive(Deserialize)]
struct IpXml {
    #[serde(rename = "@address")]
    address: Option<IpAddr>,
    #[serde(rename = "@netmask")]
    netmask: Option<IpAddr>,
    #[serde(rename = "@prefix")]
    prefix: Option<u8>,
    dhcp: Option<DhcpXml>,
}

#[derive(Deserialize)]
struct DhcpXml {
    #[serde(rename = "range", default)]
    ranges: Vec<RangeXml>,
    #[serde(rename = "host", default)]
    hosts: Vec<HostXml>,
}

#[derive(Deserialize)]
struct RangeXml {
    #[serde(rename = "@start")]
    start: IpAddr,
    #[serde(rename = "@end")]
    end: IpAddr,
}

#[derive(Deserialize)]
struct HostXml {
    #[serde(rename = "@mac")]
    mac: Option<String>,
    #[serde(rename = "@name")]
    name: Option<String>,
    #[serde(rename = "@ip")]
    ip: Option<IpAddr>,
}

impl IpXml {
    fn subnet(self, index: i32) -> Result<Subnet, String> {
        let address = self.address.ok_or("an <ip> has no address")?;
        let own = match (self.netmask, self.prefix) {
            (Some(netmask), _) => IpNet::with_netmask(address, netmask).map_err(|error| error.to_string())?,
            (None, Some(prefix)) => IpNet::new(address, prefix).map_err(|error| error.to_string())?,
            // libvirt's own rule: by the class of the address, and 64 for IPv6
            (None, None) => {
                IpNet::new(address, default_prefix(address)).map_err(|error| error.to_string())?
            }
        };
        let has_dhcp = self.dhcp.is_some();
        let dhcp = self.dhcp.unwrap_or(DhcpXml { ranges: Vec::new(), hosts: Vec::new() });
        let hosts = dhcp.hosts.into_iter().map(|host| HostEntry {
            mac: host.mac.as_deref().and_then(Mac::parse),
            name: host.name,
            address: host.ip,
        });
        let ranges = dhcp.ranges.into_iter().map(|range| (range.start, range.end)).collect();
        Ok(Subnet { index, own, has_dhcp, ranges, hosts: hosts.collect() })
    }
}

fn default_prefix(address: IpAddr) -> u8 {
    match address {
        IpAddr::V6(_) => 64,
        IpAddr::V4(v4) => match v4.octets()[0] {
            0..=127 => 8,
            128..=191 => 16,
            _ => 24,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<network connections='1'>
  <name>default</name>
  <uuid>01234567-89ab-cdef-0123-456789abcdef</uuid>
  <forward mode='nat'><nat><port start='1024' end='65535'/></nat></forward>
  <bridge name='virbr0' stp='on' delay='0'/>
  <mac address='52:54:00:00:00:01'/>
  <dns><host ip='10.0.0.7'><hostname>not-this</hostname></host></dns>
  <ip address='192.168.122.1' netmask='255.255.255.0' localPtr='yes'>
    <dhcp>
      <range start='192.168.122.2' end='192.168.122.99'><lease expiry='1' unit='hours'/></range>
      <range start='192.168.122.150' end='192.168.122.159'/>
      <host mac='52:54:00:AA:00:01' name='a&amp;b' ip='192.168.122.100'><lease expiry='2'/></host>
      <host name='no-mac' ip='192.168.122.101'/>
      <bootp file='x'/>
    </dhcp>
  </ip>
  <ip family='ipv4' address='10.9.0.1' prefix='30'/>
  <ip family='ipv6' address='fd00::1' prefix='64'><dhcp><host id='0:1' name='v6' ip='fd00::5'/></dhcp></ip>
  <ip address='172.16.0.1'/>
  <route address='10.8.0.0' prefix='16' gateway='10.9.0.2'/>
</network>";

    #[test]
    fn a_whole_network() {
        let dhcp = NetworkDhcp::parse(XML).expect("valid");
        let subnets: Vec<_> =
            dhcp.subnets.iter().map(|one| (one.index, one.own.to_string(), one.has_dhcp)).collect();
        let expected = [
            (0, "192.168.122.1/24", true),
            (1, "10.9.0.1/30", false),
            (2, "fd00::1/64", true),
            (3, "172.16.0.1/16", false),
        ];
        assert_eq!(subnets, expected.map(|(index, own, has_dhcp)| (index, own.to_owned(), has_dhcp)));
        let hosts: Vec<_> = dhcp.hosts().map(HostEntry::to_xml).collect();
        assert_eq!(
            hosts,
            [
                "<host mac='52:54:00:aa:00:01' name='a&amp;b' ip='192.168.122.100'/>",
                "<host name='no-mac' ip='192.168.122.101'/>",
                "<host name='v6' ip='fd00::5'/>",
            ]
        );
        let first = &dhcp.subnets[0];
        let address = |last| IpAddr::from([192, 168, 122, last]);
        let dynamic: Vec<u8> = (0..=255).filter(|last| first.is_dynamic(address(*last))).collect();
        assert_eq!(dynamic, (2..=99).chain(150..=159).collect::<Vec<_>>());
        let unusable: Vec<u8> = (0..=255).filter(|last| !first.is_usable(address(*last))).collect();
        assert_eq!(unusable, [0, 1, 255]);
        assert!(!first.is_usable(IpAddr::from([10, 0, 0, 5])));
    }

    #[test]
    fn a_network_without_addresses_and_broken_ones() {
        let bridge = "<network><name>lan</name><forward mode='bridge'/><bridge name='br0'/></network>";
        assert_eq!(NetworkDhcp::parse(bridge), Ok(NetworkDhcp::default()));
        for broken in ["", "<network>", "<network><ip address='x'/></network>", "<network><ip/></network>"] {
            NetworkDhcp::parse(broken).expect_err(broken);
        }
    }
}

//! The packets that tell the neighbours where an address is, without their Ethernet headers. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The Ethernet type of ARP.
const ARP: u16 = 0x0806;
/// The Ethernet type of IPv6.
const IPV6: u16 = 0x86dd;

/// All neighbours.
const BROADCAST: [u8; 6] = [0xff; 6];
/// All neighbours that speak IPv6: the group `ff02::1` (RFC 2464, 7).
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A packet for the neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The Ethernet type.
    pub(crate) protocol: u16,
    /// The Ethernet address of the receivers.
    pub(crate) to: [u8; 6],
    /// All after the Ethernet header.
    pub(crate) payload: Vec<u8>,
}

/// The packets which say that `address` is at `mac`.
pub(crate) fn announcements(address: IpAddr, mac: [u8; 6]) -> Vec<Packet> {
    match address {
        // Some neighbours update their tables on requests only, some on replies only.
        IpAddr::V4(address) => [ARP_REQUEST, ARP_REPLY]
            .map(|operation| Packet {
                protocol: ARP,
                to: BROADCAST,
                payload: gratuitous_arp(operation, address, mac),
            })
            .into(),
        IpAddr::V6(address) => {
            let payload = unsolicited_advertisement(address, mac);
            vec![Packet { protocol: IPV6, to: ALL_NODES_MAC, payload }]
        }
    }
}

const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;

/// An ARP packet about ourselves (RFC 5227, 3; RFC 2002, 4.6): sender and target have the same protocol address.
fn gratuitous_arp(operation: u16, address: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    const ETHERNET: u16 = 1;
    const IPV4: u16 = 0x0800;
    let target = if operation == ARP_REQUEST { [0; 6] } else { mac };
    let mut packet = Vec::with_capacity(28);
    packet.extend(ETHERNET.to_be_bytes());
    packet.extend(IPV4.to_be_bytes());
    packet.extend([6, 4]);
    packet.extend(operation.to_be_bytes());
    packet.extend(mac);
    packet.extend(address.octets());
    packet.extend(target);
    packet.extend(address.octets());
    packet
}

/// An IPv6 packet with an unsolicited neighbour advertisement (RFC 4861, 4.4 and 7.2.6). Its flag Override lets neighbours
/// replace the Ethernet address that they know. The source is the address itself, so no other address is needed.
fn unsolicited_advertisement(address: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    /// Neighbours drop an advertisement that a router may have forwarded.
    const HOP_LIMIT: u8 = 255;
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 0x20;
    const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

    let mut message = Vec::with_capacity(32);
    message.extend([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0]);
    message.extend(address.octets());
    // lengths of options are in units of 8 bytes
    message.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
    message.extend(mac);
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();

    let pseudo_header =
        [&address.octets()[..], &ALL_NODES.octets(), &[0, 0], &length, &[0, 0, 0, ICMPV6]].concat();
    let checksum = checksum(&[pseudo_header, message.clone()].concat());
    message[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length);
    packet.extend([ICMPV6, HOP_LIMIT]);
    packet.extend(address.octets());
    packet.extend(ALL_NODES.octets());
    packet.extend(message);
    packet
}

/// The checksum of the Internet (RFC 1071) over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x02, 0x42, 0xac, 0x11, 0x00, 0x02];

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    #[test]
    fn ipv4_is_announced_by_a_request_and_a_reply() {
        let packets = announcements("192.0.2.5".parse().expect("an address"), MAC);
        let expected = [
            "0001080006040001".to_owned() + "0242ac110002" + "c0000205" + "000000000000" + "c0000205",
            "0001080006040002".to_owned() + "0242ac110002" + "c0000205" + "0242ac110002" + "c0000205",
        ];
        assert_eq!(packets.iter().map(|packet| hex(&packet.payload)).collect::<Vec<_>>(), expected);
        assert!(packets.iter().all(|packet| packet.protocol == 0x0806 && packet.to == [0xff; 6]));
    }

    #[test]
    fn ipv6_is_announced_by_an_unsolicited_advertisement() {
        let packets = announcements("fd00::5".parse().expect("an address"), MAC);
        let [packet] = &packets[..] else { panic!("{packets:?}") };
        assert_eq!((packet.protocol, packet.to), (0x86dd, [0x33, 0x33, 0, 0, 0, 1]));
        let expected = [
            "6000000000203aff",
            "fd000000000000000000000000000005",
            "ff020000000000000000000000000001",
            "8800",
            "ae3e",
            "20000000",
            "fd000000000000000000000000000005",
            "0201",
            "0242ac110002",
        ];
        assert_eq!(hex(&packet.payload), expected.concat());
        // A receiver sums up everything, the checksum included.
        let length = [0, 32, 0, 0, 0, 58];
        let whole = [&packet.payload[8..40], &[0, 0], &length, &packet.payload[40..]].concat();
        assert_eq!(checksum(&whole), 0);
    }

    #[test]
    fn checksums_of_the_internet() {
        // the example of RFC 1071, 3
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}

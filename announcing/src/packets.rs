//! The packets that tell the neighbours where an address is, and those that ask whether a host has one, without their Ethernet
//! headers. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The Ethernet type of ARP.
const ARP: u16 = 0x0806;
/// The Ethernet type of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

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

/// The packet that asks whether a host has `address`. `nonce` tells our own question from others, where the network brings it
/// back (RFC 7527).
pub(crate) fn question(address: IpAddr, mac: [u8; 6], nonce: [u8; 6]) -> Packet {
    match address {
        // The sender has no address, so that no neighbour learns anything from it (RFC 5227, 2.1.1).
        IpAddr::V4(address) => Packet {
            protocol: ARP,
            to: BROADCAST,
            payload: arp(ARP_REQUEST, (mac, Ipv4Addr::UNSPECIFIED), ([0; 6], address)),
        },
        IpAddr::V6(address) => {
            let [.., a, b, c] = address.octets();
            let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
            let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            message.extend(address.octets());
            message.extend([NONCE, 1]);
            message.extend(nonce);
            let payload = icmpv6(Ipv6Addr::UNSPECIFIED, group, message);
            Packet { protocol: IPV6, to: [0x33, 0x33, 0xff, a, b, c], payload }
        }
    }
}

/// Who has an address, of the packets that come to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its Ethernet address, where the packet says so.
    pub(crate) mac: Option<[u8; 6]>,
}

/// Whether a packet shows that a host has `address`, or wants it as we do. `mac` and `nonce` are those of our own questions.
pub(crate) fn owner(payload: &[u8], address: IpAddr, mac: [u8; 6], nonce: [u8; 6]) -> Option<Owner> {
    match address {
        IpAddr::V4(address) => arp_owner(payload, address, mac),
        IpAddr::V6(address) => ipv6_owner(payload, address, nonce),
    }
}

/// RFC 5227, 2.1.1: any packet whose sender has the address, and a probe for it by another host.
fn arp_owner(payload: &[u8], address: Ipv4Addr, mac: [u8; 6]) -> Option<Owner> {
    let [0, 1, 8, 0, 6, 4, _, operation, rest @ ..] = payload else { return None };
    let sender: [u8; 6] = rest.get(..6)?.try_into().ok()?;
    let (source, target) = (rest.get(6..10)?, rest.get(16..20)?);
    let is_probe = u16::from(*operation) == ARP_REQUEST && source == [0; 4] && target == address.octets();
    let is_owner = source == address.octets() || is_probe;
    (sender != mac && is_owner).then_some(Owner { mac: Some(sender) })
}

/// RFC 4862, 5.4.3 and 5.4.4: an advertisement of the address, and a solicitation by another host that has no address yet.
fn ipv6_owner(payload: &[u8], address: Ipv6Addr, nonce: [u8; 6]) -> Option<Owner> {
    let (header, message) = payload.split_at_checked(40)?;
    let is_icmp = header[0] >> 4 == 6 && header[6] == ICMPV6 && header[7] == HOP_LIMIT;
    let target = message.get(8..24)?;
    if !is_icmp || target != address.octets() {
        return None;
    }
    match message[0] {
        NEIGHBOUR_ADVERTISEMENT => {
            let mac = option(message, TARGET_LINK_LAYER_ADDRESS).and_then(|mac| mac.try_into().ok());
            Some(Owner { mac })
        }
        NEIGHBOUR_SOLICITATION => {
            let is_detection = header[8..24] == Ipv6Addr::UNSPECIFIED.octets();
            let is_ours = option(message, NONCE) == Some(&nonce);
            (is_detection && !is_ours).then_some(Owner { mac: None })
        }
        _ => None,
    }
}

/// The six bytes of an option of a message about neighbours.
fn option(message: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = message.get(24..)?;
    while let [this, length, ..] = *rest {
        let (option, after) = rest.split_at_checked(usize::from(length) * 8).filter(|_| length > 0)?;
        if this == kind {
            return option.get(2..8);
        }
        rest = after;
    }
    None
}

/// An ARP packet about ourselves (RFC 5227, 3; RFC 2002, 4.6): sender and target have the same protocol address.
fn gratuitous_arp(operation: u16, address: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    let target = if operation == ARP_REQUEST { [0; 6] } else { mac };
    arp(operation, (mac, address), (target, address))
}

/// An ARP packet: sender and target, each with both of its addresses.
fn arp(operation: u16, sender: ([u8; 6], Ipv4Addr), target: ([u8; 6], Ipv4Addr)) -> Vec<u8> {
    const ETHERNET: u16 = 1;
    const IPV4: u16 = 0x0800;
    let mut packet = Vec::with_capacity(28);
    packet.extend(ETHERNET.to_be_bytes());
    packet.extend(IPV4.to_be_bytes());
    packet.extend([6, 4]);
    packet.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        packet.extend(mac);
        packet.extend(address.octets());
    }
    packet
}

const ICMPV6: u8 = 58;
/// Neighbours drop a message that a router may have forwarded.
const HOP_LIMIT: u8 = 255;
pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
const NONCE: u8 = 14;

/// An IPv6 packet with an unsolicited neighbour advertisement (RFC 4861, 4.4 and 7.2.6). Its flag Override lets neighbours
/// replace the Ethernet address that they know. The source is the address itself, so no other address is needed.
fn unsolicited_advertisement(address: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    const OVERRIDE: u8 = 0x20;

    let mut message = Vec::with_capacity(32);
    message.extend([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0]);
    message.extend(address.octets());
    // lengths of options are in units of 8 bytes
    message.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
    message.extend(mac);
    icmpv6(address, ALL_NODES, message)
}

/// An IPv6 packet with an `ICMPv6` message, whose checksum is filled in.
fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let pseudo_header =
        [&source.octets()[..], &destination.octets(), &[0, 0], &length, &[0, 0, 0, ICMPV6]].concat();
    let checksum = checksum(&[pseudo_header, message.clone()].concat());
    message[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length);
    packet.extend([ICMPV6, HOP_LIMIT]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
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

    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn an_arp_probe_has_no_sender_address() {
        let address = "192.0.2.5".parse().expect("an address");
        let packet = question(address, MAC, [1; 6]);
        let expected =
            "0001080006040001".to_owned() + "0242ac110002" + "00000000" + "000000000000" + "c0000205";
        assert_eq!((hex(&packet.payload), packet.protocol, packet.to), (expected, 0x0806, [0xff; 6]));
    }

    #[test]
    fn arp_packets_tell_who_has_an_address() {
        let (address, other) = (Ipv4Addr::new(192, 0, 2, 5), Ipv4Addr::new(192, 0, 2, 6));
        let of = |payload: &[u8]| owner(payload, address.into(), MAC, [1; 6]).is_some();
        let nobody = Ipv4Addr::UNSPECIFIED;
        for (operation, sender, target, is_owner) in [
            (ARP_REPLY, (OTHER, address), (MAC, nobody), true),
            (ARP_REQUEST, (OTHER, address), ([0; 6], address), true),
            (ARP_REQUEST, (OTHER, address), ([0; 6], other), true),
            // another host that probes for it
            (ARP_REQUEST, (OTHER, nobody), ([0; 6], address), true),
            // our own, which a network brings back
            (ARP_REQUEST, (MAC, nobody), ([0; 6], address), false),
            // a host that only looks for it
            (ARP_REQUEST, (OTHER, other), ([0; 6], address), false),
            (ARP_REPLY, (OTHER, nobody), (MAC, address), false),
            (ARP_REPLY, (OTHER, other), (MAC, nobody), false),
        ] {
            let packet = arp(operation, sender, target);
            assert_eq!(of(&packet), is_owner, "{operation} {sender:?} {target:?}");
            assert!((0..packet.len()).all(|length| !of(&packet[..length])), "a packet that was cut");
        }
        assert_eq!(
            owner(&arp(ARP_REPLY, (OTHER, address), (MAC, nobody)), address.into(), MAC, [1; 6]),
            Some(Owner { mac: Some(OTHER) })
        );
    }

    #[test]
    fn neighbour_messages_tell_who_has_an_address() {
        let address: Ipv6Addr = "fd00::5".parse().expect("an address");
        let of = |payload: &[u8]| owner(payload, address.into(), MAC, [1; 6]);
        let advertised = &announcements(address.into(), OTHER)[0].payload;
        assert_eq!(of(advertised), Some(Owner { mac: Some(OTHER) }));
        let ours = question(address.into(), MAC, [1; 6]);
        assert_eq!((ours.protocol, ours.to), (0x86dd, [0x33, 0x33, 0xff, 0, 0, 5]));
        assert_eq!(of(&ours.payload), None);
        // A receiver sums up everything, the checksum included.
        let whole = [&ours.payload[8..40], &[0, 0, 0, 32, 0, 0, 0, 58], &ours.payload[40..]].concat();
        assert_eq!(checksum(&whole), 0);
        assert_eq!(of(&question(address.into(), OTHER, [2; 6]).payload), Some(Owner { mac: None }));
        let other: IpAddr = "fd00::6".parse().expect("an address");
        assert_eq!(of(&announcements(other, OTHER)[0].payload), None);
        assert_eq!(of(&question(other, OTHER, [2; 6]).payload), None);
        // A host that has an address and looks for this one.
        let mut looking = question(address.into(), OTHER, [2; 6]).payload;
        looking[23] = 1;
        assert_eq!(of(&looking), None);
        for length in 0..64 {
            assert_eq!(of(&advertised[..length]), None, "{length}");
        }
        // An option without a length does not end the walk through the options never.
        let mut odd = advertised.clone();
        odd[64..66].copy_from_slice(&[9, 0]);
        assert_eq!(of(&odd), Some(Owner { mac: None }));
    }

    #[test]
    fn checksums_of_the_internet() {
        // the example of RFC 1071, 3
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}

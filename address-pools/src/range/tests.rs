use super::*;

fn text(text: &str) -> RangeText {
    text.parse().unwrap_or_else(|fault| panic!("{text} {fault}"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn networks_ranges_and_addresses_are_read() {
    for (written, skip_ends, first, last, count) in [
        ("10.0.0.0/24", false, "10.0.0.0", "10.0.0.255", 256),
        ("10.0.0.0/24", true, "10.0.0.1", "10.0.0.254", 254),
        ("10.0.0.77/24", false, "10.0.0.0", "10.0.0.255", 256),
        ("10.0.0.4/31", true, "10.0.0.4", "10.0.0.5", 2),
        ("10.0.0.4/30", true, "10.0.0.5", "10.0.0.6", 2),
        ("10.0.0.4/32", true, "10.0.0.4", "10.0.0.4", 1),
        ("10.0.0.4", true, "10.0.0.4", "10.0.0.4", 1),
        (" 10.0.0.4 - 10.0.1.3 ", true, "10.0.0.4", "10.0.1.3", 256),
        ("fd00::/64", true, "fd00::", "fd00::ffff:ffff:ffff:ffff", 1 << 64),
        ("fd00::1-fd00::a", false, "fd00::1", "fd00::a", 10),
        ("::/0", false, "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", u128::MAX),
        ("0.0.0.0/0", false, "0.0.0.0", "255.255.255.255", 1 << 32),
    ] {
        let range = text(written).range(skip_ends);
        assert_eq!((range.first(), range.last(), range.count()), (ip(first), ip(last), count), "{written}");
        assert!(range.contains(ip(first)) && range.contains(ip(last)), "{written}");
    }
}

#[test]
fn other_texts_are_refused_with_their_fault() {
    for (written, fault) in [
        ("", RangeFault::Unreadable),
        ("10.0.0.0/33", RangeFault::Unreadable),
        ("10.0.0", RangeFault::Unreadable),
        ("10.0.0.1-", RangeFault::Unreadable),
        ("10.0.0.01", RangeFault::Unreadable),
        ("10.0.0.1-10.0.0.2-10.0.0.3", RangeFault::Unreadable),
        ("fe80::1%eth0", RangeFault::Unreadable),
        ("10.0.0.9-10.0.0.1", RangeFault::Reversed),
        ("10.0.0.9-fd00::1", RangeFault::MixedFamilies),
        ("::ffff:10.0.0.1", RangeFault::Mapped),
        ("::ffff:10.0.0.0/120", RangeFault::Mapped),
    ] {
        assert_eq!(written.parse::<RangeText>(), Err(fault), "{written:?}");
    }
}

#[test]
fn host_bits_are_noticed() {
    assert_eq!(text("10.0.0.77/24").with_host_bits(), Some("10.0.0.0/24".parse().expect("a network")));
    assert_eq!(text("10.0.0.0/24").with_host_bits(), None);
    assert_eq!(text("10.0.0.7").with_host_bits(), None);
}

#[test]
fn a_set_is_sorted_and_its_ranges_are_joined() {
    let set: AddressSet =
        ["fd00::/126", "10.0.0.128/25", "10.0.2.0-10.0.2.4", "10.0.0.0/25", "10.0.2.3-10.0.2.9"]
            .into_iter()
            .map(|range| text(range).range(false))
            .collect();
    assert_eq!(set.to_string(), "10.0.0.0-10.0.0.255, 10.0.2.0-10.0.2.9, fd00::-fd00::3");
    assert_eq!((set.count(Family::Ipv4), set.count(Family::Ipv6)), (266, 4));
    for (address, is_in) in [
        ("10.0.0.0", true),
        ("10.0.0.255", true),
        ("10.0.1.0", false),
        ("10.0.2.9", true),
        ("10.0.2.10", false),
        ("9.255.255.255", false),
        ("fd00::3", true),
        ("fd00::4", false),
        ("::", false),
    ] {
        assert_eq!(set.contains(ip(address)), is_in, "{address}");
    }
}

#[test]
fn ranges_overlap_in_what_both_have() {
    let range = |written: &str| text(written).range(false);
    let (a, b) = (range("10.0.0.0-10.0.0.9"), range("10.0.0.9-10.0.0.20"));
    assert_eq!(a.overlap(&b), Some(range("10.0.0.9")));
    assert_eq!(a.overlap(&range("10.0.0.10")), None);
    assert_eq!(range("0.0.0.0/0").overlap(&range("::/0")), None);
}

use super::*;

fn interface(index: u32, name: &str) -> Interface {
    Interface {
        index,
        name: name.to_owned(),
        is_up: true,
        mac: Some([2, 0, 0, 0, 0, 1]),
        ..Interface::default()
    }
}

fn permanent(interface: u32, net: &str) -> HostAddress {
    let (address, prefix_length) = net.split_once('/').expect("a prefix");
    HostAddress {
        interface,
        address: address.parse().expect("an address"),
        prefix_length: prefix_length.parse().expect("a length"),
        protocol: None,
        valid_for: None,
        is_deprecated: false,
    }
}

fn ours(interface: u32, net: &str) -> HostAddress {
    HostAddress {
        protocol: Some(ADDRESS_PROTOCOL),
        valid_for: Some(Duration::from_secs(6)),
        is_deprecated: true,
        ..permanent(interface, net)
    }
}

fn host() -> Host {
    let loopback = Interface { is_loopback: true, ..interface(1, "lo") };
    Host {
        interfaces: vec![loopback, interface(2, "eth0"), interface(3, "eth1"), interface(4, "eth2")],
        addresses: vec![
            permanent(1, "127.0.0.1/8"),
            permanent(2, "192.0.2.10/24"),
            permanent(3, "10.0.0.10/8"),
            permanent(4, "10.1.0.10/16"),
            permanent(3, "fd00::10/64"),
        ],
        default_routes: [Some(2), None],
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn placed(host: &Host, address: &str, choice: &InterfaceChoice, before: Option<&str>) -> Result<String> {
    host.place(ip(address), choice, before).map(|place| place.interface.name)
}

#[test]
fn the_smallest_subnet_decides_and_then_the_default_route() {
    let automatic = |address| placed(&host(), address, &InterfaceChoice::Automatic, None);
    assert_eq!(automatic("10.2.3.4").as_deref(), Ok("eth1"));
    assert_eq!(automatic("10.1.3.4").as_deref(), Ok("eth2"));
    assert_eq!(automatic("203.0.113.1").as_deref(), Ok("eth0"));
    assert_eq!(automatic("fd00::1").as_deref(), Ok("eth1"));
    let nowhere = automatic("2001:db8::1").expect_err("no route").to_string();
    assert!(nowhere.ends_with("name one of: lo, eth0, eth1, eth2"), "{nowhere}");
}

#[test]
fn an_automatic_choice_stays() {
    let automatic = |before| placed(&host(), "10.1.3.4", &InterfaceChoice::Automatic, Some(before));
    assert_eq!(automatic("eth1").as_deref(), Ok("eth1"));
    assert_eq!(automatic("gone0").as_deref(), Ok("eth2"));
    let elsewhere = |address, before| placed(&host(), address, &InterfaceChoice::Automatic, Some(before));
    assert_eq!(elsewhere("203.0.113.1", "eth2").as_deref(), Ok("eth2"));
    // The interface with the subnet lost it for a moment, and the default route had to do.
    assert_eq!(elsewhere("10.1.3.4", "eth0").as_deref(), Ok("eth2"));
}

#[test]
fn a_named_interface_must_exist() {
    let named = |name: &str| placed(&host(), "10.1.3.4", &name.parse().expect("a name"), Some("eth2"));
    assert_eq!(named("lo").as_deref(), Ok("lo"));
    let missing = named("eth9").expect_err("missing").to_string();
    assert_eq!(missing, "there is no interface \"eth9\" on this host; there are: lo, eth0, eth1, eth2");
}

#[test]
fn an_address_of_somebody_else_is_an_error() {
    let day = Some(Duration::from_secs(86_400));
    let foreign = [
        permanent(3, "10.2.0.1/8"),
        permanent(3, "10.2.0.1/32"),
        // a lease of DHCP
        HostAddress { valid_for: day, ..permanent(3, "10.2.0.1/32") },
        HostAddress { protocol: Some(1), ..ours(3, "10.2.0.1/32") },
        // marked by us, and then made permanent by somebody
        HostAddress { valid_for: None, ..ours(3, "10.2.0.1/32") },
    ];
    for foreign in foreign {
        let mut host = host();
        host.addresses.push(foreign.clone());
        let answer = placed(&host, "10.2.0.1", &"eth0".parse().expect("a name"), None);
        let expected = Error::Foreign { address: ip("10.2.0.1"), interface: "eth1".to_owned() };
        assert_eq!(answer, Err(expected), "{foreign:?}");
    }
}

#[test]
fn kube_proxy_has_every_address_on_an_interface_of_its_own() {
    let mut host = host();
    host.interfaces.push(interface(9, "kube-ipvs0"));
    host.addresses.push(permanent(9, "10.2.0.1/32"));
    let place = host.place(ip("10.2.0.1"), &InterfaceChoice::Automatic, None).expect("a place");
    assert_eq!((place.interface.name.as_str(), place.is_set), ("eth1", false));
    assert_eq!(place.elsewhere, [0; 0]);
}

#[test]
fn what_is_left_from_before_a_restart_is_taken_over() {
    let old_kernel = |interface| HostAddress { protocol: None, ..ours(interface, "10.2.0.1/32") };
    for left in [ours, |interface, _: &str| HostAddress { protocol: None, ..ours(interface, "10.2.0.1/32") }]
    {
        let mut host = host();
        host.addresses.push(left(3, "10.2.0.1/32"));
        let eth1 = host.place(ip("10.2.0.1"), &"eth1".parse().expect("a name"), None).expect("a place");
        assert!(eth1.is_set);
        assert_eq!(eth1.elsewhere, [0; 0]);
        let eth0 = host.place(ip("10.2.0.1"), &"eth0".parse().expect("a name"), None).expect("a place");
        assert!(!eth0.is_set);
        assert_eq!(eth0.elsewhere, [3]);
    }
    assert!(old_kernel(2).is_ours());
}

#[test]
fn our_addresses_do_not_say_where_others_belong() {
    let mut host = host();
    host.addresses.push(ours(4, "198.51.100.1/32"));
    assert_eq!(placed(&host, "198.51.100.2", &InterfaceChoice::Automatic, None).as_deref(), Ok("eth0"));
}

#[test]
fn names_of_interfaces() {
    for name in ["eth0", "br-lan", "enp1s0.100", "a23456789012345"] {
        assert_eq!(name.parse(), Ok(InterfaceChoice::Named(name.to_owned())));
    }
    for name in ["", ".", "..", "a/b", "eth0:1", "a b", "a234567890123456"] {
        assert!(name.parse::<InterfaceChoice>().is_err(), "{name:?}");
    }
}

#[test]
fn addresses_that_nobody_can_hold() {
    for address in [
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "127.0.0.1",
        "::1",
        "255.255.255.255",
        "fe80::1",
        "::ffff:10.0.0.1",
    ] {
        assert!(fault(ip(address)).is_some(), "{address}");
    }
    for address in ["10.0.0.1", "192.0.2.255", "169.254.1.1", "fd00::1", "2001:db8::1"] {
        assert_eq!(fault(ip(address)), None, "{address}");
    }
}

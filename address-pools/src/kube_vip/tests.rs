use super::*;
use crate::range::Family;

fn read_all(data: &[(&str, &str)]) -> (Pools, Vec<String>) {
    let name = ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let (pools, problems) = read(&name, &data);
    (pools, problems.iter().map(ToString::to_string).collect())
}

/// The pool of a namespace: its key and its addresses.
fn pool_of(data: &[(&str, &str)], namespace: &str) -> Option<(String, String)> {
    let (pools, problems) = read_all(data);
    assert_eq!(problems, <[String; 0]>::default(), "{data:?}");
    let pool = pools.automatic(namespace).into_iter().next()?;
    Some((pool.name.clone(), pool.addresses.to_string()))
}

#[test]
fn the_first_key_that_is_there_gives_the_pool() {
    let all = [
        ("cidr-shop", "10.0.0.0/30"),
        ("cidr-global", "10.0.1.0/30"),
        ("range-shop", "10.0.2.1-10.0.2.3"),
        ("range-global", "10.0.3.1-10.0.3.3"),
    ];
    for (left_out, expected) in [
        (0, Some(("cidr-shop", "10.0.0.0-10.0.0.3"))),
        (1, Some(("cidr-global", "10.0.1.0-10.0.1.3"))),
        (2, Some(("range-shop", "10.0.2.1-10.0.2.3"))),
        (3, Some(("range-global", "10.0.3.1-10.0.3.3"))),
        (4, None),
    ] {
        let expected = expected.map(|(key, addresses)| (key.to_owned(), addresses.to_owned()));
        assert_eq!(pool_of(&all[left_out..], "shop"), expected);
    }
    assert_eq!(pool_of(&all, "other").map(|(key, _)| key).as_deref(), Some("cidr-global"));
    assert_eq!(pool_of(&[all[0], all[2]], "other"), None);
}

#[test]
fn lists_of_both_families_are_read() {
    for (key, value, expected) in [
        ("cidr-global", "10.0.0.0/30,fd00::/126", "10.0.0.0-10.0.0.3, fd00::-fd00::3"),
        ("cidr-global", " 10.0.0.5/30 , 10.0.0.8/32 ", "10.0.0.4-10.0.0.8"),
        ("range-global", "10.0.0.1-10.0.0.2,fd00::1-fd00::2", "10.0.0.1-10.0.0.2, fd00::1-fd00::2"),
        ("range-global", "10.0.0.1-10.0.0.2,10.0.0.3-10.0.0.9", "10.0.0.1-10.0.0.9"),
        // kube-vip looks at the value, not at the key; a mixture of both is refused there.
        ("cidr-global", "10.0.0.1-10.0.0.2", "10.0.0.1-10.0.0.2"),
        ("range-global", "10.0.0.0/31,10.0.0.7-10.0.0.8", "10.0.0.0-10.0.0.1, 10.0.0.7-10.0.0.8"),
    ] {
        assert_eq!(
            pool_of(&[(key, value)], "any").map(|(_, addresses)| addresses).as_deref(),
            Some(expected),
            "{value}"
        );
    }
}

#[test]
fn the_ends_of_networks_are_skipped_where_that_is_asked_for() {
    for (skip, cidr, expected) in [
        ("true", "10.0.0.0/29", "10.0.0.1-10.0.0.6"),
        ("false", "10.0.0.0/29", "10.0.0.0-10.0.0.7"),
        ("true", "10.0.0.0/31", "10.0.0.0-10.0.0.1"),
        ("true", "10.0.0.9/32", "10.0.0.9"),
        ("true", "fd00::/126", "fd00::-fd00::3"),
        ("true", "10.0.0.4-10.0.0.8", "10.0.0.4-10.0.0.8"),
    ] {
        let data = [("skip-end-ips-in-cidr", skip), ("cidr-global", cidr)];
        assert_eq!(
            pool_of(&data, "any").map(|(_, addresses)| addresses).as_deref(),
            Some(expected),
            "{skip} {cidr}"
        );
    }
}

#[test]
fn the_other_keys_are_read() {
    let (pools, problems) = read_all(&[
        ("cidr-global", "10.0.0.0/24"),
        ("cidr-shop", "10.0.1.0/24"),
        ("interface-global", "eth0"),
        ("interface-shop", "eth1"),
        ("interface-none", ""),
        ("allow-share-global", "true"),
        ("allow-share-shop", "F"),
        ("search-order", "desc"),
    ]);
    assert_eq!(problems, <[String; 0]>::default());
    let pool = pools.automatic("default")[0];
    assert_eq!((pool.order, pool.skips_0_and_255), (Order::Descending, true));
    for (namespace, interface, sharing) in
        [("default", "eth0", Sharing::Always), ("shop", "eth1", Sharing::Never)]
    {
        // Both say what holds for the namespace of the Service, whichever pool it uses.
        for pool in &pools.pools {
            assert_eq!(pools.interface(pool, namespace), Some(interface));
            assert_eq!(pools.sharing(pool, namespace), sharing);
            assert_eq!(pools.interface(pool, "none"), None);
        }
    }
}

#[test]
fn dhcp_stands_alone() {
    let (pools, problems) =
        read_all(&[("cidr-shop", "0.0.0.0/32"), ("cidr-global", "0.0.0.0/32,10.0.0.0/24")]);
    assert!(pools.automatic("shop")[0].dhcp);
    assert_eq!(problems, ["cidr-global: 0.0.0.0/32 asks for DHCP and must stand alone"]);
    assert!(!pools.automatic("other")[0].dhcp && pools.automatic("other")[0].fault.is_some());
}

#[test]
fn faults_are_told_with_their_key_and_concern_one_pool() {
    for (key, value, message) in [
        ("cidr-a", "", "is empty; write networks or ranges"),
        (
            "cidr-a",
            "10.0.0.0/33",
            "\"10.0.0.0/33\" is not a network, range or address; write 10.0.0.0/24, 10.0.0.10-10.0.0.20 or 10.0.0.7",
        ),
        (
            "range-a",
            "10.0.0.9-10.0.0.1",
            "\"10.0.0.9-10.0.0.1\" ends before it begins; write the lower address first",
        ),
        (
            "range-a",
            "10.0.0.9-fd00::1",
            "\"10.0.0.9-fd00::1\" begins and ends in different address families; give each family a range of its own",
        ),
        (
            "range-a",
            "10.0.0.1-10.0.0.2,,10.0.0.5-10.0.0.6",
            "has a comma without anything before or behind it",
        ),
    ] {
        let (pools, problems) = read_all(&[(key, value), ("cidr-b", "10.1.0.0/24")]);
        assert_eq!(problems, [format!("{key}: {message}")]);
        let pool = pools.automatic("a")[0];
        assert_eq!(pool.fault, Some(format!("ConfigMap kube-system/kubevip, key {key}: {message}")));
        assert!(!pool.addresses.has(Family::Ipv4) && !pool.addresses.has(Family::Ipv6));
        assert_eq!(pools.automatic("b")[0].fault, None);
    }
    let (pools, problems) = read_all(&[
        ("search-order", "down"),
        ("skip-end-ips-in-cidr", "yes"),
        ("allow-share-a", "maybe"),
        ("cidr-a", "10.0.0.0/24"),
        ("unknown", "x"),
    ]);
    assert_eq!(
        problems,
        [
            "search-order: \"down\" is not an order and counts as asc; known: asc, desc",
            "skip-end-ips-in-cidr: \"yes\" counts as false; write true or false",
            "allow-share-a: \"maybe\" counts as false; write true or false",
        ]
    );
    assert_eq!(pools.automatic("a")[0].addresses.to_string(), "10.0.0.0-10.0.0.255");
}

#[test]
fn the_whole_internet_and_addresses_of_no_host_are_refused() {
    for (value, expected) in [
        (
            "0.0.0.0/0",
            "\"0.0.0.0/0\" is every address that there is; write the networks that are for load balancers",
        ),
        (
            "10.0.0.0/24,::/0",
            "\"::/0\" is every address that there is; write the networks that are for load balancers",
        ),
        ("0.0.0.0/1", "\"0.0.0.0/1\" has addresses that no host can have"),
        ("127.0.0.1-127.0.0.9", "\"127.0.0.1-127.0.0.9\" has loopback addresses"),
        ("fe80::/64", "\"fe80::/64\" has link-local addresses"),
    ] {
        let (pools, problems) = read_all(&[("cidr-global", value)]);
        assert_eq!(problems, [format!("cidr-global: {expected}")], "{value}");
        let pool = &pools.pools[0];
        assert!(pool.addresses == AddressSet::default() && !pool.dhcp);
        assert_eq!(pool.fault, Some(format!("ConfigMap kube-system/kubevip, key cidr-global: {expected}")));
    }
}

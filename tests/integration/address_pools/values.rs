//! Which pool is chosen, what its value means, and the order of its addresses.

use super::case::{Case, a, b};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("there is no ConfigMap", &[]).gives(a("s"), "refused: no address pools could be found"),
        Case::new("a CIDR of a namespace", &[("cidr-pool-a", "10.1.1.8/30")])
            .gives(a("s1"), "10.1.1.8")
            .gives(a("s2"), "10.1.1.9")
            .gives(b("other"), "refused: no address pools could be found"),
        Case::new("a CIDR for all", &[("cidr-global", "10.1.2.8/30")]).gives(a("s1"), "10.1.2.8").gives(b("s2"), "10.1.2.9"),
        Case::new("a range of a namespace", &[("range-pool-a", "10.1.3.5-10.1.3.6")])
            .gives(a("s1"), "10.1.3.5")
            .gives(a("s2"), "10.1.3.6")
            .gives(a("s3"), "refused: no addresses available in [pool-a] range [10.1.3.5-10.1.3.6]")
            .gives(b("other"), "refused: no address pools could be found"),
        Case::new("a range for all", &[("range-global", "10.1.4.5-10.1.4.6")])
            .gives(a("s1"), "10.1.4.5")
            .gives(b("s2"), "10.1.4.6"),
        Case::new(
            "a CIDR for all beside a range of the namespace",
            &[("cidr-global", "10.1.5.0/29"), ("range-pool-a", "10.1.5.100-10.1.5.101")],
        )
        .gives(a("s"), "10.1.5.1"),
        Case::new(
            "a full pool of the namespace beside one for all",
            &[("cidr-pool-a", "10.1.6.9/32"), ("cidr-global", "10.1.6.16/28")],
        )
        .gives(a("s1"), "10.1.6.9")
        .gives(a("s2"), "refused: no addresses available in [pool-a] cidr [10.1.6.9/32]")
        .gives(b("other"), "10.1.6.16"),
        Case::new(
            "a pool of a namespace that overlaps one for all",
            &[("cidr-pool-a", "10.1.7.8/30"), ("cidr-global", "10.1.7.8/30")],
        )
        .gives(a("s1"), "10.1.7.8")
        .gives(b("s2"), "10.1.7.9")
        .gives(a("s3"), "10.1.7.9"),
        Case::new(
            "CIDRs that overlap, in any order",
            &[("cidr-global", "10.1.8.12/32,10.1.8.4/31,10.1.8.4/32")],
        )
        .gives(a("s1"), "10.1.8.4")
        .gives(a("s2"), "10.1.8.5")
        .gives(a("s3"), "10.1.8.12")
        .gives(a("s4"), "refused: no addresses available in [pool-a] cidr [10.1.8.4/31,10.1.8.12/32]"),
        Case::new("ranges that overlap", &[("range-global", "10.1.9.4-10.1.9.5,10.1.9.5-10.1.9.6")])
            .gives(a("s1"), "10.1.9.4")
            .gives(a("s2"), "10.1.9.5")
            .gives(a("s3"), "10.1.9.6")
            .gives(a("s4"), "refused: no addresses available in [pool-a] range [10.1.9.4-10.1.9.6]"),
        Case::new("host bits in a CIDR", &[("cidr-global", "10.1.10.13/30")]).gives(a("s"), "10.1.10.12"),
        Case::new("from the end", &[("cidr-global", "10.1.11.8/30"), ("search-order", "desc")])
            .gives(a("s1"), "10.1.11.11")
            .gives(a("s2"), "10.1.11.10"),
        Case::new("another word for the order", &[("cidr-global", "10.1.12.8/30"), ("search-order", "DESC")])
            .gives(a("s"), "10.1.12.8"),
        Case::new("addresses that end with 0 and 255", &[("range-global", "10.1.13.254-10.1.14.1")])
            .gives(a("s1"), "10.1.13.254")
            .gives(a("s2"), "10.1.14.1")
            .gives(a("s3"), "refused: no addresses available in [pool-a] range [10.1.13.254-10.1.14.1]"),
        Case::new("the whole of a /24", &[("cidr-global", "10.1.15.0/24")]).gives(a("s"), "10.1.15.1"),
        Case::new("without the ends", &[("cidr-global", "10.1.16.8/30"), ("skip-end-ips-in-cidr", "true")])
            .gives(a("s1"), "10.1.16.9")
            .gives(a("s2"), "10.1.16.10")
            .gives(a("s3"), "refused: no addresses available in [pool-a] cidr [10.1.16.8/30]"),
        Case::new(
            "a /31 without the ends",
            &[("cidr-global", "10.1.17.8/31"), ("skip-end-ips-in-cidr", "true")],
        )
        .gives(a("s1"), "10.1.17.8")
        .gives(a("s2"), "10.1.17.9"),
        Case::new(
            "a /32 without the ends",
            &[("cidr-global", "10.1.18.8/32"), ("skip-end-ips-in-cidr", "true")],
        )
        .gives(a("s"), "10.1.18.8"),
        Case::new(
            "CIDRs side by side without the ends",
            &[("cidr-global", "10.1.19.0/31,10.1.19.2/31"), ("skip-end-ips-in-cidr", "true")],
        )
        .gives(a("s1"), "10.1.19.1")
        .gives(a("s2"), "10.1.19.2")
        .gives(a("s3"), "refused: no addresses available in [pool-a] cidr [10.1.19.0/30]"),
        Case::new(
            "a range without the ends",
            &[("range-global", "10.1.20.8-10.1.20.9"), ("skip-end-ips-in-cidr", "true")],
        )
        .gives(a("s"), "10.1.20.8"),
        Case::new(
            "IPv6 without the ends",
            &[("cidr-global", "fd01:1::/126"), ("skip-end-ips-in-cidr", "true")],
        )
        .gives(a("s").families("SingleStack", &["IPv6"]), "fd01:1::"),
        Case::new("the ends are left out later", &[("cidr-global", "10.1.21.8/29")])
            .gives(a("s1"), "10.1.21.8")
            .deletes(a("s1"))
            .config(&[("cidr-global", "10.1.21.8/29"), ("skip-end-ips-in-cidr", "true")])
            .gives(a("s2"), "10.1.21.8"),
        Case::new("the pool changes", &[("cidr-global", "10.1.22.8/30")])
            .gives(a("s1"), "10.1.22.8")
            .config(&[("cidr-global", "10.1.23.8/30")])
            .gives(a("s2"), "10.1.23.8"),
        Case::new(
            "the pool is full, and an address is given back",
            &[("range-global", "10.1.24.1-10.1.24.2")],
        )
        .gives(a("s1"), "10.1.24.1")
        .gives(a("s2"), "10.1.24.2")
        .gives(a("s3"), "refused: no addresses available in [pool-a] range [10.1.24.1-10.1.24.2]")
        .deletes(a("s3"))
        .deletes(a("s1"))
        .gives(a("s4"), "10.1.24.1"),
        Case::new("DHCP", &[("cidr-global", "0.0.0.0/32")]).gives(a("s1"), "0.0.0.0").gives(a("s2"), "0.0.0.0"),
        Case::new("DHCP for both families", &[("cidr-global", "0.0.0.0/32")])
            .gives(a("s").families("RequireDualStack", &["IPv4", "IPv6"]), "0.0.0.0"),
        Case::new("DHCP beside a pool", &[("cidr-global", "0.0.0.0/32,10.1.25.0/30")]).gives(a("s"), "10.1.25.1"),
        Case::new("a value that is empty", &[("cidr-global", ""), ("range-global", "10.1.26.1-10.1.26.2")])
            .gives(a("s"), "refused: could not discover address: pool is not specified"),
        Case::new("a CIDR that is none", &[("cidr-global", "10.1.27.0/33")]).gives(a("s"), "refused: netip.ParsePrefix(\"10.1.27.0/33\"): prefix length out of range"),
        Case::new("an address instead of a CIDR", &[("cidr-global", "10.1.28.1")]).gives(a("s"), "refused: unable to parse IP range [10.1.28.1]"),
        Case::new("a range under the key of CIDRs", &[("cidr-global", "10.1.29.1-10.1.29.2")])
            .gives(a("s"), "10.1.29.1"),
        Case::new("a CIDR under the key of ranges", &[("range-global", "10.1.30.4/31")]).gives(a("s"), "10.1.30.4"),
        Case::new("a CIDR and a range in one value", &[("cidr-global", "10.1.31.0/30,10.1.31.8-10.1.31.9")])
            .gives(a("s"), "refused: netip.ParsePrefix(\"10.1.31.8-10.1.31.9\"): no '/'"),
        Case::new("a blank after the comma", &[("cidr-global", "10.1.32.4/31, 10.1.32.8/31")])
            .gives(a("s"), "refused: netip.ParsePrefix(\" 10.1.32.8/31\"): ParseAddr(\" 10.1.32.8\"): unexpected character (at \" 10.1.32.8\")"),
        Case::new("a range from high to low", &[("range-global", "10.1.33.9-10.1.33.1")]).gives(a("s"), "refused: AddRange(10.1.33.9-10.1.33.1)"),
        Case::new("a range of two families", &[("range-global", "10.1.34.1-fd01:2::1")]).gives(a("s"), "refused: AddRange(10.1.34.1-fd01:2::1)"),
        Case::new("a range without an end", &[("range-global", "10.1.35.1-")]).gives(a("s"), "refused: ParseAddr(\"\"): unable to parse IP"),
    ]
}

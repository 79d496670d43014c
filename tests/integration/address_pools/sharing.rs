//! Services that share an address, and interfaces.

use super::case::{Case, a, b};

pub(super) fn cases() -> Vec<Case> {
    let at = |name, port| a(name).ports(&[("TCP", port)]);
    vec![
        Case::new(
            "shared where ports differ",
            &[("cidr-global", "10.3.1.4/30"), ("allow-share-global", "true")],
        )
        .gives(at("s1", 80), "10.3.1.4")
        .gives(at("s2", 443), "10.3.1.4")
        .gives(b("other").ports(&[("TCP", 8080)]), "10.3.1.4")
        .gives(at("s3", 80), "10.3.1.5"),
        Case::new(
            "one port with two protocols",
            &[("cidr-global", "10.3.2.4/30"), ("allow-share-global", "true")],
        )
        .gives(a("tcp").ports(&[("TCP", 53)]), "10.3.2.4")
        .gives(a("udp").ports(&[("UDP", 53)]), "10.3.2.5"),
        Case::new("shared in a namespace", &[("cidr-global", "10.3.3.4/30"), ("allow-share-pool-a", "true")])
            .gives(at("s1", 80), "10.3.3.4")
            .gives(at("s2", 443), "10.3.3.4")
            .gives(b("other").ports(&[("TCP", 8080)]), "10.3.3.5"),
        Case::new("1 means true", &[("cidr-global", "10.3.4.4/30"), ("allow-share-global", "1")])
            .gives(at("s1", 80), "10.3.4.4")
            .gives(at("s2", 443), "10.3.4.4"),
        Case::new("yes means false", &[("cidr-global", "10.3.5.4/30"), ("allow-share-global", "yes")])
            .gives(at("s1", 80), "10.3.5.4")
            .gives(at("s2", 443), "10.3.5.5"),
        Case::new(
            "the namespace forbids it",
            &[
                ("cidr-global", "10.3.6.4/30"),
                ("allow-share-global", "true"),
                ("allow-share-pool-a", "false"),
            ],
        )
        .gives(at("s1", 80), "10.3.6.4")
        .gives(at("s2", 443), "10.3.6.5"),
        Case::new("IPv6 is not shared", &[("cidr-global", "fd03:7::4/126"), ("allow-share-global", "true")])
            .gives(at("s1", 80).families("SingleStack", &["IPv6"]), "fd03:7::4")
            .gives(at("s2", 443).families("SingleStack", &["IPv6"]), "fd03:7::5"),
        Case::new(
            "both families shared",
            &[("cidr-global", "10.3.8.4/30,fd03:8::4/126"), ("allow-share-global", "true")],
        )
        .gives(at("s1", 80).families("RequireDualStack", &["IPv4", "IPv6"]), "10.3.8.4,fd03:8::4")
        .gives(at("s2", 443).families("RequireDualStack", &["IPv4", "IPv6"]), "10.3.8.4,fd03:8::5"),
        Case::new(
            "shared with an address outside of the pool",
            &[("cidr-global", "10.3.9.4/30"), ("allow-share-global", "true")],
        )
        .gives(at("s1", 80).asks("192.0.2.77"), "192.0.2.77 loadBalancerIP=none")
        .gives(at("s2", 443), "192.0.2.77"),
        Case::new(
            "a full pool that is shared",
            &[("cidr-global", "10.3.10.4/32"), ("allow-share-global", "true")],
        )
        .gives(at("s1", 80), "10.3.10.4")
        .gives(at("s2", 80), "refused: no addresses available in [pool-a] cidr [10.3.10.4/32]")
        .gives(at("s3", 81), "10.3.10.4"),
        Case::new(
            "interfaces",
            &[("cidr-global", "10.3.11.0/28"), ("interface-pool-a", "eth3"), ("interface-global", "eth9")],
        )
        .gives(a("s1"), "10.3.11.1 on eth3")
        .gives(b("s2"), "10.3.11.2 on eth9")
        .gives(a("asks").asks("10.3.11.9"), "10.3.11.9 loadBalancerIP=none"),
        Case::new(
            "an interface that is empty",
            &[("cidr-global", "10.3.12.0/28"), ("interface-pool-a", ""), ("interface-global", "eth9")],
        )
        .gives(a("s"), "10.3.12.1"),
    ]
}

//! IPv4, IPv6 and both.

use super::case::{Case, a};

const PAIR: &str = "10.2.1.1-10.2.1.2,fd02:1::1-fd02:1::2";

pub(super) fn cases() -> Vec<Case> {
    let prefer = |name, families: &[&str]| a(name).families("PreferDualStack", families);
    let require = |name, families: &[&str]| a(name).families("RequireDualStack", families);
    let single = |name, family| a(name).families("SingleStack", &[family]);
    vec![
        Case::new("one family of a pool with both", &[("range-global", PAIR)])
            .gives(single("s4", "IPv4"), "10.2.1.1")
            .gives(single("s6", "IPv6"), "fd02:1::1"),
        Case::new("a family without a pool", &[("range-global", "10.2.2.1-10.2.2.2")])
            .gives(single("s6", "IPv6"), "refused: could not find suitable pool for the IP family of the service"),
        Case::new("both preferred", &[("cidr-global", "10.2.3.4/30,fd02:3::4/126")])
            .gives(prefer("s46", &["IPv4", "IPv6"]), "10.2.3.4,fd02:3::4")
            .gives(prefer("s64", &["IPv6", "IPv4"]), "fd02:3::5,10.2.3.5"),
        Case::new("both preferred, the second has no pool", &[("cidr-global", "10.2.4.4/30")])
            .gives(prefer("s46", &["IPv4", "IPv6"]), "10.2.4.4"),
        Case::new("both preferred, the first has no pool", &[("cidr-global", "fd02:5::4/126")])
            .gives(prefer("s46", &["IPv4", "IPv6"]), "fd02:5::4"),
        Case::new("both preferred, one is full", &[("range-global", "10.2.6.1-10.2.6.1,fd02:6::1-fd02:6::2")])
            .gives(single("s4", "IPv4"), "10.2.6.1")
            .gives(prefer("s46", &["IPv4", "IPv6"]), "fd02:6::1")
            .gives(prefer("s64", &["IPv6", "IPv4"]), "fd02:6::2")
            .gives(prefer("none", &["IPv4", "IPv6"]), "refused: could not allocate any IP address for PreferDualStack service: \n\t- no addresses available in [pool-a] range [10.2.6.1-10.2.6.1]\n\t- no addresses available in [pool-a] range [fd02:6::1-fd02:6::2]"),
        Case::new("both required", &[("cidr-global", "10.2.7.4/30,fd02:7::4/126")])
            .gives(require("s46", &["IPv4", "IPv6"]), "10.2.7.4,fd02:7::4")
            .gives(require("s64", &["IPv6", "IPv4"]), "fd02:7::5,10.2.7.5"),
        Case::new("both required, one has no pool", &[("cidr-global", "10.2.8.4/30")])
            .gives(require("s46", &["IPv4", "IPv6"]), "refused: service requires dual-stack, but the configuration does not have both IPv4 and IPv6 pools listed for the namespace"),
        Case::new("both required, one is full", &[("range-global", "10.2.9.1-10.2.9.1,fd02:9::1-fd02:9::2")])
            .gives(single("s4", "IPv4"), "10.2.9.1")
            .gives(require("s46", &["IPv4", "IPv6"]), "refused: could not allocate required IP addresses for RequireDualStack service: \n\t- no addresses available in [pool-a] range [10.2.9.1-10.2.9.1]"),
        Case::new("both from the end", &[("cidr-global", "10.2.10.4/30,fd02:a::4/126"), ("search-order", "desc")])
            .gives(require("s46", &["IPv4", "IPv6"]), "10.2.10.7,fd02:a::7"),
        Case::new("one family becomes both", &[("cidr-global", "10.2.11.4/30,fd02:b::4/126")])
            .gives(single("s", "IPv4"), "10.2.11.4")
            .changes(
                a("s"),
                serde_json::json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}),
                "10.2.11.4",
            ),
    ]
}

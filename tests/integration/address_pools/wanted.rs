//! The cases in which this repository's allocator gives other answers on purpose. `docs/guides/address-pools.md` says
//! why.

/// The name of each case, and our answers.
pub(super) const DIFFERENCES: &[(&str, &[&str])] = &[
    // Each address once in the cluster.
    ("a pool of a namespace that overlaps one for all", &["s1: 10.1.7.8", "s2: 10.1.7.9", "s3: 10.1.7.10"]),
    ("an address that is in use", &["s1: 10.4.1.1", "s2: refused"]),
    // What is asked for must be addresses of the Service's families.
    ("two addresses by annotation", &["s: refused"]),
    ("an annotation that is no address", &["s1: refused", "s2: 10.4.1.1"]),
    ("addresses with a blank between", &["s1: refused", "s2: 10.4.1.1"]),
    ("shared with an address outside of the pool", &["s1: 192.0.2.77 loadBalancerIP=none", "s2: 10.3.9.4"]),
    // An address that is asked for by the field is in use.
    ("an address is asked for by loadBalancerIP", &["s1: 10.4.1.1", "s2: 10.4.1.2"]),
    ("a loadBalancerIP outside of the pool", &["s: 192.0.2.9"]),
    ("a loadBalancerIP that is no address", &["s: refused"]),
    ("a loadBalancerIP and an annotation", &["s: refused"]),
    // A Service moves when a person asks for that, and not otherwise.
    ("the annotation asks for another address", &["s1: 10.4.1.1", "s1: 10.4.1.9 loadBalancerIP=none"]),
    ("loadBalancerIP asks for another address", &["s1: 10.4.1.1", "s1: 10.4.1.9"]),
    ("the label is removed", &["s1: 10.4.1.1", "s1: 10.4.1.1", "s2: 10.4.1.2"]),
    ("the type changes", &["s1: 10.4.1.1", "s1: nothing loadBalancerIP=none unlabelled", "s2: 10.4.1.1"]),
    ("one family becomes both", &["s: 10.2.11.4", "s: 10.2.11.4,fd02:b::4"]),
    // Sharing: by number and protocol, and both families.
    ("one port with two protocols", &["tcp: 10.3.2.4", "udp: 10.3.2.4"]),
    ("IPv6 is not shared", &["s1: fd03:7::4", "s2: fd03:7::4"]),
    ("both families shared", &["s1: 10.3.8.4,fd03:8::4", "s2: 10.3.8.4,fd03:8::4"]),
    // What the ConfigMap says.
    ("CIDRs side by side without the ends", &["s1: 10.1.19.1", "s2: 10.1.19.2", "s3: 10.1.19.3"]),
    ("the ends are left out later", &["s1: 10.1.21.8", "s2: 10.1.21.9"]),
    ("DHCP beside a pool", &["s: refused"]),
    ("an address instead of a CIDR", &["s: 10.1.28.1"]),
    ("a CIDR and a range in one value", &["s: 10.1.31.1"]),
    ("a blank after the comma", &["s: 10.1.32.4"]),
    (
        "interfaces",
        &["s1: 10.3.11.1 on eth3", "s2: 10.3.11.2 on eth9", "asks: 10.3.11.9 loadBalancerIP=none on eth3"],
    ),
];

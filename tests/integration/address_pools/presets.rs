//! Addresses that the user asks for, changes afterwards, and other classes.

use serde_json::json;

use super::case::{Case, a};

const POOL: &[(&str, &str)] = &[("cidr-global", "10.4.1.0/28")];
const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

pub(super) fn cases() -> Vec<Case> {
    let wants = |name, ip: &str| a(name).with("loadBalancerIP", json!(ip));
    vec![
        Case::new("an address is asked for by annotation", POOL)
            .gives(a("s1").asks("10.4.1.5"), "10.4.1.5 loadBalancerIP=none")
            .gives(a("s2"), "10.4.1.1"),
        Case::new("the first address is asked for by annotation", POOL)
            .gives(a("s1").asks("10.4.1.1"), "10.4.1.1 loadBalancerIP=none")
            .gives(a("s2"), "10.4.1.2"),
        Case::new("an address outside of the pool", POOL)
            .gives(a("s").asks("192.0.2.9"), "192.0.2.9 loadBalancerIP=none"),
        Case::new("an address that is in use", POOL)
            .gives(a("s1"), "10.4.1.1")
            .gives(a("s2").asks("10.4.1.1"), "10.4.1.1 loadBalancerIP=none"),
        Case::new("two addresses by annotation", POOL)
            .gives(a("s").asks("10.4.1.5,fd04::5"), "10.4.1.5,fd04::5 loadBalancerIP=none"),
        Case::new("DHCP by annotation", POOL).gives(a("s").asks("0.0.0.0"), "0.0.0.0 loadBalancerIP=none"),
        Case::new("an address without a ConfigMap", &[])
            .gives(a("s").asks("10.4.1.5"), "10.4.1.5 loadBalancerIP=none"),
        Case::new("an annotation that is empty", POOL).gives(a("s").asks(""), "10.4.1.1"),
        Case::new("an annotation that is no address", POOL)
            .gives(a("s1").asks("10.4.1.500"), "10.4.1.500 loadBalancerIP=none")
            .gives(a("s2"), "refused: ParseAddr(\"10.4.1.500\"): IPv4 field has value >255"),
        Case::new("addresses with a blank between", POOL)
            .gives(a("s1").asks("10.4.1.5, 10.4.1.6"), "10.4.1.5, 10.4.1.6 loadBalancerIP=none")
            .gives(a("s2"), "refused: ParseAddr(\" 10.4.1.6\"): unexpected character (at \" 10.4.1.6\")"),
        Case::new("an address is asked for by loadBalancerIP", POOL)
            .gives(wants("s1", "10.4.1.1"), "10.4.1.1 unlabelled")
            .gives(a("s2"), "10.4.1.1"),
        Case::new("a loadBalancerIP outside of the pool", POOL)
            .gives(wants("s", "192.0.2.9"), "192.0.2.9 unlabelled"),
        Case::new("a loadBalancerIP that is no address", POOL).gives(wants("s", "here"), "here unlabelled"),
        Case::new("a loadBalancerIP and an annotation", POOL)
            .gives(wants("s", "10.4.1.6").asks("10.4.1.7"), "10.4.1.7 loadBalancerIP=10.4.1.6 unlabelled"),
        Case::new("an address stays when its pool goes", POOL)
            .gives(a("s"), "10.4.1.1")
            .config(&[("cidr-global", "10.4.2.0/28")])
            .changes(a("s"), json!({"spec": {"sessionAffinity": "ClientIP"}}), "10.4.1.1"),
        Case::new("the annotation is removed", POOL).gives(a("s1"), "10.4.1.1").changes(
            a("s1"),
            json!({"metadata": {"annotations": {ADDRESSES: null}}}),
            "10.4.1.1",
        ),
        Case::new("annotation and loadBalancerIP are removed", POOL)
            .gives(a("s1"), "10.4.1.1")
            .gives(a("s2"), "10.4.1.2")
            .changes(
                a("s1"),
                json!({"metadata": {"annotations": {ADDRESSES: null}}, "spec": {"loadBalancerIP": null}}),
                "10.4.1.1",
            ),
        Case::new("the annotation asks for another address", POOL).gives(a("s1"), "10.4.1.1").changes(
            a("s1"),
            json!({"metadata": {"annotations": {ADDRESSES: "10.4.1.9"}}}),
            "10.4.1.9 loadBalancerIP=10.4.1.1",
        ),
        Case::new("loadBalancerIP asks for another address", POOL).gives(a("s1"), "10.4.1.1").changes(
            a("s1"),
            json!({"spec": {"loadBalancerIP": "10.4.1.9"}}),
            "10.4.1.1 loadBalancerIP=10.4.1.9",
        ),
        Case::new("the label is removed", POOL)
            .gives(a("s1"), "10.4.1.1")
            .changes(
                a("s1"),
                json!({"metadata": {"labels": {"implementation": null}}}),
                "10.4.1.1 unlabelled",
            )
            .gives(a("s2"), "10.4.1.1"),
        Case::new("the type changes", POOL)
            .gives(a("s1"), "10.4.1.1")
            .changes(
                a("s1"),
                json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}}),
                "10.4.1.1",
            )
            .gives(a("s2"), "10.4.1.2"),
        Case::new("a class of its own", POOL).gives(
            a("s").with("loadBalancerClass", json!("example.com/other")),
            "nothing loadBalancerIP=none unlabelled",
        ),
        Case::new("kube-vip's class", POOL).gives(
            a("s").with("loadBalancerClass", json!("kube-vip.io/kube-vip-class")),
            "nothing loadBalancerIP=none unlabelled",
        ),
    ]
}

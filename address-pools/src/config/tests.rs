use super::*;
use crate::testing::{config, ip, pools};

fn problems(json: &str) -> Vec<String> {
    let mut findings = Findings::default();
    let value = serde_json::from_str(json).expect("JSON");
    let config = Config::read("addressPools", &value, &mut findings);
    let problems = findings.problems;
    assert_eq!(config.is_none(), !problems.is_empty(), "{config:?} {problems:?}");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn pools_are_read_with_their_defaults() {
    let found = pools(
        r#"{"pools": [
            {"name": "public", "addresses": ["192.0.2.0/30", "2001:db8::1-2001:db8::4"], "skipEnds": true},
            {"name": "shop", "addresses": ["198.51.100.7"], "namespaces": ["shop", "till"], "interface": "eth1",
             "autoAssign": false, "allowSharing": "true"}]}"#,
    );
    assert_eq!(found.origin, "addressPools.pools");
    let [public, shop] = found.pools.as_slice() else { panic!("{found:?}") };
    assert_eq!(public.addresses.to_string(), "192.0.2.1-192.0.2.2, 2001:db8::1-2001:db8::4");
    assert!(public.auto_assign && public.serves("any") && public.interface.is_none());
    assert_eq!(public.sharing, Sharing::Never);
    assert!(
        !shop.auto_assign
            && shop.serves("till")
            && !shop.serves("any")
            && shop.addresses.contains(ip("198.51.100.7"))
    );
    assert_eq!((shop.interface.as_deref(), shop.sharing), (Some("eth1"), Sharing::ByKey));
}

#[test]
fn who_announces_is_said_or_follows_from_the_pools() {
    const POOLS: &str = r#""pools": [{"name": "a", "addresses": ["192.0.2.1"]}]"#;
    for (rest, announcer) in [
        ("", Announcer::Nobody),
        (r#", "announce": false"#, Announcer::Nobody),
        (r#", "announce": true"#, Announcer::Itself),
        (r#", "announcedBy": "kube-vip""#, Announcer::KubeVip),
        (r#", "announcedBy": "metallb""#, Announcer::MetalLb),
        (r#", "announcedBy": "cilium""#, Announcer::Cilium),
        (r#", "announcedBy": "none""#, Announcer::Nobody),
    ] {
        assert_eq!(config(&format!("{{{POOLS}{rest}}}")).announcer, announcer, "{rest}");
    }
    let kube_vip = config(r#"{"kubeVipConfigMap": {}}"#);
    assert_eq!(kube_vip.announcer, Announcer::KubeVip);
    let name = ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    assert_eq!(kube_vip.source, Source::KubeVip(name));
    let announced =
        config(r#"{"kubeVipConfigMap": {"namespace": "net", "name": "pools"}, "announce": true}"#);
    assert_eq!(announced.announcer, Announcer::Itself);
}

#[test]
fn every_fault_is_told_with_its_key() {
    for (json, expected) in [
        (
            "null",
            vec![
                "addressPools: has no pools; list some under pools, or name kube-vip's under kubeVipConfigMap",
            ],
        ),
        ("[]", vec!["addressPools: is a list, must be a mapping of keys to values"]),
        (
            r#"{"pools": []}"#,
            vec!["addressPools.pools: is empty; list at least one pool with name and addresses"],
        ),
        (
            r#"{"pool": []}"#,
            vec![
                "addressPools: has no pools; list some under pools, or name kube-vip's under kubeVipConfigMap",
                "addressPools.pool: unknown key; did you mean \"pools\"?",
            ],
        ),
        (r#"{"pools": "192.0.2.0/24"}"#, vec!["addressPools.pools: is a text, must be a list"]),
        (
            r#"{"kubeVipConfigMap": {"name": "a b", "namespace": "A"}}"#,
            vec![
                "addressPools.kubeVipConfigMap.namespace: must be the name of a namespace",
                "addressPools.kubeVipConfigMap.name: must be the name of a ConfigMap",
            ],
        ),
        (
            r#"{"kubeVipConfigMap": {}, "pools": [{"name": "a", "addresses": ["192.0.2.1"]}]}"#,
            vec!["addressPools.kubeVipConfigMap: stands beside pools; give one of the two"],
        ),
        (
            r#"{"kubeVipConfigMap": {}, "announce": true, "announcedBy": "metallb"}"#,
            vec!["addressPools.announcedBy: stands beside announce: true; leave it out, or do not announce"],
        ),
        (
            r#"{"kubeVipConfigMap": {}, "announcedBy": "bgp"}"#,
            vec!["addressPools.announcedBy: \"bgp\" is not known; known: kube-vip, metallb, cilium, none"],
        ),
        (
            r#"{"kubeVipConfigMap": {}, "announce": "maybe"}"#,
            vec!["addressPools.announce: must be true or false"],
        ),
        (
            r#"{"pools": [{"addresses": ["192.0.2.1"]}]}"#,
            vec!["addressPools.pools[0].name: is missing; give a name of your own for the pool"],
        ),
        (
            r#"{"pools": [{"name": "A_b", "addresses": ["192.0.2.1"]}]}"#,
            vec![
                "addressPools.pools[0].name: must be lower-case letters, digits, - and ., beginning and ending with a letter or digit",
            ],
        ),
        (
            r#"{"pools": [{"name": "a"}]}"#,
            vec![
                "addressPools.pools[0].addresses: is missing or empty; list networks such as 192.0.2.0/26 or ranges such as 192.0.2.10-192.0.2.20",
            ],
        ),
        (
            r#"{"pools": [{"name": "a", "addresses": ["192.0.2.300", 7, "192.0.2.77/24", "192.0.2.9-192.0.2.1", "127.0.0.1", "224.0.0.0/8", "::/0", "255.255.255.255", "fe80::7"]}]}"#,
            vec![
                "addressPools.pools[0].addresses[1]: is a number, must be a text; put it in quotes",
                "addressPools.pools[0].addresses[0]: \"192.0.2.300\" is not a network, range or address; write 10.0.0.0/24, 10.0.0.10-10.0.0.20 or 10.0.0.7",
                "addressPools.pools[0].addresses[1]: \"192.0.2.77/24\" has bits behind its prefix; write 192.0.2.0/24, or a range for a part of it",
                "addressPools.pools[0].addresses[2]: \"192.0.2.9-192.0.2.1\" ends before it begins; write the lower address first",
                "addressPools.pools[0].addresses[3]: \"127.0.0.1\" has loopback addresses",
                "addressPools.pools[0].addresses[4]: \"224.0.0.0/8\" has multicast addresses",
                "addressPools.pools[0].addresses[5]: \"::/0\" is every address that there is; write the networks that are for load balancers",
                "addressPools.pools[0].addresses[6]: \"255.255.255.255\" has addresses that are reserved",
                "addressPools.pools[0].addresses[7]: \"fe80::7\" has link-local addresses",
                "addressPools.pools[0].addresses[7]: fe80::7 is listed twice",
            ],
        ),
        (
            r#"{"pools": [{"name": "a", "addresses": ["192.0.2.1"], "namespaces": []}]}"#,
            vec![
                "addressPools.pools[0].namespaces: is empty; list namespaces, or leave the key out if all may use the pool",
            ],
        ),
        (
            r#"{"pools": [{"name": "a", "addresses": ["192.0.2.0/24", "192.0.2.7"]}]}"#,
            vec!["addressPools.pools[0].addresses[1]: 192.0.2.7 is listed twice"],
        ),
        (
            r#"{"pools": [{"name": "a", "addresses": ["192.0.2.0/24"]}, {"name": "a", "addresses": ["192.0.2.128-192.0.3.1"]}]}"#,
            vec![
                "addressPools.pools[1].name: \"a\" is the name of another pool already; each needs its own",
                "addressPools.pools[1].addresses: 192.0.2.128-192.0.2.255 is in the pool \"a\" too; an address belongs to one pool",
            ],
        ),
        (
            r#"{"pools": [{"name": "a", "addresses": ["192.0.2.1"], "namespaces": ["ok", "Not"], "interface": "a-very-long-name", "autoassign": true}]}"#,
            vec![
                "addressPools.pools[0].namespaces[1]: \"Not\" is not the name of a namespace",
                "addressPools.pools[0].interface: must be the name of a network interface: at most 15 characters without / and blanks",
                "addressPools.pools[0].autoassign: unknown key; did you mean \"autoAssign\"?",
            ],
        ),
        (
            r#"{"pools": [7]}"#,
            vec!["addressPools.pools[0]: is a number, must be a mapping of keys to values"],
        ),
    ] {
        assert_eq!(problems(json), expected, "{json}");
    }
}

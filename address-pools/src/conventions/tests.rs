use super::*;
use crate::testing::{annotated, ip, ips, service};

/// A Service after a change, as the API server would have it.
fn changed(service: &LoadBalancerService, change: &ServiceChange) -> LoadBalancerService {
    let mut service = service.clone();
    let apply = |map: &mut std::collections::BTreeMap<String, String>,
                 change: &std::collections::BTreeMap<_, Option<String>>| {
        for (key, value) in change {
            match value {
                Some(value) => drop(map.insert(String::clone(key), value.clone())),
                None => drop(map.remove(key)),
            }
        }
    };
    apply(&mut service.annotations, &change.annotations);
    apply(&mut service.labels, &change.labels);
    if let Some(address) = &change.load_balancer_ip {
        service.load_balancer_ip.clone_from(address);
    }
    service
}

fn outcome(addresses: &[IpAddr]) -> Outcome<'_> {
    Outcome { addresses, interface: None, sharing_key: None }
}

#[test]
fn nothing_is_written_where_the_daemon_writes_the_status() {
    for announcer in [Announcer::Itself, Announcer::Nobody] {
        assert!(announcer.change(&service("a"), &outcome(&ips(&["10.0.0.1"]))).is_empty());
        assert!(announcer.removal(&service("a")).is_empty());
        assert!(!announcer.writes_status());
    }
}

#[test]
fn kube_vip_gets_annotation_field_and_label() {
    let plain = service("a");
    let addresses = ips(&["10.0.0.1", "fd00::1"]);
    let first = Outcome { interface: Some("eth1"), ..outcome(&addresses) };
    let change = Announcer::KubeVip.change(&plain, &first);
    let written = changed(&plain, &change);
    for (key, value) in [
        ("kube-vip.io/loadbalancerIPs", "10.0.0.1,fd00::1"),
        ("kube-vip.io/serviceInterface", "eth1"),
        (PICKED, "10.0.0.1,fd00::1"),
    ] {
        assert_eq!(written.annotations.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(written.load_balancer_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(written.labels.get("implementation").map(String::as_str), Some("kube-vip"));
    assert!(Announcer::KubeVip.change(&written, &first).is_empty());
    let other = ips(&["10.0.0.2"]);
    let on_eth2 = Outcome { interface: Some("eth2"), ..outcome(&other) };
    let moved = changed(&written, &Announcer::KubeVip.change(&written, &on_eth2));
    assert_eq!(moved.annotations.get("kube-vip.io/serviceInterface").map(String::as_str), Some("eth2"));
    let on_none = changed(&moved, &Announcer::KubeVip.change(&moved, &outcome(&other)));
    assert!(on_none.annotations.keys().all(|key| !key.contains("nterface")), "{:?}", on_none.annotations);
    // A person wrote another one since, which stays.
    let by_hand = annotated(moved.clone(), &[("kube-vip.io/serviceInterface", "eth7")]);
    let kept = changed(&by_hand, &Announcer::KubeVip.change(&by_hand, &first));
    assert_eq!(kept.annotations.get("kube-vip.io/serviceInterface").map(String::as_str), Some("eth7"));
    assert_eq!(kept.annotations.get(PICKED_INTERFACE), None);
    assert_eq!(moved.load_balancer_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(moved.annotations.get(PICKED).map(String::as_str), Some("10.0.0.2"));
    // What was picked goes, and what a person wrote stays.
    let gone = changed(&kept, &Announcer::KubeVip.removal(&kept));
    assert_eq!(gone.annotations.keys().collect::<Vec<_>>(), ["kube-vip.io/serviceInterface"]);
    let gone = changed(&moved, &Announcer::KubeVip.removal(&moved));
    assert_eq!(gone.annotations.len(), 0);
    assert_eq!((gone.load_balancer_ip, gone.labels.len()), (None, 0));
}

#[test]
fn what_a_person_wrote_stays() {
    let asked = annotated(
        service("a"),
        &[(KUBE_VIP_IPS, "fd00::1, 10.0.0.1"), ("kube-vip.io/serviceInterface", "eth7")],
    );
    let addresses = ips(&["10.0.0.1", "fd00::1"]);
    let change =
        Announcer::KubeVip.change(&asked, &Outcome { interface: Some("eth1"), ..outcome(&addresses) });
    assert_eq!((change.annotations.len(), change.labels.len(), &change.load_balancer_ip), (0, 1, &None));
    let written = changed(&asked, &change);
    assert!(Announcer::KubeVip.removal(&written).is_empty());
    // A person asks for another address than the one that was picked.
    let picked = annotated(service("a"), &[(KUBE_VIP_IPS, "10.0.0.9"), (PICKED, "10.0.0.1")]);
    let picked = LoadBalancerService { load_balancer_ip: Some("10.0.0.1".to_owned()), ..picked };
    let new = ips(&["10.0.0.9"]);
    let written = changed(&picked, &Announcer::KubeVip.change(&picked, &outcome(&new)));
    assert_eq!((written.annotations.get(PICKED), &written.load_balancer_ip), (None, &None));
    assert!(Announcer::KubeVip.change(&written, &outcome(&new)).is_empty());
    assert_eq!(written.annotations.get(KUBE_VIP_IPS).map(String::as_str), Some("10.0.0.9"));
}

#[test]
fn metallb_never_gets_annotation_and_field() {
    let addresses = ips(&["10.0.0.1"]);
    let shared = Outcome { sharing_key: Some("web"), ..outcome(&addresses) };
    let written = changed(&service("a"), &Announcer::MetalLb.change(&service("a"), &shared));
    assert_eq!(written.annotations.get(METALLB_IPS).map(String::as_str), Some("10.0.0.1"));
    assert_eq!(written.annotations.get(METALLB_SHARING).map(String::as_str), Some("web"));
    assert_eq!(written.load_balancer_ip, None);
    assert!(Announcer::MetalLb.change(&written, &shared).is_empty());
    // A person asks by the field: the annotation goes.
    let asked = LoadBalancerService { load_balancer_ip: Some("10.0.0.2".to_owned()), ..written };
    let by_field = changed(&asked, &Announcer::MetalLb.change(&asked, &outcome(&[ip("10.0.0.2")])));
    assert_eq!((by_field.annotations.get(METALLB_IPS), by_field.annotations.get(PICKED)), (None, None));
    assert_eq!(by_field.load_balancer_ip.as_deref(), Some("10.0.0.2"));
    // With two addresses only the annotation will do.
    let two = ips(&["10.0.0.2", "fd00::2"]);
    let by_annotation = changed(&by_field, &Announcer::MetalLb.change(&by_field, &outcome(&two)));
    assert_eq!(by_annotation.load_balancer_ip, None);
    assert_eq!(by_annotation.annotations.get(METALLB_IPS).map(String::as_str), Some("10.0.0.2,fd00::2"));
}

#[test]
fn cilium_serves_what_has_the_label() {
    let addresses = ips(&["10.0.0.1"]);
    let (cilium, labels) =
        (Announcer::Cilium, [CILIUM_LABEL].map(|(key, value)| (key.to_owned(), value.to_owned())));
    let asked = annotated(service("a"), &[(CILIUM_IPS, "10.0.0.1")]);
    for before in [service("a"), asked] {
        let written = changed(&before, &cilium.change(&before, &outcome(&addresses)));
        assert_eq!(written.labels, labels.clone().into());
        assert!(cilium.change(&written, &outcome(&addresses)).is_empty());
        // It goes with the addresses, also with those that a person asked for.
        assert_eq!(changed(&written, &cilium.removal(&written)), before);
        let others =
            LoadBalancerService { labels: [(CILIUM_LABEL.0.to_owned(), "me".to_owned())].into(), ..before };
        assert!(cilium.removal(&others).labels.is_empty(), "not ours");
    }
}

#[test]
fn another_announcer_takes_the_label_of_cilium_back() {
    let addresses = ips(&["10.0.0.1"]);
    let of_cilium = changed(&service("a"), &Announcer::Cilium.change(&service("a"), &outcome(&addresses)));
    assert!(of_cilium.labels.contains_key(CILIUM_LABEL.0));
    for announcer in [Announcer::KubeVip, Announcer::MetalLb] {
        let written = changed(&of_cilium, &announcer.change(&of_cilium, &outcome(&addresses)));
        assert!(!written.labels.contains_key(CILIUM_LABEL.0), "{announcer:?}");
        assert!(announcer.change(&written, &outcome(&addresses)).is_empty(), "{announcer:?}");
    }
}

#[test]
fn cilium_is_told_of_sharing_over_namespaces() {
    let addresses = ips(&["10.0.0.1"]);
    let shared = Outcome { sharing_key: Some("web"), ..outcome(&addresses) };
    let written = changed(&service("a"), &Announcer::Cilium.change(&service("a"), &shared));
    let expected = [
        ("lbipam.cilium.io/ips", "10.0.0.1"),
        ("lbipam.cilium.io/sharing-cross-namespace", "*"),
        ("lbipam.cilium.io/sharing-key", "web"),
        (PICKED, "10.0.0.1"),
        (PICKED_SHARING_KEY, "web"),
    ];
    let found: Vec<_> =
        written.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
    assert!(Announcer::Cilium.change(&written, &shared).is_empty());
}

#[test]
fn a_sharing_key_that_was_written_is_no_wish_and_is_taken_back() {
    let addresses = ips(&["10.0.0.1"]);
    let (alone, shared) = (outcome(&addresses), Outcome { sharing_key: Some("web"), ..outcome(&addresses) });
    for (announcer, theirs) in [(Announcer::MetalLb, METALLB_SHARING), (Announcer::Cilium, CILIUM_SHARING)] {
        let plain = changed(&service("a"), &announcer.change(&service("a"), &alone));
        let asking = annotated(plain.clone(), &[(SHARING_KEY, "web")]);
        let written = changed(&asking, &announcer.change(&asking, &shared));
        assert_eq!(written.annotations.get(theirs).map(String::as_str), Some("web"));
        assert_eq!(announcer.wanted_sharing_key(&written).as_deref(), Some("web"));
        assert!(announcer.change(&written, &shared).is_empty());
        // The person takes the wish back: what was written for it is no wish, and goes.
        let mut ended = written.clone();
        ended.annotations.remove(SHARING_KEY);
        assert_eq!(announcer.wanted_sharing_key(&ended), None);
        assert_eq!(changed(&ended, &announcer.change(&ended, &alone)), plain);
        // With another key, that is written.
        let other = Outcome { sharing_key: Some("mail"), ..shared };
        let moved = changed(&written, &announcer.change(&written, &other));
        assert_eq!(moved.annotations.get(theirs).map(String::as_str), Some("mail"));
        assert_eq!(moved.annotations.get(PICKED_SHARING_KEY).map(String::as_str), Some("mail"));
        // The Service gives its addresses back.
        let mut gone = changed(&written, &announcer.removal(&written));
        gone.annotations.remove(SHARING_KEY);
        assert_eq!(gone, service("a"));
    }
}

#[test]
fn a_sharing_key_that_a_person_wrote_for_the_announcer_stays() {
    let addresses = ips(&["10.0.0.1"]);
    let shared = Outcome { sharing_key: Some("web"), ..outcome(&addresses) };
    let by_hand = annotated(service("a"), &[(METALLB_SHARING, "web")]);
    let written = changed(&by_hand, &Announcer::MetalLb.change(&by_hand, &shared));
    assert_eq!(written.annotations.get(PICKED_SHARING_KEY), None);
    assert_eq!(Announcer::MetalLb.wanted_sharing_key(&written).as_deref(), Some("web"));
    let ended = changed(&written, &Announcer::MetalLb.removal(&written));
    assert_eq!(ended, by_hand);
    // It was written here first, and a person changed it.
    let taken_over = annotated(by_hand, &[(PICKED_SHARING_KEY, "mail")]);
    assert_eq!(Announcer::MetalLb.wanted_sharing_key(&taken_over).as_deref(), Some("web"));
    let kept = changed(&taken_over, &Announcer::MetalLb.change(&taken_over, &shared));
    assert_eq!(kept, written);
}

#[test]
fn annotations_of_each_announcer_are_read_whoever_announces() {
    let announcers =
        [Announcer::Itself, Announcer::KubeVip, Announcer::MetalLb, Announcer::Cilium, Announcer::Nobody];
    for announcer in announcers {
        let keys: Vec<_> = announcer.address_keys().collect();
        assert_eq!(keys.len(), 5, "{announcer:?}: {keys:?}");
        let first = annotations::ANNOTATIONS.iter().find(|one| one.key == keys[0]).expect("in the table");
        assert!(first.of == announcer || !announcer.writes_status(), "{announcer:?}: {keys:?}");
        let shared = annotated(service("a"), &[("metallb.universe.tf/allow-shared-ip", "k")]);
        assert_eq!(announcer.wanted_sharing_key(&shared).as_deref(), Some("k"), "{announcer:?}");
    }
}

#[test]
fn what_only_one_announcer_does_is_not_supported_by_others() {
    let own =
        annotated(service("a"), &[(KUBE_VIP_INTERFACE, "eth1"), ("kube-vip.io/ignore", "true"), ("a", "b")]);
    assert!(Announcer::KubeVip.unsupported(&own).is_empty());
    for other in [Announcer::Itself, Announcer::MetalLb, Announcer::Cilium, Announcer::Nobody] {
        assert_eq!(other.unsupported(&own), [KUBE_VIP_INTERFACE, "kube-vip.io/ignore"], "{other:?}");
    }
}

#[test]
fn what_was_picked_for_another_announcer_goes() {
    let before = annotated(service("a"), &[(METALLB_IPS, "10.0.0.1"), (PICKED, "10.0.0.1")]);
    let outcome = Outcome { addresses: &ips(&["10.0.0.2"]), interface: None, sharing_key: None };
    let change = Announcer::KubeVip.change(&before, &outcome);
    assert_eq!(change.annotations.get(METALLB_IPS), Some(&None));
    assert_eq!(change.annotations.get(KUBE_VIP_IPS), Some(&Some("10.0.0.2".to_owned())));
    // What a person wrote stays.
    let before = annotated(service("a"), &[(METALLB_IPS, "10.0.0.2"), (PICKED, "10.0.0.1")]);
    assert!(!Announcer::KubeVip.change(&before, &outcome).annotations.contains_key(METALLB_IPS));
}

#[test]
fn the_docs_list_each_annotation() {
    let docs = include_str!("../../../docs/guides/address-pools.md");
    for one in annotations::ANNOTATIONS {
        let name = one.key.split_once('/').expect("a prefix").1;
        assert!(
            docs.contains(&format!("`{}`", one.key)) || docs.contains(&format!("`{name}`")),
            "{}",
            one.key
        );
    }
}

//! Matching a Node to its domain, with one and with several hypervisors.

use std::time::{Duration, Instant};

use cloudprovider::{CloudProvider, ErrorKind, InstanceLookup, Instances, NodeIdentity, StartContext};
use cloudprovider_libvirt::{Config, LibvirtProvider};
use tokio_util::sync::CancellationToken;

use crate::support::{Cloud, OFF, RUNNING, domain, host, new_node, node, provider_id, uuid};

/// How soon look-ups answer that wait for nobody. They would wait for 5 s.
const AT_ONCE: Duration = Duration::from_secs(2);
/// A busy machine is late for some of so many providers. One that waits does so each time.
const STARTS: usize = 20;

#[tokio::test]
async fn by_uuid_in_any_spelling_then_by_name() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF), domain(2, "b", OFF)]]).await;
    let swapped = "01000000-0200-0300-0004-000000000001";
    for text in [uuid(1), uuid(1).to_uppercase(), uuid(1).replace('-', ""), swapped.to_owned()] {
        // another domain has the node's name: the UUID decides
        let instance = cloud.present(&new_node("b", &text)).await;
        assert_eq!(instance.provider_id.as_ref().expect("an ID").as_str(), provider_id(1), "{text}");
    }
    for text in ["", "not a uuid", "00000000-0000-0000-0000-000000000000", &uuid(99)] {
        let instance = cloud.present(&new_node("b", text)).await;
        assert_eq!(instance.provider_id.as_ref().expect("an ID").as_str(), provider_id(2), "{text}");
    }
    let by_machine_id = NodeIdentity { machine_id: Some(uuid(1).replace('-', "")), ..new_node("x", "") };
    assert_eq!(
        cloud.present(&by_machine_id).await.provider_id.as_ref().expect("an ID").as_str(),
        provider_id(1)
    );
    assert!(cloud.is_absent(&new_node("x", &uuid(99))).await);
}

#[tokio::test]
async fn a_provider_id_decides_alone() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)], vec![domain(2, "b", OFF)]]).await;
    let with = |id: &str| NodeIdentity { provider_id: Some(id.to_owned()), ..new_node("a", &uuid(1)) };
    for (id, n) in [
        (provider_id(2), 2),
        (format!("libvirt://kvm0/{}", uuid(2)), 2),
        ("libvirt:///b".to_owned(), 2),
        (provider_id(1), 1),
    ] {
        assert_eq!(
            cloud.present(&with(&id)).await.provider_id.as_ref().expect("an ID").as_str(),
            provider_id(n),
            "{id}"
        );
    }
    assert!(cloud.is_absent(&with(&provider_id(9))).await, "neither UUID nor name are looked at");
    let error = cloud.unknown(&with("vsphere://x")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(cloud.provider.owns(&provider_id(1)) && !cloud.provider.owns("vsphere://x"));
}

#[tokio::test]
async fn two_matches_are_an_error_that_names_both() {
    let cloud = Cloud::start(&[
        vec![domain(1, "twin", OFF), domain(3, "same", OFF), domain(5, "moved", OFF)],
        vec![domain(2, "twin", OFF), domain(3, "same", OFF), domain(5, "moved", RUNNING)],
    ])
    .await;
    let error = cloud.unknown(&new_node("twin", "")).await;
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    let text = error.to_string();
    assert!(text.contains("\"twin\" on hypervisor \"kvm0\" and \"twin\" on hypervisor \"kvm1\""), "{text}");
    assert_eq!(cloud.unknown(&node(3)).await.kind(), ErrorKind::Ambiguous);
    // a UUID that occurs twice, with one of the domains running, is a migrated domain
    let instance = cloud.present(&node(5)).await;
    assert_eq!(instance.metadata.zone.as_deref(), Some("rack-1"));
    // a domain with a duplicate name is still found by its UUID
    assert_eq!(
        cloud.present(&new_node("twin", &uuid(2))).await.provider_id.as_ref().expect("an ID").as_str(),
        provider_id(2)
    );
}

#[tokio::test]
async fn one_unreachable_hypervisor_leaves_its_nodes_alone_and_the_others_working() {
    let file = host(&[domain(1, "a", RUNNING)]);
    let config = format!(
        "hypervisors:\n- {{name: good, uri: 'test://{}'}}\n- {{name: bad, uri: 'test:///nowhere/at/all.xml'}}\n",
        file.path().display()
    );
    let nodes = [
        node(1),
        new_node("x", &uuid(1)),
        node(2),
        new_node("a", ""),
        new_node("b", ""),
        new_node("a", &uuid(9)),
    ];
    let nodes: Vec<_> = nodes.iter().collect();
    let mut starts = 0;
    let (answers, stop) = loop {
        let provider = LibvirtProvider::new(Config::parse(&config, None).expect("valid"));
        let stop = CancellationToken::new();
        let began = Instant::now();
        provider.start(StartContext::new(stop.clone(), "c")).await.expect("starts");
        let answers = provider.lookup(&nodes).await;
        if began.elapsed() < AT_ONCE {
            break (answers, stop);
        }
        stop.cancel();
        starts += 1;
        assert!(starts < STARTS, "each of {STARTS} providers waits for a hypervisor that has failed");
    };
    for answer in &answers[..2] {
        assert!(matches!(answer, InstanceLookup::Present(_)), "{answer:?}");
    }
    for answer in &answers[2..] {
        let InstanceLookup::Unknown(error) = answer else { panic!("{answer:?}") };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("hypervisor \"bad\" has been unreachable since 20"), "{text}");
        assert!(text.contains("connect: ") && text.contains("nowhere/at/all.xml"), "libvirt's words: {text}");
    }
    stop.cancel();
}

#[tokio::test]
async fn before_the_start_nothing_is_known() {
    let config = Config::parse("hypervisors: [{name: a, uri: 'test:///default'}]", None).expect("valid");
    let provider = LibvirtProvider::new(config);
    let answer = provider.lookup(&[&node(1)]).await.pop().expect("one");
    assert!(matches!(answer, InstanceLookup::Unknown(_)), "{answer:?}");
    assert!(provider.call_counts().is_empty(), "a factory calls nobody");
}

#[tokio::test]
async fn files_that_are_missing_are_named() {
    let config = "hypervisors:\n\
        - {name: tls, uri: 'qemu+tls://127.0.0.1:1/system', pkipath: /no/such/folder}\n\
        - {name: sasl, uri: 'test:///default', auth: {username: ccm, passwordFile: no-such-file}}\n";
    let config = Config::parse(config, Some(std::path::Path::new("/no/etc/libvirt.yaml"))).expect("valid");
    let provider = LibvirtProvider::new(config);
    let stop = CancellationToken::new();
    provider.start(StartContext::new(stop.clone(), "c")).await.expect("starts");
    let Some(InstanceLookup::Unknown(error)) = provider.lookup(&[&node(1)]).await.pop() else {
        panic!("unknown")
    };
    let text = error.to_string();
    assert!(text.contains("pkipath: cannot read /no/such/folder/cacert.pem"), "{text}");
    assert!(text.contains("cannot read the password from /no/etc/no-such-file"), "{text}");
    stop.cancel();
}

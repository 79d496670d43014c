use std::collections::BTreeSet;

use cloudprovider::{ControlPlaneEndpoint, ErrorKind, machines::Mark};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    addresses::Lease,
    mac::Mac,
    machines::{
        reservation::{
            Scope,
            testing::{FakeNetwork, HostEntry},
        },
        spec::EndpointPoolSpec,
    },
};

fn claim(n: u128) -> Claim {
    let uid = Uuid::from_u128(n << 96 | n);
    Claim::of(uid, &Mark::cluster(uid.to_string(), "default", format!("cluster-{n}")), &uid.to_string())
}

/// Has the network keep an address by a claim that was made from the UID of the cluster alone.
fn add_older(network: &FakeNetwork, n: u128, address: &str) {
    let (mac, name) = claim(n).older()[0].clone();
    let address = address.parse().ok();
    network.add(&Scope::ALL, &HostEntry { mac: Some(mac), name: Some(name), address });
}

fn spec(addresses: &[&str]) -> EndpointPoolSpec {
    EndpointPoolSpec {
        hypervisor: None,
        network: "default".to_owned(),
        addresses: addresses.iter().map(|one| (*one).to_owned()).collect(),
        port: 6443,
    }
}

fn network() -> FakeNetwork {
    FakeNetwork::new(&Scope::ALL)
}

/// The answer of a future that waits for nothing.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn at(host: &str) -> ControlPlaneEndpoint {
    ControlPlaneEndpoint { host: host.to_owned(), port: 6443 }
}

/// The host of the endpoint, or the message of the wait or of the error.
async fn ask(network: &FakeNetwork, n: u128, spec: &EndpointPoolSpec, known: Option<&str>) -> String {
    match ensure_endpoint(network, &claim(n), spec, known.map(at).as_ref()).await {
        Ok(Endpoint::At(endpoint) | Endpoint::Unproven(endpoint, _)) => endpoint.host,
        Ok(Endpoint::Wait(wait)) => wait.message.into_owned(),
        Err(error) => format!("{}: {}", error.kind(), error.report()),
    }
}

#[tokio::test]
async fn each_cluster_has_its_own_address_until_all_are_taken() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.203"]));
    let mut seen = Vec::new();
    for n in 0..4 {
        seen.push(ask(&network, n, &spec, None).await);
    }
    let all = ["192.168.122.200", "192.168.122.201", "192.168.122.202", "192.168.122.203"];
    assert_eq!(seen.iter().map(String::as_str).collect::<BTreeSet<_>>(), all.into_iter().collect());
    for n in 0..4 {
        assert_eq!(
            ask(&network, n, &spec, None).await,
            seen[usize::try_from(n).expect("small")],
            "found again"
        );
    }
    assert_eq!(
        ask(&network, 4, &spec, None).await,
        "all 4 addresses of the pool are taken in network \"default\""
    );
    release_endpoint(&network, &claim(2), &spec).await.expect("released");
    release_endpoint(&network, &claim(2), &spec).await.expect("nothing is left");
    assert_eq!(ask(&network, 4, &spec, None).await, seen[2]);
    assert_eq!(network.entries().len(), 4);
}

#[tokio::test]
async fn a_claim_says_whose_it_is() {
    let network = network();
    ask(&network, 7, &spec(&["192.168.122.200"]), None).await;
    assert_eq!(
        network.entries(),
        [format!("<host mac='{}' name='{}' ip='192.168.122.200'/>", claim(7).mac, claim(7).name)]
    );
    assert!(claim(7).name.starts_with("api-cluster-7-") && claim(7).mac.to_string().starts_with("06:"));
    let name = Claim::of(Uuid::max(), &Mark::cluster("u", "default", "1.b".repeat(80)), "u").name;
    assert!(name.starts_with("api-1-b1-b") && name.len() <= 63 && !name.contains('.'), "{name}");
}

/// Two objects say that they had the same UID before a move, and have the same name.
#[tokio::test]
async fn a_copied_identity_neither_gets_nor_releases_the_claim_of_another_namespace() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.203"]));
    let of = |namespace: &str| Claim::of(Uuid::from_u128(7), &Mark::cluster("u", namespace, "prod"), "u");
    let (ours, theirs) = (of("team-a"), of("team-b"));
    let first = ensure_endpoint(&network, &ours, &spec, None).await.expect("claimed");
    assert_ne!(ensure_endpoint(&network, &theirs, &spec, None).await.expect("claimed"), first);
    release_endpoint(&network, &theirs, &spec).await.expect("released");
    assert!(has_claim(&network, &ours, &spec).await.expect("readable"));
    assert_eq!(network.entries().len(), 1);
}

#[tokio::test]
async fn a_claim_that_was_made_from_the_uid_alone_is_found_renewed_and_released() {
    let spec = spec(&["192.168.122.200-192.168.122.203"]);
    for (known, is_renewed) in [(None, true), (Some("192.168.122.201"), true), (None, false)] {
        let network = network();
        add_older(&network, 7, "192.168.122.201");
        assert_eq!(
            network.entries(),
            ["<host mac='06:00:00:00:00:07' name='api-00000007-cluster-7' ip='192.168.122.201'/>"]
        );
        if is_renewed {
            assert_eq!(ask(&network, 7, &spec, known).await, "192.168.122.201");
            assert_eq!(network.entries().len(), 1);
            assert!(network.entries()[0].contains(&claim(7).name), "{:?}", network.entries());
        }
        release_endpoint(&network, &claim(7), &spec).await.expect("released");
        assert_eq!(network.entries(), [""; 0]);
    }
}

/// A tenant writes any UID into the annotation. That of a cluster that was moved is in its annotation too.
#[tokio::test]
async fn a_claim_that_was_made_from_the_uid_alone_is_not_for_an_object_that_only_says_it_had_the_uid() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.203"]));
    add_older(&network, 7, "192.168.122.201");
    let before = network.entries();
    let copy = |namespace: &str| {
        let uid = claim(7).uid;
        Claim::of(uid, &Mark::cluster(uid.to_string(), namespace, "cluster-7"), &Uuid::max().to_string())
    };
    for (namespace, known) in ["team-b", "default"].into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (copy, claimed) = (copy(namespace), at("192.168.122.201"));
        let known = Some(&claimed).filter(|_| known);
        let found = ensure_endpoint(&network, &copy, &spec, known).await.expect("a step");
        let is_same = matches!(&found, Endpoint::Unproven(endpoint, entry) if *endpoint == claimed && entry.to_xml() == before[0]);
        assert_eq!(is_same, known.is_some(), "{namespace}: what is written stays, and nobody gets it anew");
        assert_eq!(network.entries().len(), if is_same { 1 } else { 2 }, "{namespace}");
        let has_own = has_claim(&network, &copy, &spec).await.expect("readable");
        assert_eq!(has_own, known.is_none(), "{namespace}");
        let left = release_endpoint(&network, &copy, &spec).await.expect("released").expect("one is left");
        assert_eq!(left.to_xml(), before[0], "{namespace}");
        assert_eq!(network.entries(), before, "{namespace}: it is left as it is");
    }
    let other = ensure_endpoint(&network, &copy("team-b"), &spec, Some(&at("192.168.122.202"))).await;
    assert_eq!(other.expect("free"), Endpoint::At(at("192.168.122.202")));
    let taken = ensure_endpoint(&network, &copy("team-c"), &spec, Some(&at("192.168.122.202"))).await;
    assert_eq!(taken.expect_err("of another namespace").kind(), ErrorKind::Conflict);
    // Its own cluster has it, and renews it as a claim of the whole mark.
    assert_eq!(ask(&network, 7, &spec, None).await, "192.168.122.201");
    assert!(!network.entries().contains(&before[0]));
}

#[tokio::test]
async fn a_known_endpoint_is_kept() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.203"]));
    assert_eq!(ask(&network, 1, &spec, Some("192.168.122.203")).await, "192.168.122.203");
    assert_eq!(network.entries().len(), 1, "its claim is renewed");
    assert_eq!(ask(&network, 1, &spec, Some("api.example.org")).await, "api.example.org");
    assert_eq!(ask(&network, 3, &spec, Some("10.0.0.1")).await, "10.0.0.1");
    assert_eq!(network.entries().len(), 1, "what the user chose is not claimed");
    let taken = ask(&network, 2, &spec, Some("192.168.122.203")).await;
    assert!(
        taken.starts_with(
            "conflict: spec.controlPlaneEndpoint.host: network \"default\" has the address 192.168.122.203 in another entry"
        ),
        "{taken}"
    );
}

#[tokio::test]
async fn who_is_slower_takes_the_next_address() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.203"]));
    let first = ask(&FakeNetwork::new(&Scope::ALL), 1, &spec, None).await;
    let rival = HostEntry {
        mac: Some(Mac::from_bytes([6; 6])),
        name: Some("rival".into()),
        address: first.parse().ok(),
    };
    network.set_rival(vec![rival]);
    let second = ask(&network, 1, &spec, None).await;
    assert!(second != first && second.starts_with("192.168.122.20"), "{second}");
    assert_eq!(network.entries().len(), 2);
}

#[tokio::test]
async fn pools_that_cannot_work_are_told() {
    let network = network();
    let key = "invalid_input: spec.controlPlaneEndpointPool";
    let unusable = "none of the addresses is in the network's subnet 192.168.122.0/24 and outside of its DHCP ranges \
        (192.168.122.2-192.168.122.99)";
    for (addresses, words) in [
        (&["192.168.122.50-192.168.122.60"][..], format!("{key}: {unusable}")),
        (&["10.0.0.1", "192.168.122.1", "192.168.122.255"], format!("{key}: {unusable}")),
        (&["192.168.122.200", "fd00::1"], format!("{key}.addresses[1]: \"fd00::1\" is not IPv4")),
        (&["10.0.0.0/8"], format!("{key}.addresses[0]: \"10.0.0.0/8\" makes more than 65536 addresses")),
        (&["everything"], format!("{key}.addresses[0]: \"everything\" ")),
        (&["192.168.122.9-192.168.122.3"], format!("{key}.addresses[0]: \"192.168.122.9-192.168.122.3\" ")),
    ] {
        let answer = ask(&network, 1, &spec(addresses), None).await;
        assert!(answer.starts_with(&words), "{answer}");
    }
    let elsewhere = EndpointPoolSpec { network: "lan".into(), ..spec(&["192.168.122.200"]) };
    assert_eq!(
        ask(&network, 1, &elsewhere, None).await,
        "not_found: spec.controlPlaneEndpointPool: there is no network \"lan\" on hypervisor \"kvm1\""
    );
    assert_eq!(network.entries(), [""; 0]);
}

#[test]
fn the_hypervisor_of_the_network_is_never_guessed() {
    let pool = spec(&["192.168.122.200"]);
    assert_eq!(pool.hypervisor_of(&["kvm1"]).expect("the only one"), "kvm1");
    let error = pool.hypervisor_of(&["kvm1", "kvm2"]).expect_err("which?");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let pool = EndpointPoolSpec { hypervisor: Some("kvm2".into()), ..pool };
    assert_eq!(pool.hypervisor_of(&["kvm1", "kvm2"]).expect("named"), "kvm2");
    assert_eq!(pool.hypervisor_of(&["kvm1"]).expect_err("unknown").kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_address_that_a_guest_has_by_lease_is_neither_chosen_nor_claimed() {
    let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.201"]));
    let lease =
        |last: u8| (Mac::from_bytes([6; 6]), Lease { ip: [192, 168, 122, last].into(), expires: None });
    for (leased, free) in [(200, "192.168.122.201"), (201, "192.168.122.200")] {
        network.set_leases(vec![lease(leased)]);
        assert_eq!(ask(&network, 1, &spec, None).await, free);
        let known = format!("192.168.122.{leased}");
        let words = "conflict: spec.controlPlaneEndpoint.host: network \"default\" has the address";
        assert!(
            ask(&network, 2, &spec, Some(&known)).await.to_lowercase().starts_with(&words.to_lowercase())
        );
        release_endpoint(&network, &claim(1), &spec).await.expect("released");
        assert_eq!(network.entries(), [""; 0]);
    }
    network.set_leases(vec![lease(200), lease(201)]);
    let words = ask(&network, 1, &spec, None).await;
    assert!(words.starts_with("all 2 addresses of the pool are taken"), "{words}");
}

#[tokio::test]
async fn a_daemon_that_ends_at_any_call_claims_one_address_in_the_end() {
    let spec = spec(&["192.168.122.200-192.168.122.203"]);
    for (call, takes_effect) in (1..12).flat_map(|call| [(call, false), (call, true)]) {
        let network = network();
        ask(&network, 1, &spec, None).await;
        network.end_at(call, takes_effect);
        let has_ended = ensure_endpoint(&network, &claim(2), &spec, None).await.is_err();
        assert_eq!(has_ended, call <= 9, "9 calls make a claim");
        network.live();
        let found = ask(&network, 2, &spec, None).await;
        assert!(network.entries().iter().any(|entry| entry.contains(&format!("ip='{found}'"))));
        assert_eq!(network.entries().len(), 2, "{call} {takes_effect}");
        release_endpoint(&network, &claim(2), &spec).await.expect("released");
        assert_eq!(network.entries().len(), 1);
    }
}

proptest! {
    /// Clusters come and go in any order, with a daemon that remembers nothing.
    #[test]
    fn no_two_clusters_have_one_address(acts in prop::collection::vec((0..12u128, any::<bool>()), 1..60)) {
        let (network, spec) = (network(), spec(&["192.168.122.200-192.168.122.207", "192.168.122.240/30"]));
        let mut held = std::collections::BTreeMap::new();
        for (n, comes) in acts {
            if comes {
                if let Endpoint::At(endpoint) = block_on(ensure_endpoint(&network, &claim(n), &spec, None)).expect("no fault") {
                    let before = held.insert(n, endpoint.host.clone());
                    prop_assert!(before.is_none_or(|before| before == endpoint.host), "it never changes");
                } else {
                    prop_assert_eq!(held.len(), 10);
                }
            } else {
                block_on(release_endpoint(&network, &claim(n), &spec)).expect("no fault");
                held.remove(&n);
            }
            let addresses: BTreeSet<_> = held.values().collect();
            prop_assert_eq!(addresses.len(), held.len());
            prop_assert_eq!(network.entries().len(), held.len());
        }
    }
}

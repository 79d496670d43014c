//! The address of a cluster's API server, from a pool.

use std::sync::Arc;

use cloudprovider::{
    ControlPlaneEndpoint, ErrorKind, Machines as _, Result,
    machines::{ClusterReport, ClusterRequest, Deletion, Mark, Record, WaitsFor},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::support::{Daemon, Object, hypervisor, storage};
use crate::{
    mac::Mac,
    machines::{
        reservation::{
            Scope,
            testing::{FakeNetwork, HostEntry},
        },
        spec::LibvirtClusterSpec,
        storage::{
            StorageCalls,
            testing::{FakeCalls, FakeHypervisor, POOL},
        },
    },
};

type Request = ClusterRequest<LibvirtClusterSpec>;

fn cluster(number: u128, pool: &Value) -> Request {
    let mark = Mark::cluster(Uuid::from_u128(number << 96 | number).to_string(), "default", "prod");
    let spec = json!({ "controlPlaneEndpointPool": pool });
    let uid = mark.uid.clone();
    ClusterRequest::new(mark, serde_json::from_value(spec).expect("valid")).with_object_uid(uid)
}

fn pool() -> Value {
    json!({ "network": "default", "addresses": ["192.168.122.200-192.168.122.201"] })
}

async fn daemon(storage: &FakeHypervisor, network: &FakeNetwork) -> Daemon {
    let calls = Arc::new(FakeCalls::new(storage)) as _;
    Daemon::start_with(vec![(hypervisor(&[]), calls)], vec![Arc::new(network.clone()) as _]).await
}

async fn ensure(daemon: &Daemon, request: &Request) -> Result<ClusterReport> {
    daemon.provider.libvirt_machines().ensure_cluster(request, &mut Record::default()).await
}

async fn delete(daemon: &Daemon, request: &Request) -> Result<Deletion> {
    daemon.provider.libvirt_machines().delete_cluster(request, &mut Record::default()).await
}

#[tokio::test]
async fn a_cluster_has_one_address_until_it_is_deleted_whatever_is_lost() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let (one, two) = (cluster(1, &pool()), cluster(2, &pool()));
    let mut seen = Vec::new();
    // A daemon that remembers nothing, and one after a move, which knows what is written.
    for known in [false, false, true] {
        let daemon = daemon(&storage, &network).await;
        for request in [&one, &two] {
            let known = seen
                .first()
                .filter(|_| known)
                .map(|_: &ControlPlaneEndpoint| seen[usize::from(request.mark != one.mark)].clone());
            let request = request.clone().with_control_plane_endpoint(known);
            let report = ensure(&daemon, &request).await.expect("a step");
            assert_eq!(report.wait, None);
            seen.push(report.control_plane_endpoint.expect("an address"));
        }
    }
    assert!(seen[0] != seen[1] && seen[..2] == seen[2..4] && seen[..2] == seen[4..], "{seen:?}");
    assert_eq!(network.entries().len(), 2);

    let daemon = daemon(&storage, &network).await;
    let three = cluster(3, &pool());
    let wait = ensure(&daemon, &three).await.expect("a step").wait.expect("it waits");
    assert_eq!(wait.waits_for, WaitsFor::Capacity);
    for _ in 0..2 {
        assert_eq!(delete(&daemon, &one).await.expect("a step"), Deletion::Gone);
    }
    let report = ensure(&daemon, &three).await.expect("a step");
    assert_eq!(report.control_plane_endpoint.as_ref(), Some(&seen[0]));
    for request in [two, three] {
        assert_eq!(delete(&daemon, &request).await.expect("a step"), Deletion::Gone);
    }
    assert_eq!(network.entries(), [""; 0]);
}

#[tokio::test]
async fn an_entry_that_somebody_removed_comes_back() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let request = cluster(1, &pool());
    let endpoint = ensure(&daemon, &request).await.expect("a step").control_plane_endpoint;
    let before = network.entries();
    delete(&daemon, &request).await.expect("a step");
    let report =
        ensure(&daemon, &request.with_control_plane_endpoint(endpoint.clone())).await.expect("a step");
    assert_eq!((report.control_plane_endpoint, network.entries()), (endpoint, before));
}

#[tokio::test]
async fn a_hypervisor_that_is_not_known_is_named_and_holds_up_no_deletion() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let request = cluster(1, &pool());
    ensure(&daemon, &request).await.expect("a step");
    let mut elsewhere = pool();
    elsewhere["hypervisor"] = json!("kvm9");
    let elsewhere = cluster(1, &elsewhere);
    let error = ensure(&daemon, &elsewhere).await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(
        error.report(),
        "spec.controlPlaneEndpointPool.hypervisor: the configuration has no hypervisor \"kvm9\""
    );
    assert_eq!(delete(&daemon, &elsewhere).await.expect("a step"), Deletion::Gone);
    assert_eq!(network.entries(), [""; 0]);
}

#[tokio::test]
async fn a_claim_on_a_hypervisor_that_is_not_configured_is_not_gone() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut elsewhere = pool();
    elsewhere["hypervisor"] = json!("kvm9");
    let at = |host: &str| Some(ControlPlaneEndpoint { host: host.to_owned(), port: 6443 });
    let request = cluster(1, &elsewhere).with_control_plane_endpoint(at("192.168.122.200"));
    for _ in 0..2 {
        let error = delete(&daemon, &request).await.expect_err("it may be there");
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.report().contains("\"kvm9\""), "{}", error.report());
    }
    let own = request.with_control_plane_endpoint(at("10.0.0.1"));
    assert_eq!(delete(&daemon, &own).await.expect("nothing was claimed"), Deletion::Gone);
    // Under another name it is found.
    let claimed = ensure(&daemon, &cluster(2, &pool())).await.expect("a step").control_plane_endpoint;
    let request = cluster(2, &elsewhere).with_control_plane_endpoint(claimed);
    assert_eq!(delete(&daemon, &request).await.expect("a step"), Deletion::Gone);
    assert_eq!(network.entries(), [""; 0]);
}

/// Nothing proves that the claim of an earlier version is its own. That it is there is enough: the hypervisor
/// has another name now.
#[tokio::test]
async fn a_moved_cluster_whose_hypervisor_was_renamed_is_deleted_and_its_older_claim_stays() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let entry = HostEntry {
        mac: Some(Mac::from_bytes([6, 0, 0, 0, 0, 3])),
        name: Some("api-00000003-prod".to_owned()),
        address: Some([192, 168, 122, 200].into()),
    };
    network.add(&Scope::ALL, &entry);
    let mut elsewhere = pool();
    elsewhere["hypervisor"] = json!("kvm9");
    let endpoint = ControlPlaneEndpoint { host: "192.168.122.200".to_owned(), port: 6443 };
    let own = cluster(3, &elsewhere).with_control_plane_endpoint(endpoint);
    let moved = own.clone().with_object_uid(Uuid::max().to_string());
    let unknown = Request::new(own.mark.clone(), own.spec.clone())
        .with_control_plane_endpoint(own.control_plane_endpoint.clone());
    for request in [&moved, &moved, &unknown] {
        assert_eq!(delete(&daemon, request).await.expect("a step"), Deletion::Gone);
        assert_eq!(network.entries(), [entry.to_xml()]);
    }
    assert_eq!(delete(&daemon, &own).await.expect("a step"), Deletion::Gone);
    assert_eq!(network.entries(), [""; 0]);
}

#[tokio::test]
async fn a_second_hypervisor_in_the_configuration_breaks_no_cluster() {
    let (storage, one, two) = (storage(), FakeNetwork::new(&Scope::ALL), FakeNetwork::new(&Scope::ALL));
    let (request, new) = (cluster(1, &pool()), cluster(2, &pool()));
    let endpoint = {
        let daemon = daemon(&storage, &two).await;
        ensure(&daemon, &request).await.expect("a step").control_plane_endpoint
    };
    let claims = two.entries();
    let host = || (hypervisor(&[]), Arc::new(FakeCalls::new(&storage)) as _);
    let networks = [&one, &two].map(|network| Arc::new(network.clone()) as _);
    let daemon = Daemon::start_with(vec![host(), host()], networks.into()).await;
    // The claim is found where it is, also if nobody has written the endpoint yet.
    for known in [None, endpoint.clone()] {
        let request = request.clone().with_control_plane_endpoint(known);
        let report = ensure(&daemon, &request).await.expect("a step");
        assert_eq!(report.control_plane_endpoint, endpoint);
        assert_eq!((one.entries(), two.entries()), (Vec::new(), claims.clone()));
    }
    // Without a claim there is no telling where it belongs. That matters only to a cluster without an
    // endpoint.
    assert_eq!(ensure(&daemon, &new).await.expect_err("which?").kind(), ErrorKind::InvalidInput);
    let known = new.with_control_plane_endpoint(endpoint.clone());
    assert_eq!(ensure(&daemon, &known).await.expect("a step").control_plane_endpoint, endpoint);
    assert_eq!(delete(&daemon, &request).await.expect("a step"), Deletion::Gone);
    assert_eq!((one.entries(), two.entries()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_daemon_that_ends_at_any_call_leaves_no_address_behind() {
    let mut points = 0;
    for (deletes, at, takes_effect) in
        [false, true].into_iter().flat_map(|d| (1..12).flat_map(move |at| [(d, at, false), (d, at, true)]))
    {
        let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
        let daemon = daemon(&storage, &network).await;
        let request = cluster(1, &pool());
        if deletes {
            ensure(&daemon, &request).await.expect("a step");
        }
        network.end_at(at, takes_effect);
        let was_cut = if deletes {
            delete(&daemon, &request).await.is_err()
        } else {
            ensure(&daemon, &request).await.is_err()
        };
        points += usize::from(was_cut);
        network.live();
        if !deletes {
            ensure(&daemon, &request).await.expect("a step");
            assert_eq!(network.entries().len(), 1, "call {at} {takes_effect}");
        }
        assert_eq!(delete(&daemon, &request).await.expect("a step"), Deletion::Gone);
        assert_eq!(network.entries(), [""; 0], "call {at} {takes_effect} {deletes}");
    }
    assert_eq!(points, 26, "9 calls make a claim, 4 remove it");
}

#[tokio::test]
async fn a_machine_learns_the_address_of_the_api_server() {
    let storage = storage();
    let daemon = daemon(&storage, &FakeNetwork::new(&Scope::ALL)).await;
    let mut object = Object::new(&json!({ "removeBootstrapData": true }));
    let endpoint = ControlPlaneEndpoint { host: "192.168.122.200".to_owned(), port: 6443 };
    object.request.cluster.control_plane_endpoint = Some(endpoint);
    object.made(&daemon).await;
    let words = b"\ncontrol_plane_endpoint_host: \"192.168.122.200\"\ncontrol_plane_endpoint_port: 6443\n";
    for has_node in [false, true] {
        object.request.has_node = has_node;
        object.step(&daemon).await.expect("a step");
        let seed = storage.names(POOL).into_iter().find(|name| name.ends_with("-seed")).expect("a seed");
        let seed = FakeCalls::new(&storage).download(POOL, &seed, 1 << 22).await.expect("readable");
        assert!(seed.windows(words.len()).any(|part| part == words), "also when the bootstrap data are gone");
    }
}

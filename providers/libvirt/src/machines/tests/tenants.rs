//! Two tenants on one hypervisor: what one of them writes harms neither the other one nor the hypervisor.

use std::sync::Arc;

use cloudprovider::{
    CloudProvider as _, Error, ErrorKind, InstanceLookup, Instances, NodeIdentity, StartContext,
    machines::{Deletion, MachineReport, Mark},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::support::{Daemon, Object, hypervisor, storage};
use crate::{
    Config, LibvirtProvider,
    domain::Domain,
    mac::Mac,
    machines::{
        HostCalls,
        names::{self, VolumeNames},
        reservation::{
            Scope,
            testing::{FakeNetwork, HostEntry, NETWORK},
        },
        storage::testing::{FakeCalls, FakeHypervisor, POOL},
    },
};

/// A provider with so many hypervisors, which share a storage and a network, and with this list of what is allowed.
async fn daemon(count: usize, allow: &str, storage: &FakeHypervisor, network: &FakeNetwork) -> Daemon {
    let files = (0..count).map(|_| hypervisor(&[])).collect();
    let (storage, network) = (storage.clone(), network.clone());
    let text = format!(
        "hypervisors: [{{name: kvm1, uri: 'test:///a'}}, {{name: kvm2, uri: 'test:///b'}}]\n\
         machines: {{allow: [{{imageVolumes: [{{pool: {POOL}}}]}}, {allow}]}}"
    );
    let allow = Config::parse(&text, None).expect("valid").allow;
    let make = move |config: Config| {
        let config = Config { allow, ..config };
        LibvirtProvider::with_calls(config, &move |_| HostCalls {
            storage: Arc::new(FakeCalls::new(&storage)),
            networks: Arc::new(network.clone()),
        })
    };
    Daemon::start_provider(files, make).await
}

async fn one(allow: &str) -> (Daemon, FakeHypervisor, FakeNetwork) {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    (daemon(1, allow, &storage, &network).await, storage, network)
}

/// A machine `node-1` of this namespace.
fn object(namespace: &str, more: &Value) -> Object {
    let mut object = Object::new(more);
    object.request.mark.namespace = namespace.to_owned();
    object
}

fn uid(object: &Object) -> Uuid {
    object.request.mark.uid.parse().expect("a UUID")
}

/// The first error of its steps.
async fn refused(object: &mut Object, daemon: &Daemon) -> Error {
    loop {
        match object.step(daemon).await {
            Ok(MachineReport::Creating(_)) => {}
            Ok(report) => panic!("it is made: {report:?}"),
            Err(error) => return error,
        }
    }
}

/// The domain of an object, as the provider knows it.
fn domain(object: &Object, daemon: &Daemon) -> Domain {
    let machines = daemon.provider.libvirt_machines();
    machines.find(uid(object), &object.request.mark).expect("one").expect("there").1
}

#[tokio::test]
async fn two_namespaces_have_machines_of_one_name() {
    let (daemon, ..) = one("{}").await;
    let mut objects = [object("team-a", &json!({})), object("team-b", &json!({}))];
    for object in &mut objects {
        object.made(&daemon).await;
        let domain = domain(object, &daemon);
        assert_eq!(domain.name, names::domain(&object.request.mark));
        assert_eq!(domain.node_name(), "node-1");
    }
    let [mut ours, mut theirs] = objects;
    theirs.removed(&daemon).await;
    assert!(ours.step(&daemon).await.expect("a step").is_done());
    ours.removed(&daemon).await;
}

#[tokio::test]
async fn a_node_is_found_by_its_name_and_a_domain_of_that_name_comes_first() {
    let (daemon, ..) = one("{}").await;
    let node = NodeIdentity { name: "node-1".to_owned(), ..NodeIdentity::default() };
    let look = async || match &daemon.provider.lookup(&[&node]).await[..] {
        [InstanceLookup::Present(instance)] => {
            instance.provider_id.as_ref().expect("an ID").as_str().to_owned()
        }
        [InstanceLookup::Unknown(error)] => error.kind().to_string(),
        other => format!("{other:?}"),
    };
    let mut ours = object("team-a", &json!({}));
    ours.made(&daemon).await;
    assert_eq!(look().await, format!("libvirt:///{}", ours.request.mark.uid));
    let mut theirs = object("team-b", &json!({}));
    theirs.made(&daemon).await;
    assert_eq!(look().await, "ambiguous");
    let named = Domain {
        uuid: Uuid::from_u128(7),
        name: "node-1".to_owned(),
        metadata: None,
        ..domain(&ours, &daemon)
    };
    let host = &daemon.provider.libvirt_machines().hosts[0].hypervisor;
    host.update(|state| state.inventory.update(named.uuid, Some(named.clone())).into_iter().collect());
    assert_eq!(look().await, format!("libvirt:///{}", named.uuid), "what the operator called so");
}

/// Defines and starts the domain of an object, as domains were before their names had a hash.
async fn define_older(daemon: &Daemon, object: &Object) {
    let Mark { uid: of_object, namespace, .. } = &object.request.mark;
    let mac = names::older_mac(uid(object), 0);
    let xml = format!(
        "<domain type='test'><name>node-1</name><uuid>{of_object}</uuid><memory unit='MiB'>64</memory><os><type>hvm</type></os>
         <metadata><c:instance xmlns:c='urn:cloud-controller-manager:libvirt:1' cluster='prod'>
         <c:mark uid='{of_object}' namespace='{namespace}' cluster='prod' machine='node-1'/></c:instance></metadata>
         <devices><interface type='network'><mac address='{mac}'/><source network='default'/></interface></devices></domain>"
    );
    let host = daemon.provider.hypervisor("kvm1").expect("configured");
    let made = host.with_connection(move |connect| connect.define_domain_xml(&xml)?.create().map(drop)).await;
    made.expect("connected").expect("defined");
}

#[tokio::test]
async fn a_domain_that_is_called_like_its_machine_is_followed_and_deleted_with_its_addresses() {
    let (daemon, storage, network) = one("{}").await;
    let before = storage.names(POOL);
    let mut object = object("default", &json!({ "interfaces": [{ "network": NETWORK, "reservation": {} }] }));
    let mac = names::older_mac(uid(&object), 0);
    define_older(&daemon, &object).await;
    object.made(&daemon).await;
    assert_eq!(domain(&object, &daemon).name, "node-1");
    let entry = format!("<host mac='{mac}' name='node-1' ip='192.168.122.");
    let entries = network.entries();
    assert!(entries.len() == 1 && entries[0].starts_with(&entry), "{entries:?}");
    // Another namespace's object says that it had this UID before a move, and has the same name.
    let mut forged = object.clone();
    forged.request.mark.namespace = "team-b".to_owned();
    let error = refused(&mut forged, &daemon).await;
    assert_eq!(error.kind(), ErrorKind::Conflict);
    forged.removed(&daemon).await;
    assert_eq!(network.entries(), entries, "they are those of the domain");
    object.removed(&daemon).await;
    assert_eq!(network.entries(), [""; 0]);
    assert_eq!(storage.names(POOL), before);
}

#[tokio::test]
async fn a_copied_identity_neither_takes_nor_releases_an_address() {
    let (daemon, _, network) = one("{}").await;
    let fields =
        json!({ "interfaces": [{ "network": NETWORK, "reservation": { "address": "192.168.122.100" } }] });
    let mut ours = object("team-a", &fields);
    ours.made(&daemon).await;
    let entries = network.entries();
    let mut forged = object("team-b", &fields);
    forged.request.mark = Mark { namespace: "team-b".to_owned(), ..ours.request.mark.clone() };
    forged.removed(&daemon).await;
    assert_eq!(network.entries(), entries);
    assert!(ours.step(&daemon).await.expect("a step").is_done());
}

/// The entries of domains that are called like their machine are made from five bytes of the UID and from the name.
#[tokio::test]
async fn a_uid_with_the_same_end_neither_takes_nor_releases_an_older_entry() {
    let (daemon, _, network) = one("{}").await;
    let fields =
        json!({ "interfaces": [{ "network": NETWORK, "reservation": { "address": "192.168.122.100" } }] });
    let mut ours = object("team-a", &fields);
    let mac = names::older_mac(uid(&ours), 0);
    let entry =
        HostEntry { mac: Some(mac), name: Some("node-1".into()), address: Some([192, 168, 122, 100].into()) };
    network.add(&Scope::ALL, &entry);
    define_older(&daemon, &ours).await;
    ours.made(&daemon).await;
    let mut forged = object("team-b", &fields);
    let end = uid(&ours).as_u128() & u128::from(u64::MAX);
    forged.request.mark.uid = Uuid::from_u128(7 << 64 | end).to_string();
    assert_eq!(names::older_mac(uid(&forged), 0), mac);
    let error = refused(&mut forged, &daemon).await;
    assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
    forged.removed(&daemon).await;
    assert_eq!(network.entries(), [entry.to_xml()]);
}

#[tokio::test]
async fn what_the_configuration_does_not_allow_is_refused_before_anything_is_made() {
    let some = "{imageVolumes: [{pool: fast}]}, \
                {namespaces: [team-a], networks: [lan], bridges: [br0], macvtapDevices: [eth1], pools: [fast], macAddresses: true}";
    let (daemon, storage, _) = one(some).await;
    let before = storage.names(POOL);
    let nic = |nic: Value| json!({ "interfaces": [{ "network": "default" }, nic] });
    for (more, field, key) in [
        (nic(json!({"network": "lan"})), "interfaces[1].network", "networks"),
        (nic(json!({"bridge": "br0"})), "interfaces[1].bridge", "bridges"),
        (nic(json!({"macvtap": {"device": "eth1"}})), "interfaces[1].macvtap.device", "macvtapDevices"),
        (nic(json!({"network": "default", "mac": "52:54:00:00:00:01"})), "interfaces[1].mac", "macAddresses"),
        (json!({"disks": [{"sizeGiB": 1, "pool": "fast"}]}), "disks[0].pool", "pools"),
        (json!({"disks": [{"sizeGiB": 1}, {"sizeGiB": 1, "pool": "fast"}]}), "disks[1].pool", "pools"),
    ] {
        let mut theirs = object("team-b", &more);
        let error = refused(&mut theirs, &daemon).await;
        let words = format!("spec.{field}: objects of this namespace may not name this ");
        assert!(
            error.kind() == ErrorKind::PermissionDenied && error.report().starts_with(&words),
            "{}",
            error.report()
        );
        assert!(error.report().ends_with(&format!("under {key}")), "{}", error.report());
        theirs.removed(&daemon).await;
        let mut ours = object("team-a", &more);
        let answer = ours.step(&daemon).await;
        assert!(matches!(&answer, Ok(MachineReport::Creating(_))), "{field}: {answer:?}");
        ours.removed(&daemon).await;
    }
    let passthrough = nic(json!({"macvtap": {"device": "eth1", "mode": "passthrough"}}));
    let error = refused(&mut object("team-a", &passthrough), &daemon).await;
    assert!(error.report().starts_with("spec.interfaces[1].macvtap.mode: "), "{}", error.report());
    assert_eq!(storage.names(POOL), before);
}

#[tokio::test]
async fn a_hypervisor_of_other_namespaces_is_neither_named_nor_chosen_nor_told() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(
        2,
        "{namespaces: [team-a], hypervisors: [kvm1, kvm2]}, {namespaces: [team-b], hypervisors: [kvm2]}",
        &storage,
        &network,
    )
    .await;
    let mut pinned = object("team-b", &json!({ "hypervisor": "kvm1" }));
    let error = refused(&mut pinned, &daemon).await;
    assert!(
        error.report().starts_with("spec.hypervisor: objects of this namespace may not name"),
        "{}",
        error.report()
    );
    let mut recorded = object("team-b", &json!({}));
    recorded.record.status.hypervisor = Some("kvm1".to_owned());
    let error = refused(&mut recorded, &daemon).await;
    assert!(error.report().starts_with("status.hypervisor: objects of this namespace"), "{}", error.report());
    let mut in_domain = object("team-b", &json!({}));
    in_domain.request.failure_domain = Some("kvm1".to_owned());
    let error = refused(&mut in_domain, &daemon).await;
    assert_eq!(error.report(), "no hypervisor is in failure domain \"kvm1\"; known: kvm2");
    let mut theirs = object("team-b", &json!({}));
    theirs.made(&daemon).await;
    assert_eq!(theirs.record.status.hypervisor.as_deref(), Some("kvm2"));
    let mut nowhere = object("team-c", &json!({}));
    assert_eq!(refused(&mut nowhere, &daemon).await.kind(), ErrorKind::PermissionDenied);
    nowhere.removed(&daemon).await;
}

#[tokio::test]
async fn a_mac_address_that_is_in_use_is_not_chosen() {
    let (daemon, _, network) = one("{macAddresses: true}").await;
    let with = |mac: Mac| json!({ "interfaces": [{ "network": NETWORK, "mac": mac.to_string() }] });
    let mut ours = object("team-a", &json!({}));
    ours.made(&daemon).await;
    let entry = HostEntry { mac: Some(Mac::from_bytes([6; 6])), name: Some("printer".into()), address: None };
    network.add(&[Scope::Kept], &entry);
    for mac in [names::mac(&ours.request.mark, 0), Mac::from_bytes([6; 6])] {
        let mut theirs = object("team-b", &with(mac));
        let error = refused(&mut theirs, &daemon).await;
        assert_eq!(
            (error.kind(), error.report()),
            (ErrorKind::Conflict, format!("spec.interfaces[0].mac: {mac} is not free"))
        );
        theirs.removed(&daemon).await;
    }
    let free = Mac::from_bytes([0x52, 0x54, 0, 0, 0, 1]);
    object("team-b", &with(free)).made(&daemon).await;
}

/// Their steps come in turns, so both look before a domain is there.
#[tokio::test]
async fn of_machines_that_choose_one_mac_address_at_once_one_gets_it() {
    let (daemon, ..) = one("{macAddresses: true}").await;
    let mac = "52:54:00:00:00:01";
    let with = json!({ "interfaces": [{ "network": NETWORK, "mac": mac }] });
    let (mut first, mut second) = (object("team-a", &with), object("team-b", &with));
    // The hypervisor is chosen, then the address.
    for _ in 0..2 {
        let answer = first.step(&daemon).await;
        assert!(matches!(&answer, Ok(MachineReport::Creating(_))), "{answer:?}");
    }
    let taken = (ErrorKind::Conflict, format!("spec.interfaces[0].mac: {mac} is not free"));
    for _ in 0..2 {
        let error = refused(&mut second, &daemon).await;
        assert_eq!((error.kind(), error.report()), taken, "before and after the other one has a domain");
        first.made(&daemon).await;
    }
    first.removed(&daemon).await;
    object("team-c", &with).made(&daemon).await;
    assert_eq!(
        refused(&mut second, &daemon).await.report(),
        taken.1,
        "the one that was refused has kept nothing"
    );
}

/// A tenant finds a mark with the address that is made from another one, or chooses that address where it may.
#[tokio::test]
async fn an_address_that_is_made_from_a_mark_is_not_used_where_another_machine_has_it() {
    let (daemon, storage, _) = one("{macAddresses: true}").await;
    let mut ours = object("team-a", &json!({}));
    let mac = names::mac(&ours.request.mark, 0);
    let mut first =
        object("team-b", &json!({ "interfaces": [{ "network": NETWORK, "mac": mac.to_string() }] }));
    for _ in 0..2 {
        let answer = first.step(&daemon).await;
        assert!(matches!(&answer, Ok(MachineReport::Creating(_))), "{answer:?}");
    }
    let words = format!(
        "spec.interfaces[0]: {mac}, which is made from the identity of the object, is not free; make another object in its \
         place, which has another one"
    );
    let before = storage.names(POOL);
    for _ in 0..2 {
        let error = refused(&mut ours, &daemon).await;
        assert_eq!((error.kind(), error.report()), (ErrorKind::Conflict, words.clone()));
        first.made(&daemon).await;
    }
    first.removed(&daemon).await;
    assert!(storage.names(POOL).len() <= before.len(), "nothing was made for the one that was refused");
    ours.made(&daemon).await;
}

/// Each has one address of the other's, and asks for it after its own.
#[tokio::test]
async fn machines_that_are_refused_do_not_hold_each_other_up() {
    let (daemon, ..) = one("{macAddresses: true}").await;
    let [own, used] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
    let with = |macs: &[&str]| {
        let interfaces: Vec<_> = macs.iter().map(|mac| json!({ "network": NETWORK, "mac": mac })).collect();
        json!({ "interfaces": interfaces })
    };
    object("team-a", &with(&[used])).made(&daemon).await;
    let mut refused_for_ever = object("team-b", &with(&[own, used]));
    refused(&mut refused_for_ever, &daemon).await;
    object("team-c", &with(&[own])).made(&daemon).await;
}

/// The daemon is restarted with a configuration that does not have the hypervisor.
#[tokio::test]
async fn a_machine_on_a_hypervisor_that_is_not_configured_is_neither_gone_nor_lost() {
    for (has_status, is_made) in [(true, true), (true, false), (false, true)] {
        let (daemon, ..) = one("{}").await;
        let mut object = object("team-a", &json!({}));
        object.request.spec.hypervisor = (!has_status).then(|| "kvm9".to_owned());
        object.record.status.hypervisor = has_status.then(|| "kvm9".to_owned());
        object.request.provider_id = is_made.then(|| format!("libvirt:///{}", object.request.mark.uid));
        object.request.is_provisioned = is_made;
        for _ in 0..2 {
            let error = object.step(&daemon).await.expect_err("it may be there");
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{}", error.report());
            let error = object.step_towards_gone(&daemon).await.expect_err("it may be there");
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(
                error.report().contains("\"kvm9\"")
                    && error.report().contains("may run there still")
                    && error.report().contains("remove the finalizer by hand")
                    && !error.report().contains("kvm1"),
                "{}",
                error.report()
            );
        }
    }
}

#[tokio::test]
async fn a_machine_on_a_hypervisor_that_has_another_name_now_is_found() {
    for (is_made, is_deleted) in [(true, false), (true, true), (false, true)] {
        let (daemon, storage, _) = one("{}").await;
        let before = storage.names(POOL);
        let mut object = object("team-a", &json!({}));
        if is_made {
            object.made(&daemon).await;
        } else {
            // What an earlier daemon has left.
            storage.put(POOL, &VolumeNames::new(&object.request.mark).disk("root"), &[0; 512]);
        }
        object.record.status.hypervisor = Some("kvm9".to_owned());
        if is_deleted {
            let answer = object.step_towards_gone(&daemon).await.expect("a step");
            assert!(matches!(answer, Deletion::Deleting(_)), "{answer:?}");
            assert_eq!(
                object.record.status.hypervisor.as_deref(),
                Some("kvm1"),
                "written before anything is removed"
            );
        } else {
            object.made(&daemon).await;
            assert_eq!(object.record.status.hypervisor.as_deref(), Some("kvm1"));
        }
        object.removed(&daemon).await;
        assert_eq!(storage.names(POOL), before, "{is_made} {is_deleted}");
    }
}

/// Such an object can be made while the hypervisor of the right one cannot be asked.
#[tokio::test]
async fn a_copied_uid_on_another_hypervisor_does_not_stop_the_right_machine() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(2, "{}", &storage, &network).await;
    let mut ours = object("team-a", &json!({ "hypervisor": "kvm1" }));
    ours.made(&daemon).await;
    let mut forged = object("team-b", &json!({ "hypervisor": "kvm2" }));
    forged.request.mark.uid.clone_from(&ours.request.mark.uid);
    let error = refused(&mut forged, &daemon).await;
    assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
    let twin = Domain { metadata: None, ..domain(&ours, &daemon) };
    let other = &daemon.provider.libvirt_machines().hosts[1].hypervisor;
    other.update(|state| state.inventory.update(twin.uuid, Some(twin.clone())).into_iter().collect());
    assert_eq!(
        daemon
            .provider
            .libvirt_machines()
            .find(twin.uuid, &ours.request.mark)
            .expect("ours")
            .expect("there")
            .0
            .name(),
        "kvm1"
    );
}

/// The test driver's networks: `default` on `virbr0`, and `lan` on `virbr1`.
#[tokio::test]
async fn a_listed_bridge_of_a_closed_network_is_told_to_the_operator() {
    for (allow, expected) in [
        ("{bridges: [virbr0]}", 0),
        ("{namespaces: [team-a], bridges: [virbr1]}", 1),
        ("{namespaces: [team-a], bridges: [virbr1], networks: [lan]}", 0),
    ] {
        let (daemon, ..) = one(allow).await;
        let told = daemon.provider.opened_unawares().await;
        assert_eq!(told.len(), expected, "{allow}: {told:?}");
        let words = "machines.allow[1].bridges: \"virbr1\" is the bridge of the network \"lan\" of hypervisor \"kvm1\"";
        assert!(told.iter().all(|line| line.starts_with(words)), "{told:?}");
    }
}

#[tokio::test]
async fn a_machine_that_is_larger_than_its_namespace_may_have_is_refused_before_anything_is_made() {
    let allow = "{namespaces: [team-a], maxVcpus: 2, maxMemoryMiB: 128, maxDiskGiB: 4}";
    let (daemon, storage, _) = one(allow).await;
    let before = storage.names(POOL);
    for (more, field) in [
        (json!({"vcpus": 3}), "spec.vcpus: 3 is more than the 2"),
        (json!({"memoryMiB": 129}), "spec.memoryMiB: 129 is more than the 128"),
        (
            json!({"disks": [{"sizeGiB": 2}, {"sizeGiB": 3, "name": "data"}]}),
            "all disks together: 5 is more than the 4",
        ),
    ] {
        let error = object("team-a", &more).step(&daemon).await.expect_err("refused at once");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
        assert!(error.report().contains(field), "{}", error.report());
        assert_eq!(storage.names(POOL), before);
    }
    object("team-a", &json!({"vcpus": 2})).made(&daemon).await;
    object("team-b", &json!({"vcpus": 3})).made(&daemon).await;
}

/// Their addresses may be public ones.
#[tokio::test]
async fn images_come_neither_from_hypervisors_nor_from_pods() {
    let inside = |provider: &LibvirtProvider| -> Vec<String> {
        provider.libvirt_machines().inside.all().iter().map(ToString::to_string).collect()
    };
    let text = "hypervisors:\n- {name: kvm1, uri: 'qemu+tls://9.9.9.9/system'}\n\
                - {name: kvm2, uri: 'qemu+ssh://root@[2a00::7]:22/system'}\n\
                - {name: kvm3, uri: 'qemu+tls://kvm.example.org/system'}\n";
    let provider = LibvirtProvider::new(Config::parse(text, None).expect("valid"));
    assert_eq!(inside(&provider), ["9.9.9.9/32", "2a00::7/128"]);

    let config = Config::parse("hypervisors: [{name: kvm1, uri: 'test:///default'}]", None).expect("valid");
    let (provider, stop) = (LibvirtProvider::new(config), CancellationToken::new());
    let context = StartContext::new(stop.clone(), "kubernetes").with_cluster_cidr("11.0.0.0/8,2a01:1::/32");
    provider.start(context).await.expect("starts");
    assert_eq!(inside(&provider), ["11.0.0.0/8", "2a01:1::/32"]);
    stop.cancel();
}

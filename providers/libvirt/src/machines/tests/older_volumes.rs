//! Machines whose volumes have the names of before: with a short hash, for which a tenant finds a mark of its
//! own.

use std::sync::Arc;

use cloudprovider::machines::Mark;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::support::{Daemon, Object, PATIENCE, PAUSE, USER_DATA, has, hypervisor, storage};
use crate::machines::{
    names::VolumeNames,
    steps::MachineRecord,
    storage::{
        StorageCalls,
        testing::{FakeCalls, FakeHypervisor, POOL, SIDES},
    },
};

/// A deletion that takes more calls than this would be another one.
const MAX_CALLS: usize = 60;

/// A provider with hypervisors that share a storage.
async fn daemon(count: usize, storage: &FakeHypervisor) -> Daemon {
    with_calls(count, &(Arc::new(FakeCalls::new(storage)) as _)).await
}

async fn with_calls(count: usize, calls: &Arc<dyn StorageCalls>) -> Daemon {
    Daemon::start((0..count).map(|_| (hypervisor(&[]), Arc::clone(calls))).collect()).await
}

/// The names of the volumes of an older machine: root disk, seed and console.
fn older(object: &Object) -> [String; 3] {
    let names = VolumeNames::older(&object.request.mark);
    [names.disk("root"), names.seed(), names.console()]
}

/// Puts the volumes of an older machine.
fn put(storage: &FakeHypervisor, object: &Object) {
    let [root, seed, console] = older(object);
    storage.put(POOL, &root, &[1; 512]);
    storage.put(POOL, &seed, USER_DATA.as_bytes());
    storage.put(POOL, &console, b"boot");
}

/// Defines and starts the domain of an older machine on the first hypervisor.
async fn define(daemon: &Daemon, object: &Object) {
    let Mark { uid, namespace, cluster, .. } = &object.request.mark;
    let [root, seed, console] = older(object);
    let xml = format!(
        "<domain type='test'><name>older</name><uuid>{uid}</uuid><memory unit='MiB'>64</memory><os><type>hvm</type></os>
         <metadata><c:instance xmlns:c='urn:cloud-controller-manager:libvirt:1' cluster='{cluster}'>
         <c:mark uid='{uid}' namespace='{namespace}' cluster='{cluster}' machine='node-1'/></c:instance></metadata>
         <devices><disk type='file' device='disk'><source file='/images/{root}'/><target dev='vda' bus='virtio'/></disk>
         <disk type='file' device='disk'><source file='/images/{seed}'/><target dev='vdb' bus='virtio'/><readonly/></disk>
         <serial type='file'><source path='/images/{console}'/><target port='0'/></serial>
         <interface type='network'><source network='default'/></interface></devices></domain>"
    );
    let host = daemon.provider.hypervisor("kvm1").expect("configured");
    let made = host.with_connection(move |connect| connect.define_domain_xml(&xml)?.create().map(drop)).await;
    made.expect("connected").expect("defined");
    let uuid: Uuid = uid.parse().expect("a UUID");
    let began = Instant::now();
    let machines = daemon.provider.libvirt_machines();
    while machines.hosts[0].hypervisor.state().inventory.by_uuid(uuid).is_none() {
        assert!(began.elapsed() < PATIENCE, "not seen");
        sleep(PAUSE).await;
    }
}

/// An object that was moved has another UID than its mark, and one that forges a mark has too.
fn moved(object: Object) -> Object {
    let mut object = object;
    object.request.object_uid = Uuid::new_v4().to_string();
    object
}

fn each_kind() -> [Object; 2] {
    let new = || Object::new(&json!({ "removeBootstrapData": true }));
    [new(), moved(new())]
}

#[tokio::test]
async fn an_older_machine_is_followed_and_wiped_and_deleted_with_its_volumes() {
    for mut object in each_kind() {
        let storage = storage();
        let before = storage.names(POOL);
        let daemon = daemon(1, &storage).await;
        put(&storage, &object);
        let names = storage.names(POOL);
        define(&daemon, &object).await;
        object.made(&daemon).await;
        object.request.has_node = true;
        object.step(&daemon).await.expect("a step");
        assert!(object.record.status.is_bootstrap_data_removed);
        assert!(!has(&storage, USER_DATA).await);
        assert_eq!(storage.names(POOL), names, "its own volumes, and no others");
        object.removed(&daemon).await;
        assert_eq!(storage.names(POOL), before);
    }
}

#[tokio::test]
async fn a_deletion_of_an_older_machine_that_is_cut_off_is_finished_without_the_status() {
    for mut object in each_kind() {
        let mut is_whole = false;
        for (at, side) in (0..MAX_CALLS).flat_map(|at| SIDES.map(|side| (at, side))) {
            let storage = storage();
            let before = storage.names(POOL);
            put(&storage, &object);
            let dies = Arc::new(FakeCalls::that_die(&storage, at, side));
            let first = with_calls(1, &(Arc::clone(&dies) as _)).await;
            define(&first, &object).await;
            let was_cut = tokio::select! {
                () = object.removed(&first) => false,
                () = dies.died.notified() => true,
            };
            let uuid = object.request.mark.uid.parse().expect("a UUID");
            let found = first.provider.libvirt_machines().hosts[0]
                .domains
                .find(uuid, None)
                .await
                .expect("it answers");
            drop(first);
            object.record = MachineRecord::default();
            let second = daemon(1, &storage).await;
            if found.is_some() {
                define(&second, &object).await;
            }
            object.removed(&second).await;
            assert_eq!(storage.names(POOL), before, "call {at} {side:?}");
            is_whole = !was_cut;
            if is_whole {
                assert!(at > 2, "{at} calls");
                break;
            }
        }
        assert!(is_whole, "a deletion takes more than {MAX_CALLS} calls");
    }
}

/// The daemon was replaced by this version between the disk and the domain.
#[tokio::test]
async fn a_machine_that_was_begun_with_the_older_names_gets_no_second_disk() {
    let fields = |mode: &str| json!({ "rootDiskMode": mode, "disks": [{ "sizeGiB": 2, "format": "raw" }] });
    for mode in ["overlay", "copy"] {
        let storage = storage();
        let before = storage.names(POOL);
        let daemon = daemon(1, &storage).await;
        let mut object = Object::new(&fields(mode));
        let disk = VolumeNames::older(&object.request.mark).disk("root");
        let begun = if mode == "copy" {
            let attempt = format!("{disk}.0123456789abcdef");
            storage.put_disk(POOL, &attempt, 2 << 30);
            storage.put(POOL, &format!("{attempt}.complete-0"), b"");
            attempt
        } else {
            let mut other = Object::new(&fields(mode));
            other.made(&daemon).await;
            storage.rename(POOL, &VolumeNames::new(&other.request.mark).disk("root"), &disk);
            other.removed(&daemon).await;
            disk
        };
        object.made(&daemon).await;
        let names = storage.names(POOL);
        assert!(names.contains(&begun), "{mode}: {names:?}");
        let new = VolumeNames::new(&object.request.mark);
        assert!(!names.iter().any(|name| new.has(name)), "{mode}: {names:?}");
        object.removed(&daemon).await;
        assert_eq!(storage.names(POOL), before, "{mode}");
    }
}

/// The victim's domain is on one hypervisor, and the forged object goes to the other one, which has the same
/// pool.
#[tokio::test]
async fn a_mark_with_the_names_of_an_older_machines_volumes_neither_uses_nor_deletes_them() {
    let uid = "4d3c2b1a-0000-4000-8000-000000000001";
    let with_mark = |namespace: &str, cluster: &str, hypervisor: &str| {
        let mut object = Object::new(&json!({ "hypervisor": hypervisor }));
        object.request.mark = Mark::machine(uid, namespace, cluster, "node-1");
        object.request.object_uid = uid.to_owned();
        object
    };
    for has_domain in [true, false] {
        let storage = storage();
        let before = storage.names(POOL);
        let daemon = daemon(2, &storage).await;
        let mut ours = with_mark("team-a", "prod-103084", "kvm1");
        put(&storage, &ours);
        if has_domain {
            define(&daemon, &ours).await;
            ours.made(&daemon).await;
        }
        let names = storage.names(POOL);
        for place in ["kvm1", "kvm2"] {
            let mut forged = moved(with_mark("team-b", "prod-19405", place));
            assert_eq!(older(&ours), older(&forged), "they collide");
            forged.record.status.hypervisor = Some(place.to_owned());
            forged.removed(&daemon).await;
            assert_eq!(storage.names(POOL), names, "{place} {has_domain}");
            if !has_domain {
                forged.made(&daemon).await;
                assert!(names.iter().all(|name| storage.names(POOL).contains(name)), "{place}");
                forged.removed(&daemon).await;
                assert_eq!(storage.names(POOL), names, "{place}");
            }
        }
        ours.removed(&daemon).await;
        assert_eq!(storage.names(POOL), before, "{has_domain}");
    }
}

//! What one machine does that the suite of the contract cannot know.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind, PowerState,
    machines::{Deletion, MachineReport, WaitsFor},
};
use serde_json::json;

use super::support::{Daemon, IMAGE, Object, USER_DATA, has, hypervisor, storage};
use crate::machines::{
    console::FIRST_READ,
    names,
    storage::testing::{FakeCalls, FakeHypervisor, POOL},
};

async fn daemon(storage: &FakeHypervisor) -> Daemon {
    Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(storage)) as _)]).await
}

#[tokio::test]
async fn the_hypervisor_is_written_before_anything_is_made_on_it() {
    let storage = storage();
    let before = storage.names(POOL);
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({}));
    let report = object.step(&daemon).await.expect("a step");
    assert_eq!(object.record.status.hypervisor.as_deref(), Some("kvm1"));
    assert_eq!(report.wait().map(|wait| &*wait.reason), Some("HypervisorChosen"));
    assert_eq!(storage.names(POOL), before);
}

#[tokio::test]
async fn bootstrap_data_are_wiped_once_they_have_served() {
    for (is_asked, has_node, expected) in [(true, false, true), (false, true, true), (true, true, false)] {
        let storage = storage();
        let daemon = daemon(&storage).await;
        let mut object = Object::new(&json!({ "removeBootstrapData": is_asked }));
        object.made(&daemon).await;
        assert!(has(&storage, USER_DATA).await, "the guest needs them");
        object.request.bootstrap = None;
        object.request.has_node = has_node;
        let names = storage.names(POOL);
        for _ in 0..2 {
            assert!(object.step(&daemon).await.expect("a step").is_done());
        }
        assert_eq!(has(&storage, USER_DATA).await, expected, "{is_asked} {has_node}");
        assert_eq!(storage.names(POOL), names, "the volume stays");
    }
}

#[tokio::test]
async fn a_wipe_of_bootstrap_data_that_fails_is_tried_again_and_the_machine_stays_ready() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({ "removeBootstrapData": true }));
    assert_eq!(object.made(&daemon).await.look_again_after, None);
    object.request.bootstrap = None;
    object.request.has_node = true;
    for is_active in [false, true] {
        storage.set_active(POOL, is_active);
        let report = object.step(&daemon).await.expect("a step");
        assert!(report.is_done(), "{report:?}");
        let machine = report.present().expect("there");
        assert_eq!(machine.look_again_after.is_none(), is_active);
        assert_eq!(object.record.status.is_bootstrap_data_removed, is_active);
    }
    assert!(!has(&storage, USER_DATA).await);
}

/// As after an event that got lost: libvirt has a domain that the inventory has not.
#[tokio::test]
async fn a_domain_of_which_no_event_told_is_found_all_the_same() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({}));
    let made = object.made(&daemon).await;
    let host = &daemon.provider.libvirt_machines().hosts[0];
    let uid = object.request.mark.uid.parse().expect("a UUID");
    host.hypervisor.update(|state| state.inventory.update(uid, None).into_iter().collect());
    object.request.provider_id = None;
    let report = object.step(&daemon).await.expect("a step");
    assert!(matches!(report, MachineReport::Creating(_)), "{report:?}");
    assert_eq!(object.made(&daemon).await.instance.provider_id, made.instance.provider_id);
}

#[tokio::test]
async fn a_machine_that_was_defined_and_not_started_is_started() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({}));
    object.made(&daemon).await;
    let name = names::domain(&object.request.mark);
    let host = daemon.provider.hypervisor("kvm1").expect("configured");
    let destroyed =
        host.with_connection(move |connect| connect.lookup_domain_by_name(&name)?.destroy()).await;
    destroyed.expect("connected").expect("it runs");
    // As after a daemon that ended between the two.
    object.request.is_provisioned = false;
    let machine = object.made(&daemon).await;
    assert_eq!(machine.instance.power_state, PowerState::Running);
}

#[tokio::test]
async fn what_cannot_be_made_says_why_and_leaves_nothing() {
    let storage = storage();
    let before = storage.names(POOL);
    let daemon = daemon(&storage).await;
    for (more, kind, words) in [
        (json!({"image": {"volume": {"name": "none"}}}), ErrorKind::NotFound, "spec.image.volume"),
        (
            json!({"image": {"volume": {"name": "none"}}, "disks": [{"sizeGiB": 1, "pool": "none"}]}),
            ErrorKind::NotFound,
            "in the pool of spec.disks[0]: volume \"none\" in pool \"none\"",
        ),
        (json!({"disks": []}), ErrorKind::InvalidInput, "spec.disks"),
        (
            json!({"disks": [{"sizeGiB": 1}, {"sizeGiB": 1, "name": "root"}]}),
            ErrorKind::InvalidInput,
            "spec.disks[1].name: \"root\"",
        ),
        (
            json!({"quoteSerialLog": true, "serialLog": false}),
            ErrorKind::InvalidInput,
            "spec.quoteSerialLog: needs serialLog",
        ),
        (
            json!({"hypervisor": "kvm9"}),
            ErrorKind::NotFound,
            "spec.hypervisor: the configuration has no hypervisor \"kvm9\"",
        ),
        (json!({"cpu": {"mode": "host-passthrough"}}), ErrorKind::Unsupported, "spec.cpu.mode"),
        (
            json!({"interfaces": [{"network": "default", "reservation": {"address": "192.168.122.256"}}]}),
            ErrorKind::InvalidInput,
            "spec.interfaces[0].reservation.address: \"192.168.122.256\"",
        ),
        (
            json!({"interfaces": [{"bridge": "br0", "reservation": {}}]}),
            ErrorKind::InvalidInput,
            "spec.interfaces[0].reservation: needs network",
        ),
        (
            json!({"interfaces": [{"network": "default", "mac": "52:54:00:00:00:01", "reservation": {}}]}),
            ErrorKind::InvalidInput,
            "spec.interfaces[0].reservation: is not possible together with mac",
        ),
    ] {
        let mut object = Object::new(&more);
        let error = loop {
            match object.step(&daemon).await {
                Ok(report) => assert!(matches!(report, MachineReport::Creating(_)), "{more}: {report:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), kind, "{more}: {}", error.report());
        assert!(error.report().contains(words), "{more}: {}", error.report());
        object.removed(&daemon).await;
        assert_eq!(storage.names(POOL), before, "{more}");
    }
}

#[tokio::test]
async fn a_machine_waits_for_room() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({ "memoryMiB": 1_000_000 }));
    let report = object.step(&daemon).await.expect("a step");
    let wait = report.wait().expect("it waits");
    assert_eq!(wait.waits_for, WaitsFor::Capacity);
    assert!(wait.message.ends_with(": a hypervisor has too little memory left"), "{}", wait.message);
}

#[tokio::test]
async fn a_guest_is_asked_to_shut_down() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({ "powerOffMode": "trySoft" }));
    object.made(&daemon).await;
    let answer = object.step_towards_gone(&daemon).await.expect("a step");
    assert!(matches!(&answer, Deletion::Deleting(wait) if wait.reason == "ShuttingDown"), "{answer:?}");
    assert!(object.record.status.soft_power_off_since.is_some());
    // The test driver's guests obey at once.
    object.removed(&daemon).await;
}

#[tokio::test]
async fn only_the_choice_of_a_hypervisor_is_written_at_once() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({ "interfaces": [{ "network": "lan" }] }));
    let mut at_once = Vec::new();
    let last = loop {
        let report = object.step(&daemon).await.expect("a step");
        let wait = report.wait().expect("it has no address").clone();
        if wait.waits_for == WaitsFor::Objects {
            at_once.push(wait.reason.clone());
        }
        if wait.waits_for == WaitsFor::Address {
            break wait;
        }
    };
    assert_eq!(at_once, ["HypervisorChosen"], "{last:?}");
}

#[tokio::test]
async fn the_serial_log_of_a_guest_that_does_not_come_up_is_quoted_where_asked() {
    for is_asked in [false, true] {
        let storage = storage();
        let daemon = daemon(&storage).await;
        let mut object =
            Object::new(&json!({ "quoteSerialLog": is_asked, "interfaces": [{ "network": "lan" }] }));
        let wait = loop {
            match object.step(&daemon).await.expect("a step") {
                MachineReport::Creating(_) => {}
                report => break report.wait().expect("it has no address").clone(),
            }
        };
        assert_eq!(wait.waits_for, WaitsFor::Address);
        let log = storage.names(POOL).into_iter().find(|name| name.ends_with("-console.log")).expect("a log");
        let printed = format!("{}\nKernel panic\n+ echo hunter2hunter2\n", "boot\n".repeat(5000));
        storage.put(POOL, &log, printed.as_bytes());
        tokio::time::pause();
        tokio::time::advance(FIRST_READ).await;
        tokio::time::resume();
        let mut messages = Vec::new();
        for has_data in [true, true, false] {
            object.request.bootstrap = object.request.bootstrap.filter(|_| has_data);
            let report = object.step(&daemon).await.expect("a step");
            messages.push(report.wait().expect("it has no address").message.to_string());
        }
        let quoted = "; its serial log ends with: boot | boot | boot | boot | boot | boot | boot | boot | \
            Kernel panic | (left out: it may have secrets)";
        let expected = if is_asked { format!("{}{quoted}", wait.message) } else { wait.message.to_string() };
        assert_eq!(messages, [expected.clone(), expected, wait.message.to_string()], "{is_asked}");
        object.removed(&daemon).await;
    }
}

/// Whatever exists or not: what the configuration does not allow is refused before anything is asked.
#[tokio::test]
async fn a_tenant_names_only_what_the_configuration_allows() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut of_a = Object::new(&json!({}));
    of_a.made(&daemon).await;
    let names = storage.names(POOL);
    let seed = names.iter().find(|name| name.ends_with("-seed")).expect("a seed").clone();
    let digest = format!("sha256:{}", "0".repeat(64));
    let volume = |name: &str| json!({"image": {"volume": {"name": name}, "format": "raw"}});
    let file = |path: &str| json!({"image": {"file": path, "checksum": digest, "format": "raw"}});
    let no_file = "spec.image.file: objects of this namespace may not name this file; which they may is in the configuration \
                   of the provider, machines.allow, under imageFolders";
    let no_volume = "spec.image.volume, in the pool of spec.disks[0]: objects of this namespace may not name this volume; which \
                     they may is in the configuration of the provider, machines.allow, under imageVolumes";
    let own = "spec.image.volume, in the pool of spec.disks[0]: volumes whose names begin with \"ccm-\" are";
    for (namespace, more, kind, words) in [
        ("default", volume(&seed), ErrorKind::InvalidInput, own),
        ("default", volume(&seed.replacen("ccm-", "CCM-", 1)), ErrorKind::InvalidInput, own),
        ("team-c", volume(&seed), ErrorKind::InvalidInput, own),
        ("team-c", volume(IMAGE), ErrorKind::PermissionDenied, no_volume),
        ("team-c", volume("nothing"), ErrorKind::PermissionDenied, no_volume),
        ("default", file("/etc/passwd"), ErrorKind::PermissionDenied, no_file),
        ("default", file("/nowhere/at/all"), ErrorKind::PermissionDenied, no_file),
        ("team-c", file("/proc/self/environ"), ErrorKind::PermissionDenied, no_file),
    ] {
        let mut object = Object::new(&more);
        object.request.mark.namespace = namespace.to_owned();
        let error = object.step(&daemon).await.expect_err("refused at once");
        assert_eq!(error.kind(), kind, "{namespace} {more}");
        assert!(error.report().starts_with(words), "{namespace} {more}: {}", error.report());
        assert_eq!(object.record.status.hypervisor, None, "nothing was chosen");
    }
    assert_eq!(storage.names(POOL), names);
}

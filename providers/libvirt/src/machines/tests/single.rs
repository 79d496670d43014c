//! What one machine does that the suite of the contract cannot know.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind, Machines as _, PowerState,
    machines::{Deletion, MachineReport, WaitsFor},
};
use serde_json::json;

use super::support::{Daemon, Object, USER_DATA, hypervisor, storage};
use crate::machines::storage::{
    StorageCalls,
    testing::{FakeCalls, FakeHypervisor, POOL},
};

async fn daemon(storage: &FakeHypervisor) -> Daemon {
    Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(storage)) as _)]).await
}

/// Whether some volume has the user data in it.
async fn has_user_data(storage: &FakeHypervisor) -> bool {
    let calls = FakeCalls::new(storage);
    let secret = USER_DATA.as_bytes();
    for name in storage.names(POOL) {
        let content = calls.download(POOL, &name, 1 << 22).await.expect("readable");
        if content.windows(secret.len()).any(|part| part == secret) {
            return true;
        }
    }
    false
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
        assert!(has_user_data(&storage).await, "the guest needs them");
        object.request.bootstrap = None;
        object.request.has_node = has_node;
        let names = storage.names(POOL);
        for _ in 0..2 {
            assert!(object.step(&daemon).await.expect("a step").is_done());
        }
        assert_eq!(has_user_data(&storage).await, expected, "{is_asked} {has_node}");
        assert_eq!(storage.names(POOL), names, "the volume stays");
    }
}

#[tokio::test]
async fn a_machine_that_was_defined_and_not_started_is_started() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({}));
    object.made(&daemon).await;
    let act = |name: &'static str| {
        let host = daemon.provider.hypervisor("kvm1").expect("configured");
        async move { host.with_connection(move |connect| connect.lookup_domain_by_name(name)?.destroy()).await }
    };
    act("node-1").await.expect("connected").expect("it runs");
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
        (json!({"disks": []}), ErrorKind::InvalidInput, "spec.disks"),
        (
            json!({"disks": [{"sizeGiB": 1}, {"sizeGiB": 1, "name": "root"}]}),
            ErrorKind::InvalidInput,
            "spec.disks[1].name: \"root\"",
        ),
        (json!({"hypervisor": "kvm9"}), ErrorKind::NotFound, "kvm9"),
        (json!({"cpu": {"mode": "host-passthrough"}}), ErrorKind::Unsupported, "spec.cpu.mode"),
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
    assert!(wait.message.contains("kvm1"), "{}", wait.message);
}

#[tokio::test]
async fn a_guest_is_asked_to_shut_down() {
    let storage = storage();
    let daemon = daemon(&storage).await;
    let mut object = Object::new(&json!({ "powerOffMode": "trySoft" }));
    object.made(&daemon).await;
    let answer = {
        let Object { request, record } = &mut object;
        daemon.provider.fleet().delete_machine(request, record).await.expect("a step")
    };
    assert!(matches!(&answer, Deletion::Deleting(wait) if wait.reason == "ShuttingDown"), "{answer:?}");
    assert!(object.record.status.soft_power_off_since.is_some());
    // The test driver's guests obey at once.
    object.removed(&daemon).await;
}

//! Machines of which a copy with the same UUID is on another hypervisor.

use std::sync::Arc;

use cloudprovider::{ErrorKind, Result, machines::MachineReport};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::support::{Daemon, Object, PATIENCE, PAUSE, hypervisor, storage};
use crate::machines::{names, storage::testing::FakeCalls};

/// What a step says of a machine that was made on `kvm1` and whose domain is on `kvm2` now, under a name, off
/// or running. Its status has the machine's hypervisor, or this one.
async fn after_a_copy(name: Option<&str>, is_running: bool, recorded: Option<&str>) -> Result<MachineReport> {
    let hosts = || (hypervisor(&[]), Arc::new(FakeCalls::new(&storage())) as _);
    let daemon = Daemon::start(vec![hosts(), hosts()]).await;
    let mut object = Object::new(&json!({ "hypervisor": "kvm1" }));
    object.made(&daemon).await;
    let uuid = object.request.mark.uid.parse().expect("a UUID");
    let machines = daemon.provider.libvirt_machines();
    machines.hosts[0].domains.remove(uuid).await.expect("removed");
    let own = names::domain(&object.request.mark);
    let xml = format!(
        "<domain type='test'><name>{}</name><uuid>{uuid}</uuid><memory unit='MiB'>64</memory>\
         <os><type>hvm</type></os></domain>",
        name.unwrap_or(&own)
    );
    let define = move |connect: &virt::connect::Connect| {
        let copy = connect.define_domain_xml(&xml)?;
        if is_running { copy.create().map(drop) } else { Ok(()) }
    };
    let made = daemon.provider.hypervisor("kvm2").expect("configured").with_connection(define).await;
    made.expect("connected").expect("defined");
    let is_seen = || {
        let known =
            |number: usize| machines.hosts[number].hypervisor.state().inventory.by_uuid(uuid).cloned();
        known(0).is_none() && known(1).is_some_and(|copy| copy.is_running() == is_running)
    };
    let began = Instant::now();
    while !is_seen() {
        assert!(began.elapsed() < PATIENCE, "not seen");
        sleep(PAUSE).await;
    }
    if let Some(recorded) = recorded {
        object.record.status.hypervisor = Some(recorded.to_owned());
    }
    let before = object.record.status.hypervisor.clone();
    let answer = object.step(&daemon).await;
    assert_eq!(object.record.status.hypervisor, before, "the copy's hypervisor is not the machine's");
    object.removed(&daemon).await;
    assert!(
        machines.hosts[1].domains.find(uuid, None).await.expect("it answers").is_some(),
        "the copy stays"
    );
    answer
}

#[tokio::test]
async fn a_machine_of_which_only_a_copy_is_left_is_lost() {
    for (name, is_running) in [(None, false), (Some("replica"), false), (Some("replica"), true)] {
        let report = after_a_copy(name, is_running, None).await.expect("a step");
        assert!(matches!(report, MachineReport::Lost { .. }), "{name:?} {is_running}: {report:?}");
    }
}

#[tokio::test]
async fn what_may_be_the_machine_without_its_mark_is_a_conflict() {
    for (name, is_running, recorded) in
        [(None, true, None), (Some("node-1"), true, None), (None, false, Some("kvm2"))]
    {
        let error = after_a_copy(name, is_running, recorded).await.expect_err("not known");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{name:?} {is_running}: {}", error.report());
    }
}

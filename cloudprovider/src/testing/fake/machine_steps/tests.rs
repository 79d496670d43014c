use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    CloudProvider, InstanceChange, Instances, ProviderId, StartContext,
    machines::{BootstrapData, BootstrapFormat, ClusterContext},
    testing::FakeCloud,
};

const TASK_TIME: Duration = Duration::from_secs(30);

fn cloud() -> FakeCloud {
    let cloud = FakeCloud::new().with_machines();
    cloud.set_task_time(TASK_TIME);
    cloud.set_address_time(Duration::from_secs(5));
    cloud
}

async fn started(cloud: &FakeCloud) -> Arc<dyn CloudProvider> {
    let provider = cloud.provider();
    provider.start(StartContext::new(CancellationToken::new(), "test")).await.expect("it starts");
    provider
}

fn request() -> MachineRequest<Value, Value> {
    let mark = Mark::machine("uid-1", "default", "prod", "one");
    MachineRequest::new(mark, json!({"cpus": 4}), ClusterContext::new(json!({"failureDomains": ["a"]})))
        .with_bootstrap(BootstrapData::new(BootstrapFormat::Ignition, "{}"))
}

/// One step towards existing.
async fn step(provider: &Arc<dyn CloudProvider>, record: &mut Record<Value>) -> Result<MachineReport> {
    provider.machines().expect("machines").ensure_machine(&request(), record).await
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_step_by_step() {
    let cloud = cloud();
    let provider = started(&cloud).await;
    let mut changes = provider.instances().and_then(Instances::changes).expect("changes");
    let mut record = Record::default();
    let report = step(&provider, &mut record).await.expect("a report");
    assert_eq!(report.wait().map(|wait| &*wait.message), Some("task-1 of one"));
    assert_eq!(record.status, json!({"taskRef": "task-1"}));
    assert_eq!(cloud.objects(), ["disk/one of uid-1"]);

    // Nothing but the stream tells that the task has ended.
    let Some(InstanceChange::Changed(changed)) = changes.next().await else { panic!("no change") };
    assert_eq!(changed[0].machine.as_deref(), Some("uid-1"));
    let report = step(&provider, &mut record).await.expect("a report");
    assert_eq!(report.wait().map(|wait| &*wait.message), Some("one has no address yet"));
    assert_eq!(record.status, json!({}));

    changes.next().await.expect("a change");
    let report = step(&provider, &mut record).await.expect("a report");
    assert!(report.is_done());
    let machine = report.present().expect("it exists");
    assert_eq!(machine.instance.provider_id.as_ref().map(ProviderId::as_str), Some("fake:///uid-1"));
    assert_eq!(machine.failure_domain.as_deref(), Some("a"));
    assert_eq!(cloud.objects(), ["disk/one of uid-1", "instance/one of uid-1"]);
    assert_eq!(cloud.bootstrap_of("uid-1").map(|data| data.expose().to_vec()), Some(b"{}".to_vec()));
    let calls = [Operation::CreateDisk, Operation::CreateMachine, Operation::PowerOn];
    assert_eq!(calls.map(|call| cloud.count(call)), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_says_so_once() {
    let cloud = cloud();
    let provider = started(&cloud).await;
    cloud.fail_next_task(Error::new(ErrorKind::Unavailable, "no space left"));
    let mut record = Record::default();
    step(&provider, &mut record).await.expect("a report");
    sleep(TASK_TIME).await;
    let error = step(&provider, &mut record).await.expect_err("the task failed");
    assert_eq!(error.report(), "task-1 failed: no space left");
    assert_eq!(record.status, json!({}));
    let report = step(&provider, &mut record).await.expect("a report");
    assert_eq!(report.wait().map(|wait| &*wait.message), Some("task-2 of one"));
    assert_eq!(cloud.count(Operation::CreateDisk), 1, "what is there is used");
}

#[tokio::test(start_paused = true)]
async fn a_dead_daemon_gets_no_answer_and_its_last_change_is_made() {
    for (changes, objects) in [
        (0, &[][..]),
        (1, &["disk/one of uid-1"][..]),
        (2, &["disk/one of uid-1", "instance/one of uid-1"][..]),
    ] {
        let cloud = cloud();
        let provider = started(&cloud).await;
        cloud.crash_after(changes);
        let mut record = Record::default();
        let second = Duration::from_secs(1);
        assert!(timeout(second, step(&provider, &mut record)).await.is_err(), "{changes}");
        assert!(timeout(second, step(&provider, &mut record)).await.is_err(), "it stays dead");
        sleep(TASK_TIME).await;
        assert_eq!(cloud.objects(), objects);
        assert!(cloud.recover());
        let again = started(&cloud).await;
        step(&again, &mut Record::default()).await.expect("a report");
    }
    assert!(!cloud().recover(), "it never died");
}

/// Makes a machine and deletes it.
async fn whole_life(provider: &Arc<dyn CloudProvider>) {
    let machines = provider.machines().expect("machines");
    let (mut record, second) = (Record::default(), Duration::from_secs(1));
    while !step(provider, &mut record).await.expect("a report").is_done() {
        sleep(second).await;
    }
    while machines.delete_machine(&request(), &mut record).await.expect("an answer") != Deletion::Gone {
        sleep(second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_the_daemon_dies_nothing_is_left_or_made_twice() {
    let limit = Duration::from_secs(600);
    for changes in 0.. {
        let cloud = cloud();
        cloud.crash_after(changes);
        let first = started(&cloud).await;
        let is_whole = timeout(limit, whole_life(&first)).await.is_ok();
        assert_eq!(cloud.recover(), !is_whole);
        let calls =
            [Operation::CreateDisk, Operation::CreateMachine, Operation::PowerOn, Operation::PowerOff];
        let before = calls.map(|call| cloud.count(call));
        if is_whole {
            assert_eq!((changes, before), (7, [1, 1, 1, 1]), "each change of a life was the last one once");
            return;
        }
        timeout(limit, whole_life(&started(&cloud).await)).await.expect("it goes on");
        assert_eq!(cloud.objects(), <[String; 0]>::default(), "after {changes} changes");
        // While the machine was made, the second process only goes on.
        if changes < 4 {
            assert_eq!(calls.map(|call| cloud.count(call)), [1, 1, 1, 1], "after {changes} changes");
        }
    }
}

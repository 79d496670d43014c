//! Machines that are reset, since they do not work.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind, Machines, PowerState, Result,
    machines::{MachineReport, Mark, Reset},
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::support::{Daemon, Object, PATIENCE, PAUSE, hypervisor, storage};
use crate::machines::storage::testing::FakeCalls;

async fn reset(daemon: &Daemon, object: &Object) -> Result<Reset> {
    daemon.provider.libvirt_machines().reset_machine(&object.request, &object.record).await
}

/// How often a domain of the hypervisor was reset and started so far.
fn calls(daemon: &Daemon) -> (u64, u64) {
    let all: Vec<_> = daemon.provider.hypervisors().map(|one| one.call_counts()).collect();
    let of = |name: &str| all.iter().filter_map(|counts| counts.get(name)).sum();
    (of("reset_domain"), of("start_domain"))
}

/// Steps until the machine has this power state.
async fn becomes(daemon: &Daemon, object: &mut Object, state: PowerState) {
    let began = Instant::now();
    loop {
        let answer = object.step(daemon).await;
        if let Ok(MachineReport::Present(machine)) = &answer
            && machine.instance.power_state == state
        {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it is not {state}: {answer:?}");
        sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn a_domain_is_reset_once_and_started_if_it_is_off() {
    let storage = storage();
    let daemon = Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(&storage)) as _)]).await;
    let mut object = Object::new(&json!({}));
    object.made(&daemon).await;
    let (_, started) = calls(&daemon);
    assert_eq!(reset(&daemon, &object).await.expect("an answer"), Reset::Done);
    assert_eq!(calls(&daemon), (1, started));
    becomes(&daemon, &mut object, PowerState::Running).await;

    let uuid = Uuid::parse_str(&object.request.mark.uid).expect("a UUID");
    let machines = daemon.provider.libvirt_machines();
    machines.hosts[0].domains.power_off(uuid).await.expect("off");
    becomes(&daemon, &mut object, PowerState::Off).await;
    assert_eq!(reset(&daemon, &object).await.expect("an answer"), Reset::Done);
    assert_eq!(calls(&daemon), (1, started + 1), "nothing resets what is off");
    becomes(&daemon, &mut object, PowerState::Running).await;

    machines.hosts[0].domains.pause(uuid).await.expect("paused");
    becomes(&daemon, &mut object, PowerState::Paused).await;
    assert_eq!(reset(&daemon, &object).await.expect("an answer"), Reset::Done);
    assert_eq!(calls(&daemon), (1, started + 2), "a reset leaves a paused guest paused");
    becomes(&daemon, &mut object, PowerState::Running).await;
}

#[tokio::test]
async fn no_other_domain_is_reset() {
    let storage = storage();
    let daemon = Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(&storage)) as _)]).await;
    let mut object = Object::new(&json!({}));
    object.made(&daemon).await;
    let mark = object.request.mark.clone();
    for other in [
        Mark { namespace: "team-a".into(), ..mark.clone() },
        Mark { cluster: "other".into(), ..mark.clone() },
    ] {
        let mut other_object = object.clone();
        other_object.request.mark = other;
        let error = reset(&daemon, &other_object).await.expect_err("it is another object's");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    assert_eq!(reset(&daemon, &Object::new(&json!({}))).await.expect("an answer"), Reset::Absent);
    object.removed(&daemon).await;
    assert_eq!(reset(&daemon, &object).await.expect("an answer"), Reset::Absent);
    assert_eq!(calls(&daemon).0, 0);
}

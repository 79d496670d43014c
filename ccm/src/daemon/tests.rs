//! What controllers may write, and when.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind, testing::FakeCloud};
use component::events::{EventObject, EventRecorder, EventType};
use controller_kit::clients::Clients;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Namespace},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use sandbox::Sandbox;
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Parts, elected::run_table};
use crate::{
    controllers::{Build, CONTROLLERS, ControllerContext, ControllerDescriptor, ControllerPermissions, Run},
    flags::{ControllerNames, parse},
};

/// What a controller got. The test uses it when the daemon has long ended.
type Taken = Mutex<Option<(Client, Client, EventRecorder)>>;

/// A controller that exists only in these tests.
const fn controller(build: fn(ControllerContext<'_>) -> anyhow::Result<Run>) -> ControllerDescriptor {
    ControllerDescriptor {
        names: ControllerNames { name: "new-controller", alias: "new", older: &[] },
        client: "new-controller",
        events_from: "new-controller",
        needs: None,
        build: Build::Once(build),
        metrics: |_| Ok(()),
        permissions: ControllerPermissions::default,
        explain: None,
    }
}

fn start(
    sandbox: &Sandbox,
    table: &'static [ControllerDescriptor],
) -> (JoinHandle<anyhow::Result<()>>, CancellationToken) {
    let arguments = ["cloud-controller-manager", "--cloud-provider=fake", "--leader-elect-retry-period=1s"];
    let flags = parse(arguments).expect("good flags");
    let parts = Parts::new(sandbox.client(), FakeCloud::new().provider()).expect("parts");
    let stop = CancellationToken::new();
    let daemon = {
        let stop = stop.clone();
        tokio::spawn(async move { Box::pin(run_table(table, &flags, parts, stop)).await })
    };
    (daemon, stop)
}

async fn events(sandbox: &Sandbox, reason: &str) -> Vec<Event> {
    let all = Api::<Event>::all(sandbox.client()).list(&ListParams::default()).await.expect("a list");
    all.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
}

fn namespace(name: &str) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace")
}

async fn write(client: &Client, name: &str) -> kube::Result<Namespace> {
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace(name)).await
}

/// Who holds the Lease; empty if it was given back.
async fn holder(sandbox: &Sandbox) -> String {
    let leases: Api<Lease> = Api::namespaced(sandbox.client(), "kube-system");
    let lease = leases.get("cloud-controller-manager").await.expect("a lease");
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_nobody_wired_cannot_write_after_the_term() {
    static TAKEN: Taken = Mutex::new(None);
    const TABLE: &[ControllerDescriptor] = &[controller(|context| {
        let taken = (context.clients.client, context.clients.unthrottled, context.events);
        *TAKEN.lock() = Some(taken);
        Ok(Box::new(|stop, _| {
            Box::pin(async move {
                stop.cancelled().await;
                Ok(())
            })
        }))
    })];
    let sandbox = Sandbox::new();
    let (daemon, _stop) = start(&sandbox, TABLE);
    let taken = loop {
        if let Some(taken) = TAKEN.lock().take() {
            break taken;
        }
        sleep(Duration::from_millis(10)).await;
    };
    let (client, unthrottled, recorder) = taken;
    let node = |name: &str| EventObject::lease("default", name, "");
    write(&client, "a").await.expect("it leads");
    write(&unthrottled, "b").await.expect("it leads");
    recorder.record(node("a"), EventType::Normal, "InTime", "what happened");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events(&sandbox, "InTime").await.len(), 1);

    let leases: Api<Lease> = Api::namespaced(sandbox.client(), "kube-system");
    let other = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}});
    leases
        .patch("cloud-controller-manager", &PatchParams::default(), &Patch::Merge(other))
        .await
        .expect("taken from it");
    // Writes like a task that does not know yet that the term is lost. The event is recorded while the event
    // writer still runs.
    let mut written = 0;
    while write(&client, &format!("c{written}")).await.is_ok() {
        written += 1;
        assert!(written < 2_000, "nothing ends its writes");
        sleep(Duration::from_millis(10)).await;
    }
    recorder.record(node("a"), EventType::Normal, "TooLate", "what happened");
    daemon.await.expect("no panic").expect_err("the term is lost");
    for client in [&client, &unthrottled] {
        let error = write(client, "too-late").await.expect_err("the term is over");
        assert!(format!("{error:?}").contains("NotLeading"), "{error:?}");
    }
    Api::<Namespace>::all(client).list(&ListParams::default()).await.expect("reads go on");
    assert!(events(&sandbox, "TooLate").await.is_empty());
    let messages = events(&sandbox, "LeaderElection").await;
    let messages = messages.into_iter().filter_map(|event| event.message).collect::<Vec<_>>();
    assert!(messages.iter().any(|message| message.ends_with("stopped leading")), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn events_of_the_last_moment_arrive_before_the_lease_is_given_back() {
    const TABLE: &[ControllerDescriptor] = &[controller(|context| {
        Ok(Box::new(|stop, _| {
            Box::pin(async move {
                stop.cancelled().await;
                for number in 0..100 {
                    let object = EventObject::lease("default", &format!("lease-{number}"), "");
                    context.events.record(object, EventType::Normal, "LastWords", "what happened");
                }
                Ok(())
            })
        }))
    })];
    let sandbox = Sandbox::new();
    let (daemon, stop) = start(&sandbox, TABLE);
    sleep(Duration::from_secs(5)).await;
    stop.cancel();
    daemon.await.expect("no panic").expect("a graceful end");
    assert_eq!(events(&sandbox, "LastWords").await.len(), 100);
    assert_eq!(holder(&sandbox).await, "");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_given_back_while_something_of_the_leader_goes_on() {
    const GOES_ON: &[ControllerDescriptor] = &[controller(|_| {
        Ok(Box::new(|stop, _| {
            Box::pin(async move {
                stop.cancelled().await;
                Err(Error::new(ErrorKind::Unavailable, "an address stays"))
            })
        }))
    })];
    const PANICS: &[ControllerDescriptor] = &[controller(|_| {
        Ok(Box::new(|stop, _| {
            Box::pin(async move {
                stop.cancelled().await;
                assert!(!stop.is_cancelled(), "as this test wants it");
                Ok(())
            })
        }))
    })];
    for table in [GOES_ON, PANICS] {
        let sandbox = Sandbox::new();
        let (daemon, stop) = start(&sandbox, table);
        sleep(Duration::from_secs(5)).await;
        stop.cancel();
        daemon.await.expect("no panic").expect("a graceful end");
        assert_ne!(holder(&sandbox).await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_the_lifecycle_hold_the_leases_of_cluster_apis_managers_without_any_provider() {
    let sandbox = Sandbox::new();
    Api::<Namespace>::all(sandbox.client())
        .create(&PostParams::default(), &namespace("capi-system"))
        .await
        .expect("created");
    let leases: Api<Lease> = Api::namespaced(sandbox.client(), "capi-system");
    let lease = |holder: &str| -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "controller-leader-election-capi"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600},
        }))
        .expect("a Lease")
    };
    leases.create(&PostParams::default(), &lease("go_1")).await.expect("created");
    let flags = parse(["ccm", "--controllers=lifecycle"]).expect("good flags");
    assert!(flags.faults().is_empty());
    let parts = Parts::without_provider(Clients::same(&sandbox.client())).expect("parts");
    let (health, debug_state, stop) =
        (parts.health.clone(), parts.debug_state.clone(), CancellationToken::new());
    let daemon = {
        let stop = stop.clone();
        tokio::spawn(async move { Box::pin(run_table(CONTROLLERS, &flags, parts, stop)).await })
    };
    let check = |name: &str| {
        let all = health.all();
        all.into_iter().find(|(known, ..)| known == name).map(|(.., check)| check())
    };
    sleep(Duration::from_secs(60)).await;
    assert_eq!(check("lifecycle-core-lease"), Some(Err("held by go_1".to_owned())));
    assert_eq!(check("lifecycle-bootstrap-lease"), Some(Ok(())), "each part by itself");
    assert_eq!(debug_state.ask().await["lifecycle-core-lease"]["state"], "held by go_1");
    let own: Api<Lease> = Api::namespaced(sandbox.client(), "kube-system");
    let held = own.get("kubeadm-bootstrap-manager-leader-election-capi").await.expect("a lease");
    assert!(held.spec.and_then(|spec| spec.holder_identity).is_some_and(|holder| !holder.is_empty()));
    let released = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    leases
        .patch("controller-leader-election-capi", &PatchParams::default(), &Patch::Merge(released))
        .await
        .expect("released");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(check("lifecycle-core-lease"), Some(Ok(())));
    stop.cancel();
    daemon.await.expect("no panic").expect("a graceful end");
    for (api, name) in [
        (&leases, "controller-leader-election-capi"),
        (&own, "kubeadm-bootstrap-manager-leader-election-capi"),
        (&own, "cloud-controller-manager"),
    ] {
        let lease = api.get(name).await.expect("a lease");
        assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some(""), "{name}");
    }
}

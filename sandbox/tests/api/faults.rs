//! Injected faults, and the log of requests.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Error, Resource,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::Status,
    runtime::{
        events::{EventType, Recorder, Reporter},
        watcher,
    },
};
use sandbox::{Action, Fault, Matcher, Sandbox, kubelet};
use serde_json::json;
use tokio::time::Instant;

async fn with_node() -> (Sandbox, Api<Node>) {
    let sandbox = Sandbox::new();
    let client = sandbox.client();
    kubelet::register(&client, &kubelet::node("n", "u")).await.unwrap();
    sandbox.reset_requests();
    (sandbox, Api::all(client))
}

fn status(error: Error) -> Status {
    match error {
        Error::Api(status) => *status,
        other => panic!("no API error: {other}"),
    }
}

#[tokio::test]
async fn every_error_looks_like_the_real_one() {
    let (sandbox, nodes) = with_node().await;
    for (action, code, reason) in [
        (Action::Conflict, 409, "Conflict"),
        (Action::TooManyRequests(7), 429, "TooManyRequests"),
        (Action::InternalError, 500, "InternalError"),
        (Action::ServiceUnavailable, 503, "ServiceUnavailable"),
        (Action::Gone, 410, "Expired"),
    ] {
        sandbox
            .faults()
            .inject(Fault::new(Matcher::any().verb("get").resource("nodes").name("n"), action).times(1));
        let status = status(nodes.get("n").await.unwrap_err());
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
        if code == 429 {
            assert_eq!(status.details.unwrap().retry_after_seconds, 7);
        }
        nodes.get("n").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn delays_resets_and_lost_answers() {
    let (sandbox, nodes) = with_node().await;
    let faults = sandbox.faults();
    faults.inject(Fault::new(Matcher::any(), Action::Delay(Duration::from_secs(3600))).times(1));
    let start = Instant::now();
    nodes.get("n").await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(3600));

    let label = |n: &str| Patch::Merge(json!({"metadata": {"labels": {"x": n}}}));
    let written = async || nodes.get("n").await.unwrap().metadata.labels.unwrap().remove("x");
    faults.inject(Fault::new(Matcher::any().verb("patch"), Action::ResetConnection).times(1));
    nodes.patch("n", &PatchParams::default(), &label("1")).await.unwrap_err();
    assert_eq!(written().await, None);
    faults.inject(Fault::new(Matcher::any().verb("patch"), Action::LoseResponse).times(1));
    nodes.patch("n", &PatchParams::default(), &label("2")).await.unwrap_err();
    assert_eq!(written().await.as_deref(), Some("2"));
}

#[tokio::test]
async fn probability_and_matchers() {
    let (sandbox, nodes) = with_node().await;
    let faults = sandbox.faults();
    faults.inject(Fault::new(Matcher::any().subresource("status"), Action::InternalError));
    nodes.get("n").await.unwrap();
    nodes.get_status("n").await.unwrap_err();
    faults.clear();
    nodes.get_status("n").await.unwrap();
    faults.inject(Fault::new(Matcher::any(), Action::InternalError).probability(0.5));
    let mut failed = 0;
    for _ in 0..200 {
        failed += u32::from(nodes.get("n").await.is_err());
    }
    assert!((60..140).contains(&failed), "{failed} of 200 failed");
}

#[tokio::test]
async fn requests_are_counted() {
    let (sandbox, nodes) = with_node().await;
    let client = sandbox.client();
    kubelet::heartbeat(&client, "n", true).await.unwrap();
    kubelet::renew_lease(&client, "n").await.unwrap();
    let count = |verb: &str, resource: &str, subresource: &str| {
        sandbox.requests().get(&(verb.into(), resource.into(), subresource.into())).copied().unwrap_or(0)
    };
    assert_eq!((count("get", "nodes", ""), count("patch", "nodes", "status")), (1, 1));
    assert_eq!(count("create", "leases", ""), 1);
    let patches = sandbox.requests_matching(&Matcher::any().verb("patch").name("n"));
    assert_eq!((patches.len(), patches[0].subresource.as_str()), (1, "status"));
    sandbox.reset_requests();
    assert!(sandbox.requests().is_empty());
    nodes.list(&ListParams::default()).await.unwrap();
    assert_eq!(count("list", "nodes", ""), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_and_expired_watches() {
    let (sandbox, nodes) = with_node().await;
    let watch = nodes.watch(&WatchParams::default(), "0").await.unwrap();
    pin_mut!(watch);
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    sandbox.faults().drop_watches();
    // kube treats a broken connection as the end of the watch
    assert!(watch.try_next().await.unwrap().is_none());

    let version = nodes.get("n").await.unwrap().metadata.resource_version.unwrap();
    let open = nodes.watch(&WatchParams::default(), &version).await.unwrap();
    pin_mut!(open);
    sandbox.faults().expire();
    kubelet::heartbeat(&sandbox.client(), "n", true).await.unwrap();
    assert!(matches!(open.try_next().await.unwrap(), Some(WatchEvent::Modified(_))), "it had missed nothing");
    let watch = nodes.watch(&WatchParams::default(), &version).await.unwrap();
    pin_mut!(watch);
    match watch.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        }
        other => panic!("{other:?}"),
    }
}

/// The watcher that controllers use recovers from all faults, with lists and with streaming lists.
#[tokio::test(start_paused = true)]
async fn a_watcher_recovers() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (sandbox, nodes) = with_node().await;
        let stream = watcher(nodes.clone(), config);
        pin_mut!(stream);
        let mut seen = Vec::new();
        let change = async |n: u32| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"n": n.to_string()}}}));
            nodes.patch("n", &PatchParams::default(), &patch).await.unwrap();
        };
        for n in 1..=3 {
            change(n).await;
            loop {
                let label = |node: Node| node.metadata.labels.unwrap_or_default().remove("n");
                let wanted = Some(n.to_string());
                match stream.next().await.unwrap() {
                    Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node))
                        if label(node.clone()) == wanted =>
                    {
                        break;
                    }
                    Ok(event) => seen.push(format!("{event:?}").chars().take(8).collect::<String>()),
                    Err(error) => seen.push(error.to_string()),
                }
            }
            if n == 1 {
                sandbox.faults().drop_watches();
            } else {
                sandbox.faults().expire();
                sandbox.faults().drop_watches();
                sandbox
                    .faults()
                    .inject(Fault::new(Matcher::any().verb("list"), Action::TooManyRequests(1)).times(1));
            }
        }
    }
}

/// Events that kube's recorder writes as `events.k8s.io/v1` are visible as the core v1 Events that `kubectl
/// describe` reads.
#[tokio::test]
async fn recorded_events() {
    let (sandbox, nodes) = with_node().await;
    let client = sandbox.client();
    let recorder = Recorder::new(client.clone(), Reporter { controller: "test/c".into(), instance: None });
    let node = nodes.get("n").await.unwrap();
    for _ in 0..2 {
        let event = kube::runtime::events::Event {
            type_: EventType::Normal,
            reason: "Synced".into(),
            note: Some("Node synced successfully".into()),
            action: "Sync".into(),
            secondary: None,
        };
        recorder.publish(&event, &node.object_ref(&())).await.unwrap();
    }
    let events: Api<Event> = Api::default_namespaced(client);
    let about = ListParams::default().fields("involvedObject.kind=Node,involvedObject.name=n");
    let found = events.list(&about).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message.as_deref(), Some("Node synced successfully"));
    assert!(found[0].series.is_some());
    events.create(&PostParams::default(), &Event::default()).await.unwrap_err();
}

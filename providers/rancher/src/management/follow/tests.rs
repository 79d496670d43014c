use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use cloudprovider::{Error, FactoryInput};
use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::{Event as LogEvent, Level, Metadata, Subscriber, span};

use super::super::testing::{GROUPS, NO_GROUPS, RESOURCES, serving};
use super::*;
use crate::config::{AddressRules, Config, Environment};

/// What a server answers.
type Resolution = BoxFuture<'static, Result<(u16, String)>>;

fn at_once(status: u16, body: impl Into<String>) -> Resolution {
    let answer = (status, body.into());
    Box::pin(async { Ok(answer) })
}

fn refused() -> Resolution {
    Box::pin(async { Err(Error::new(ErrorKind::PermissionDenied, "the API key may not do this (403)")) })
}

/// A server with one Machine, whose watches stay open. `answer` may answer a path itself.
fn server(answer: impl Fn(&str) -> Option<Resolution> + Send + 'static) -> kube::Client {
    serving(move |path| {
        let list = |kind: &str, items: &Value| json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        if let Some(answer) = answer(path) {
            return answer;
        }
        match path {
            "/apis/cluster.x-k8s.io" => at_once(200, r#"{"versions":[{"version":"v1beta2"}]}"#),
            "/apis" => at_once(200, GROUPS),
            "/apis/rke.cattle.io/v1" => at_once(200, RESOURCES),
            _ if path.contains("watch=true") => Box::pin(pending()),
            _ if path.contains("/machines?") => {
                let machine = json!({
                    "metadata": {"name": "custom-1", "namespace": "fleet-default", "uid": "u-1", "resourceVersion": "1"},
                    "spec": {"clusterName": "prod"},
                });
                at_once(200, list("Machine", &json!([machine])).to_string())
            }
            _ => at_once(200, list("Other", &json!([])).to_string()),
        }
    })
}

/// A server below whose `/v3` nobody answers.
fn source() -> Source {
    let text = "url: http://127.0.0.1:1\ntoken: token-abcde:secret\nclusterID: c-m-abcdefgh\n";
    let config = Config::read(&FactoryInput::new(text), &Environment::default()).expect("a configuration");
    let url = config.server.url.clone();
    Source {
        client: Client::new(&config.server, &format!("{url}/v3")).expect("a client"),
        url,
        config: ManagementConfig {
            cluster: crate::config::ClusterSelector::Id("c-m-abcdefgh".to_owned()),
            namespace: None,
            addresses: AddressRules::default(),
        },
        page_size: 1000,
        refresh_interval: Duration::from_secs(300),
        poll_interval: Duration::from_secs(30),
    }
}

/// How a watch ends, and what is known then.
async fn watched(kubernetes: &kube::Client) -> (Result<()>, Machines) {
    let source = source();
    let machines = Machines::new();
    let cluster = Cluster { id: "c-m-abcdefgh".to_owned(), ..Cluster::default() };
    let (mut followed, mut troubles) = (None, Troubles::default());
    let mut session = Session {
        source: &source,
        machines: &machines,
        kubernetes,
        began: Instant::now(),
        followed: &mut followed,
        troubles: &mut troubles,
    };
    let ended = session.watch(&cluster, "fleet-default", "prod", Origin::default()).await;
    (ended, machines)
}

fn is_listed(machines: &Machines) -> bool {
    machines.state().listed.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_begins_anew_and_nothing_is_forgotten() {
    let gone = r#"{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}"#;
    let event = format!(r#"{{"type":"ERROR","object":{gone}}}"#);
    for (status, body) in [(410, gone.to_owned()), (200, event + "\n"), (410, "<html>".to_owned())] {
        let kubernetes = server(move |path| {
            let (is_watch, body) = (path.contains("/machines?") && path.contains("watch=true"), body.clone());
            is_watch.then(|| -> Resolution {
                Box::pin(async move {
                    // After all listings.
                    sleep(Duration::from_secs(1)).await;
                    Ok((status, body))
                })
            })
        });
        let (ended, machines) = watched(&kubernetes).await;
        ended.expect("no error");
        let state = machines.state();
        assert!(state.staleness.is_none() && state.inventory.get("u-1").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_addresses_all_else_works() {
    for of_watch in [false, true] {
        let kubernetes = server(move |path| {
            let is_it = path.contains("/rkebootstraps?") && path.contains("watch=true") == of_watch;
            is_it.then(refused)
        });
        let (ended, machines) = watched(&kubernetes).await;
        ended.expect("until the next listing is due");
        assert!(is_listed(&machines));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_right_that_is_missing() {
    for (plural, words) in [
        ("machines", "list and watch on machines (cluster.x-k8s.io) in namespace fleet-default"),
        ("custommachines", "list and watch on custommachines (rke.cattle.io) in namespace fleet-default"),
    ] {
        let kubernetes = server(move |path| path.contains(&format!("/{plural}?")).then(refused));
        let (ended, machines) = watched(&kubernetes).await;
        let error = ended.expect_err(plural);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.report().contains(words), "{}", error.report());
        assert!(!is_listed(&machines));
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_discovery_says_that_a_kind_is_missing() {
    for plural in ["custommachines", "rkebootstraps"] {
        let page = move |path: &str| path.contains(&format!("/{plural}?")).then(|| at_once(404, "<html>"));
        let (ended, machines) = watched(&server(page)).await;
        let error = ended.expect_err("a proxy's 404");
        assert!(error.report().contains("an HTML page") && !is_listed(&machines), "{}", error.report());
        let missing = move |path: &str| match path {
            "/apis" => Some(at_once(200, NO_GROUPS)),
            path => page(path),
        };
        let (ended, machines) = watched(&server(missing)).await;
        ended.expect("until the next listing is due");
        assert!(is_listed(&machines));
    }
}

/// The levels of what the log tells of troubles.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Levels {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target().ends_with("troubles") && *about.level() <= Level::INFO
    }

    fn event(&self, event: &LogEvent<'_>) {
        self.0.lock().push(*event.metadata().level());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_nodes_they_are_listed_once_a_round_and_the_log_says_so_once() {
    let (may_watch, listings) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (allowed, counted) = (may_watch.clone(), listings.clone());
    let kubernetes = server(move |path| {
        if !path.contains("/nodes?") {
            return None;
        }
        if path.contains("watch=true") {
            return (!allowed.load(Relaxed)).then(refused);
        }
        counted.fetch_add(1, Relaxed);
        None
    });
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let (source, machines) = (source(), Machines::new());
    let cluster = Cluster { id: "c-abcde".to_owned(), ..Cluster::default() };
    let (mut followed, mut troubles) = (None, Troubles::default());
    for (round, is_watched, told) in [
        (1, false, &[Level::WARN][..]),
        (2, false, &[Level::WARN]),
        (3, true, &[Level::WARN, Level::INFO]),
        (4, true, &[Level::WARN, Level::INFO]),
    ] {
        may_watch.store(is_watched, Relaxed);
        let began = Instant::now();
        let mut session = Session {
            source: &source,
            machines: &machines,
            kubernetes: &kubernetes,
            began,
            followed: &mut followed,
            troubles: &mut troubles,
        };
        // A listing by `/v3` would fail.
        session.mirror(&cluster).await.expect("until the next listing is due");
        assert_eq!(listings.load(Relaxed), round, "a listing in each round");
        let interval = if is_watched { source.refresh_interval } else { source.poll_interval };
        assert!(began.elapsed() >= interval && began.elapsed() < 2 * interval, "round {round}");
        assert_eq!(*levels.0.lock(), told, "round {round}");
    }
    assert!(is_listed(&machines));
}

//! Watches that miss nothing.
//!
//! kube's watcher lists again only if an open watch reports that its version is too old. It continues after
//! all other errors. If it cannot read an event, the next event advances the version, and the content of the
//! first event is lost. If a proxy answers the start of a watch with 410, the watcher requests the same
//! version for ever. As in client-go, the watch here starts again with a list in such cases.

mod cuts;
mod pauses;

use std::{io, time::Duration};

use futures::{Stream, StreamExt as _, stream::unfold};
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use pauses::BACKOFF;

/// After a watch has worked for this long, the next failure counts as the first one. kube's own backoff
/// starts again with each list that is tried, so failing lists would be repeated every second.
const WELL: Duration = Duration::from_secs(10);

/// The client for the `api` of [`watch`].
pub fn client(client: Client) -> Client {
    cuts::with_cuts_marked(client)
}

/// The events of `api`, whose client must come from [`client`]: first a list, then the changes, and another
/// list whenever an event may have been missed. The stream never ends. It yields an error when the error
/// happens, and continues after a pause of a few seconds at most.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Send + Sync,
{
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let watching = Watching { events: begin(), failures: 0, works_since: None, is_failing: false };
    unfold((watching, begin), |(mut watching, begin)| async move {
        if watching.is_failing {
            sleep(BACKOFF.after(watching.failures)).await;
        }
        let event = match watching.events.next().await {
            Some(event) => event,
            // kube's watcher does not end by itself
            None => {
                watching.events = begin();
                watching.events.next().await?
            }
        };
        match &event {
            Ok(event) => watching.works(event),
            Err(error) => {
                watching.fails();
                if may_have_missed_something(error) {
                    watching.events = begin();
                }
            }
        }
        Some((event, (watching, begin)))
    })
}

struct Watching<S> {
    events: S,
    /// The number of consecutive failures.
    failures: u32,
    works_since: Option<Instant>,
    /// Whether the last event was an error.
    is_failing: bool,
}

impl<S> Watching<S> {
    fn works<K>(&mut self, event: &watcher::Event<K>) {
        self.is_failing = false;
        // At `Init`, nothing has been requested yet.
        if !matches!(event, watcher::Event::Init) {
            self.works_since.get_or_insert_with(Instant::now);
        }
    }

    fn fails(&mut self) {
        self.is_failing = true;
        if self.works_since.take().is_some_and(|since| since.elapsed() >= WELL) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
    }
}

/// Whether continuing after this error would miss an event or fail for ever.
fn may_have_missed_something(error: &watcher::Error) -> bool {
    use kube::Error::{Api, LinesCodecMaxLineLengthExceeded, ReadEvents, SerdeError};
    match error {
        // The API server answers but does not serve this version. For refusals that do not concern the
        // version, the same request is repeated.
        watcher::Error::WatchStartFailed(Api(status)) => {
            !matches!(status.code, 401 | 403 | 429 | 500 | 502 | 503)
        }
        watcher::Error::WatchError(_)
        | watcher::Error::WatchFailed(Api(_) | SerdeError(_) | LinesCodecMaxLineLengthExceeded) => true,
        // A broken connection: the watch continues from the last version.
        watcher::Error::WatchFailed(ReadEvents(error)) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures::pin_mut;
    use k8s_openapi::api::core::v1::Node;
    use kube::api::{Patch, PatchParams};
    use sandbox::{Action, Fault, Matcher, Sandbox, Spoil, kubelet};
    use serde_json::json;

    use super::*;
    use crate::{
        api_client::{ApiServer, ClientMetrics, ClientOptions},
        metrics::MetricSet as _,
    };

    async fn labelled(client: &Client, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"n": value}}}));
        Api::<Node>::all(client.clone()).patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Follows until the labels of `n1` and `n2` are `wanted`. Returns the number of errors and of lists.
    async fn follow<S>(events: &mut S, wanted: [&str; 2]) -> (usize, usize)
    where
        S: Stream<Item = watcher::Result<watcher::Event<Node>>> + Unpin,
    {
        let (mut errors, mut lists) = (0, 0);
        let mut missing: BTreeSet<(String, String)> = [("n1", wanted[0]), ("n2", wanted[1])]
            .map(|(name, label)| (name.to_owned(), label.to_owned()))
            .into();
        let seen = async {
            while !missing.is_empty() {
                match events.next().await.expect("it never ends") {
                    Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                        let label = node.metadata.labels.unwrap_or_default().remove("n").unwrap_or_default();
                        missing.remove(&(node.metadata.name.unwrap_or_default(), label));
                    }
                    Ok(watcher::Event::InitDone) => lists += 1,
                    Ok(_) => {}
                    Err(_) => errors += 1,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("all is seen");
        (errors, lists)
    }

    async fn sandbox() -> (Sandbox, Client) {
        let sandbox = Sandbox::new();
        let client = super::client(sandbox.client());
        for name in ["n1", "n2"] {
            kubelet::register(&client, &kubelet::node(name, name)).await.expect("registered");
            labelled(&client, name, "0").await;
        }
        (sandbox, client)
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_unreadable_event_said_is_listed() {
        for spoil in [Spoil::Kind, Spoil::Cut] {
            listed_after(spoil).await;
        }
    }

    async fn listed_after(spoil: Spoil) {
        let (sandbox, client) = sandbox().await;
        let events = watch(Api::<Node>::all(client.clone()), watcher::Config::default()).boxed();
        pin_mut!(events);
        follow(&mut events, ["0", "0"]).await;
        // Wait until the watch is open, so that the events arrive through it.
        assert!(tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_ok(), "the list's end");
        assert!(tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_err(), "it waits");
        sandbox.faults().spoil_events(spoil, 1);
        labelled(&client, "n1", "1").await;
        labelled(&client, "n2", "1").await;
        let (errors, _) = follow(&mut events, ["1", "1"]).await;
        assert_eq!(errors, 1, "{spoil:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_too_old_for_whoever_is_in_between_ends_in_a_list() {
        let gone = [
            Fault::new(Matcher::any().verb("watch"), Action::Gone),
            Fault::new(Matcher::any().verb("watch"), Action::ErrorEvent(410)),
            Fault::new(Matcher::any().verb("watch"), Action::ErrorEvent(500)),
        ];
        for fault in gone {
            let (sandbox, client) = sandbox().await;
            let what = format!("{fault:?}");
            let events = watch(Api::<Node>::all(client.clone()), watcher::Config::default()).boxed();
            pin_mut!(events);
            sandbox.faults().inject(fault.times(2));
            follow(&mut events, ["0", "0"]).await;
            labelled(&client, "n1", "1").await;
            labelled(&client, "n2", "1").await;
            let (errors, lists) = follow(&mut events, ["1", "1"]).await;
            let asked = sandbox.requests_matching(&Matcher::any().verb("list").resource("nodes")).len();
            assert!(
                errors >= 1 && lists >= 1 && asked >= 2,
                "{what}: {errors} errors, {lists} lists, {asked} asked"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_is_some_seconds() {
        back_after(&["watch", "list"], || Action::ServiceUnavailable, Sandbox::client).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_asks_for_patience_makes_no_pause_longer() {
        let api_server = |sandbox: &Sandbox| {
            let metrics = ClientMetrics::unregistered().expect("metrics");
            ApiServer::over(sandbox.client(), ClientOptions::default(), metrics)
        };
        let too_many = || Action::TooManyRequests(1);
        back_after(&["watch", "list"], too_many, |sandbox| api_server(sandbox).informer_client("informers"))
            .await;
        // Other watches may be open as well.
        back_after(&["watch"], too_many, |sandbox| api_server(sandbox).client("main")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_come_with_pauses() {
        let (sandbox, client) = sandbox().await;
        let asked = Arc::new(AtomicUsize::new(0));
        let (through, count) = (client.clone(), Arc::clone(&asked));
        let ends = move |request: http::Request<kube::client::Body>| {
            let (through, count) = (through.clone(), Arc::clone(&count));
            async move {
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
                if !is_watch {
                    return through.send(request).await;
                }
                if count.fetch_add(1, Ordering::Relaxed) > 1_000 {
                    std::future::pending::<()>().await;
                }
                Ok(http::Response::new(kube::client::Body::empty()))
            }
        };
        let cut = super::client(Client::new(tower::service_fn(ends), "default"));
        let events = watch(Api::<Node>::all(cut), watcher::Config::default()).boxed();
        pin_mut!(events);
        follow(&mut events, ["0", "0"]).await;
        let rest = async {
            loop {
                drop(events.next().await);
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), rest).await.is_err());
        let watches = asked.load(Ordering::Relaxed);
        assert!((10..25).contains(&watches), "{watches} watches in a minute");
        let lists = sandbox.requests_matching(&Matcher::any().verb("list").resource("nodes")).len();
        assert_eq!(lists, 1, "a watch that ends as it should is no reason to list everything");
    }

    /// These verbs are refused for ten minutes. After that, the watch of this client sees everything that
    /// happened within seconds.
    async fn back_after(
        verbs: &[&'static str],
        action: impl Fn() -> Action,
        client_of: impl Fn(&Sandbox) -> Client,
    ) {
        let (sandbox, client) = sandbox().await;
        let watches = super::client(client_of(&sandbox));
        let events = watch(Api::<Node>::all(watches), watcher::Config::default()).boxed();
        pin_mut!(events);
        follow(&mut events, ["0", "0"]).await;
        for verb in verbs {
            sandbox.faults().inject(Fault::new(Matcher::any().verb(verb), action()));
        }
        sandbox.faults().drop_watches();
        let outage = async {
            loop {
                drop(events.next().await);
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(600), outage).await.is_err());
        sandbox.faults().clear();
        labelled(&client, "n1", "1").await;
        labelled(&client, "n2", "1").await;
        let back = Instant::now();
        follow(&mut events, ["1", "1"]).await;
        assert!(back.elapsed() <= Duration::from_secs(6), "{:?}", back.elapsed());
        // A refusal is no reason to list again.
        let lists = sandbox.requests_matching(&Matcher::any().verb("list").resource("nodes")).len();
        assert_eq!(lists, 1);
    }
}

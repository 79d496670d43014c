//! The session with one workload cluster: its kubeconfig, its Nodes, its probes.

use std::{pin::Pin, time::Duration};

use cloudprovider::Backoff;
use cluster_api::names::secrets;
use component::{
    api_client::describe,
    watching::{self, watch},
};
use futures::{Stream, StreamExt as _, future::BoxFuture};
use http::Request;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Access, WorkloadCluster,
    entry::Entry,
    failure::ConnectionFailure,
    limits::{Limited, PROBE_PATH},
    node::WireNode,
    nodes::{Change, Listing},
    shared::Shared,
    words::words,
};

/// How many Nodes one page of the list has. A page is in memory as it comes, with 15 kB or more for each Node.
const PAGE: u32 = 100;
/// How long the list of all Nodes may take.
const LIST: Duration = Duration::from_secs(60);
/// How long the answer to a probe may take.
const PROBE: Duration = Duration::from_secs(5);
/// How long the management cluster may take to give a Secret, and the pause before it is asked again.
const SECRET: Duration = Duration::from_secs(10);
/// Between two looks at a Secret.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Between two attempts to connect. The longest wait is upstream's `ConnectionCreationRetryInterval`: a control plane that
/// comes up is not kept waiting for longer.
const RECONNECT: Backoff = Backoff { first: Duration::from_secs(10), most: Duration::from_secs(30) };

/// Why a session ended.
enum Ended {
    /// The kubeconfig is another one.
    NewKubeconfig,
    /// There is no connection, for this reason.
    Lost(ConnectionFailure),
}

/// Why there is no kubeconfig.
enum NoKubeconfig {
    /// The Secret or its key does not exist.
    Missing(String),
    /// The management cluster did not say.
    Unread(ConnectionFailure),
}

/// Keeps the connection to one workload cluster, for ever.
pub(super) async fn follow(shared: &Shared, entry: &Entry) {
    let mut failures = 0;
    loop {
        let ended = match kubeconfig(shared, entry).await {
            Ok(kubeconfig) => connected(shared, entry, &kubeconfig).await,
            Err(NoKubeconfig::Missing(why)) => Ended::Lost(why.into()),
            Err(NoKubeconfig::Unread(why)) => Ended::Lost(why),
        };
        match ended {
            // The old connection serves until the new one does. Many changes of a Secret cost little.
            Ended::NewKubeconfig => {
                failures = 0;
                sleep(DEBOUNCE).await;
            }
            Ended::Lost(why) => {
                let held = entry.get().is_ok();
                if !held {
                    entry.health(|health| health.failed(Instant::now()));
                }
                failures = if held { 1 } else { failures + 1 };
                lost(shared, entry, why);
                sleep(DEBOUNCE).await;
                tokio::select! {
                    () = sleep(RECONNECT.after(failures)) => {}
                    () = entry.secret_changed.notified() => failures = 0,
                }
            }
        }
    }
}

/// Records that there is no connection, and tells those who depend on it.
pub(super) fn lost(shared: &Shared, entry: &Entry, why: ConnectionFailure) {
    let reason = words(&why.reason);
    if entry.not_connected(why) {
        tracing::info!(cluster = %entry.cluster, reason, "no connection to the workload cluster");
        shared.subscribers.everything(&entry.cluster);
    }
}

/// The value of the Secret.
async fn kubeconfig(shared: &Shared, entry: &Entry) -> Result<Vec<u8>, NoKubeconfig> {
    let name = entry.cluster.kubeconfig_secret();
    let api: Api<Secret> = Api::namespaced(shared.management.clone(), &entry.cluster.namespace);
    let unread = |why: String| {
        let shown = format!("Secret {name} cannot be read");
        NoKubeconfig::Unread(ConnectionFailure { reason: format!("{shown}: {why}"), shown })
    };
    let secret = match timeout(SECRET, api.get_opt(&name)).await {
        Ok(Ok(Some(secret))) => secret,
        Ok(Ok(None)) => return Err(NoKubeconfig::Missing(format!("Secret {name} does not exist"))),
        Ok(Err(error)) => return Err(unread(describe(&error))),
        Err(_) => return Err(unread(format!("no answer within {SECRET:?}"))),
    };
    let value = secret.data.and_then(|mut data| data.remove(secrets::VALUE_KEY));
    let missing = || NoKubeconfig::Missing(format!("Secret {name} has no key {}", secrets::VALUE_KEY));
    value.map(|ByteString(value)| value).ok_or_else(missing)
}

/// One connection with one kubeconfig.
async fn connected(shared: &Shared, entry: &Entry, kubeconfig: &[u8]) -> Ended {
    let name = entry.cluster.kubeconfig_secret();
    let access = match Access::parse(kubeconfig) {
        Ok(access) => access,
        Err(error) => {
            return Ended::Lost(format!("the kubeconfig in Secret {name} is not used: {error}").into());
        }
    };
    let client = match shared.connector.connect(&entry.cluster, &access) {
        Ok(client) => {
            let client = shared.fence.guard_workload(&entry.cluster.namespace, client);
            Limited::client(client, shared.fence.clone(), entry.pace.clone())
        }
        Err(why) => {
            return Ended::Lost(format!("the kubeconfig in Secret {name} is not used: {why}").into());
        }
    };
    // The first contact has the clearest errors.
    match probe(client.clone()).await {
        Probed::Answered => {}
        Probed::Refused(why) | Probed::Failed(why) => return Ended::Lost(why),
    }
    let api: Api<WireNode> = Api::all(watching::client(client.clone()));
    let events = watch(api, watcher::Config::default().page_size(PAGE)).boxed();
    // The watch begins with a list.
    let listing = Some((Listing::default(), Instant::now() + LIST));
    let mut session = Session { shared, entry, client, events, listing, trouble: None, last: Instant::now() };
    session.run(kubeconfig).await
}

struct Session<'a, S> {
    shared: &'a Shared,
    entry: &'a Entry,
    client: Client,
    events: S,
    /// The list that is coming in, and until when it has to be whole.
    listing: Option<(Listing, Instant)>,
    /// The last error of the watch, while it fails.
    trouble: Option<ConnectionFailure>,
    /// The last event or answer.
    last: Instant,
}

impl<S: Stream<Item = watcher::Result<Event<WireNode>>> + Unpin> Session<'_, S> {
    async fn run(&mut self, kubeconfig: &[u8]) -> Ended {
        let mut probing: Option<BoxFuture<'static, Probed>> = None;
        let mut due = (self.last, self.next_probe());
        let mut secret_due = None;
        loop {
            let list_end = self.listing.as_ref().map(|(_, end)| *end);
            tokio::select! {
                // Many events must not keep the others from their turn. None of those comes often.
                biased;
                () = until(secret_due) => match self::kubeconfig(self.shared, self.entry).await {
                    Ok(now) if now == kubeconfig => secret_due = None,
                    Ok(_) => return Ended::NewKubeconfig,
                    Err(NoKubeconfig::Missing(why)) => return Ended::Lost(why.into()),
                    Err(NoKubeconfig::Unread(_)) => secret_due = Some(Instant::now() + SECRET),
                },
                () = self.entry.secret_changed.notified(), if secret_due.is_none() => {
                    secret_due = Some(Instant::now() + DEBOUNCE);
                }
                () = until(list_end) => {
                    let late = format!("Nodes could not be listed within {LIST:?}");
                    return Ended::Lost(match self.trouble.take() {
                        Some(why) => why.after(&late),
                        None => late.into(),
                    });
                }
                probed = answer(&mut probing) => {
                    probing = None;
                    self.last = Instant::now();
                    match probed {
                        Probed::Answered => self.entry.health(|health| health.succeeded(self.last)),
                        Probed::Refused(why) => return Ended::Lost(why),
                        Probed::Failed(why) => if self.entry.health(|health| health.failed(self.last)) {
                            return Ended::Lost(why);
                        },
                    }
                    due = (self.last, self.next_probe());
                }
                () = sleep_until(due.1), if probing.is_none() => {
                    if due.0 == self.last {
                        probing = Some(Box::pin(probe(self.client.clone())));
                    } else {
                        due = (self.last, self.next_probe());
                    }
                }
                event = self.events.next() => if let Err(why) = self.event(event) {
                    return Ended::Lost(why);
                },
            }
        }
    }

    fn next_probe(&self) -> Instant {
        self.entry.health(|health| health.next_probe(self.last))
    }

    /// Takes an event of the watch.
    fn event(&mut self, event: Option<watcher::Result<Event<WireNode>>>) -> Result<(), ConnectionFailure> {
        let event = match event {
            Some(Ok(event)) => event,
            // A watch that is lost is resumed; whether the cluster is away, the probes say.
            Some(Err(error)) if self.entry.get().is_ok() => {
                let error = of_watch(&error);
                tracing::debug!(cluster = %self.entry.cluster, error = %words(&error.reason), "watch of Nodes failed, trying again");
                self.trouble = Some(error);
                return Ok(());
            }
            Some(Err(error)) => return Err(of_watch(&error).after("Nodes cannot be listed")),
            None => return Err("the watch of Nodes ended".into()),
        };
        if !matches!(event, Event::Init) {
            self.last = Instant::now();
            self.trouble = None;
            self.entry.health(|health| health.succeeded(self.last));
        }
        let nodes = &self.entry.nodes;
        let too_many = |error: super::nodes::TooMany| ConnectionFailure::from(error.to_string());
        match event {
            Event::Init => {
                let end = self.listing.take().map_or_else(|| Instant::now() + LIST, |(_, end)| end);
                self.listing = Some((Listing::default(), end));
            }
            Event::InitApply(node) => {
                if let (Some(node), Some((listing, _))) = (node.read(), &mut self.listing) {
                    listing.add(node).map_err(too_many)?;
                }
            }
            Event::InitDone => {
                let listing = self.listing.take().map(|(listing, _)| listing).unwrap_or_default();
                let changes = nodes.replace(listing);
                self.established();
                for change in changes {
                    self.tell(&change);
                }
            }
            Event::Apply(node) => {
                if let Some(change) =
                    node.read().map(|node| nodes.apply(node)).transpose().map_err(too_many)?.flatten()
                {
                    self.tell(&change);
                }
            }
            Event::Delete(node) => {
                if let Some(change) = node.read().and_then(|node| nodes.remove(&node.name)) {
                    self.tell(&change);
                }
            }
        }
        Ok(())
    }

    fn established(&self) {
        let Self { shared, entry, client, .. } = self;
        let cluster = WorkloadCluster::new(entry.cluster.clone(), client.clone(), entry.nodes.clone());
        if entry.connected(cluster) {
            tracing::info!(cluster = %entry.cluster, nodes = entry.nodes.len(), "connected to the workload cluster");
            shared.subscribers.everything(&entry.cluster);
        }
    }

    fn tell(&self, (before, after): &Change) {
        let Some(node) = after.as_ref().or(before.as_ref()) else { return };
        let id = |node: &Option<std::sync::Arc<super::Node>>| {
            node.as_ref().and_then(|node| node.provider_id.clone())
        };
        let ids = [id(before), id(after)];
        self.shared.subscribers.node(&self.entry.cluster, &node.name, &ids.each_ref().map(Option::as_deref));
    }
}

/// What a probe showed.
enum Probed {
    /// The API server serves.
    Answered,
    /// It refuses the credentials, which waiting does not mend.
    Refused(ConnectionFailure),
    /// It does not answer, or is not ready.
    Failed(ConnectionFailure),
}

async fn probe(client: Client) -> Probed {
    let Ok(request) = Request::get(PROBE_PATH).body(Vec::new()) else {
        return Probed::Failed("no request could be made".into());
    };
    match timeout(PROBE, client.request_text(request)).await {
        Ok(Ok(_)) => Probed::Answered,
        Ok(Err(kube::Error::Api(status))) => match status.code {
            401 => Probed::Refused("the API server refuses the credentials (401)".into()),
            // It answers, and may not be asked whether it is ready.
            403 | 404 => Probed::Answered,
            code => Probed::Failed(format!("the API server is not ready ({code})").into()),
        },
        Ok(Err(error)) => Probed::Failed(ConnectionFailure::of_request(&error)),
        Err(_) => Probed::Failed(format!("no answer from the API server within {PROBE:?}").into()),
    }
}

async fn answer(probing: &mut Option<BoxFuture<'static, Probed>>) -> Probed {
    match probing {
        Some(probing) => Pin::new(probing).await,
        None => std::future::pending().await,
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The error of the API server, without the watcher's words around it.
fn of_watch(error: &watcher::Error) -> ConnectionFailure {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            ConnectionFailure::of_request(error)
        }
        WatchError(status) => {
            ConnectionFailure::of_answer(format!("{} ({})", status.message, status.code), status.code)
        }
        NoResourceVersion => error.to_string().into(),
    }
}

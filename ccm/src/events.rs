//! Events on Nodes and Leases (`core/v1`, which is what the RBAC rules of a Go CCM allow), written in the background.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    conditions::{api_time, truncated},
    metrics::Metrics,
    nodes::Node,
};

/// Events that wait to be written; more are dropped and counted, since the work must never wait for an event.
const QUEUE_LENGTH: usize = 16_384;

/// Pause after each event, so that events trickle after the patches that matter: 50 a second at most.
const PAUSE: Duration = Duration::from_millis(20);

/// Upstream's spam filter: for each object a burst of 25, then one in 300 s.
const OBJECT_BURST: u32 = 25;
const OBJECT_REFILL: Duration = Duration::from_secs(300);

/// Repeats of an event within this time become a count of the first one.
const SERIES_LIFETIME: Duration = Duration::from_secs(600);

/// What is left in the queue when the daemon stops gets this much time.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Deadline of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Tries of one event before it is dropped.
const TRIES: u32 = 5;

/// Where an event's involved object lives; events on cluster-scoped objects go here, as upstream's do.
const CLUSTER_NAMESPACE: &str = "default";

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Things go as they should.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventObject {
    /// `apiVersion`
    pub api_version: &'static str,
    /// `kind`
    pub kind: &'static str,
    /// `namespace`, empty for cluster-scoped objects.
    pub namespace: String,
    /// `name`
    pub name: String,
    /// `uid`, empty where the object is not known to exist.
    pub uid: String,
}

impl EventObject {
    /// A Node.
    pub fn node(node: &Node) -> Self {
        Self {
            api_version: "v1",
            kind: "Node",
            namespace: String::new(),
            name: node.identity.name.clone(),
            uid: node.identity.uid.clone(),
        }
    }

    /// A Lease.
    pub fn lease(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// The Lease of the daemon, on which upstream reports what concerns the daemon as a whole.
    pub fn daemon() -> Self {
        Self::lease("kube-system", "cloud-controller-manager", "")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Recorded {
    object: EventObject,
    event_type: EventType,
    reason: &'static str,
    message: String,
    component: &'static str,
}

/// Takes events and returns at once; they are written in the background. Cloning shares the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<Recorded>,
    metrics: Metrics,
    component: &'static str,
}

/// Writes the recorded events; [`run`](Self::run) it in a task.
pub struct EventWriter {
    queue: mpsc::Receiver<Recorded>,
    client: Client,
    metrics: Metrics,
    objects: HashMap<EventObject, ObjectBudget>,
    series: HashMap<Recorded, Series>,
}

struct ObjectBudget {
    left: u32,
    refilled: tokio::time::Instant,
}

struct Series {
    name: String,
    count: i32,
    last: tokio::time::Instant,
}

/// A recorder and the writer behind it.
pub fn event_recorder(client: Client, metrics: Metrics) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let recorder =
        EventRecorder { queue: sender, metrics: metrics.clone(), component: "cloud-controller-manager" };
    let writer = EventWriter { queue, client, metrics, objects: HashMap::new(), series: HashMap::new() };
    (recorder, writer)
}

impl EventRecorder {
    /// The same recorder with another `source.component`.
    #[must_use]
    pub fn for_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Records an event. Never waits: with a full queue it is dropped and counted.
    pub fn record(
        &self,
        object: EventObject,
        event_type: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let message = truncated(message.into());
        let event = Recorded { object, event_type, reason, message, component: self.component };
        if self.queue.try_send(event).is_err() {
            self.metrics.events_dropped.with_label_values(&["queue_full"]).inc();
        }
    }
}

impl EventWriter {
    /// Writes events until `stop` is cancelled, and then what is left, for at most two seconds.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut cut_off = None;
        while let Some(Some(event)) = stop.run_until_cancelled(self.queue.recv()).await {
            if stop.run_until_cancelled(self.write(event.clone())).await.is_none() {
                cut_off = Some(event);
                break;
            }
            stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
        }
        let rest = async {
            if let Some(event) = cut_off {
                self.write(event).await;
            }
            while let Ok(event) = self.queue.try_recv() {
                self.write(event).await;
            }
        };
        // Kubernetes waits for us, and an event is not worth much.
        let _ = tokio::time::timeout(LAST_EVENTS, rest).await;
    }

    async fn write(&mut self, event: Recorded) {
        self.forget_old();
        if !self.within_budget(&event.object) {
            self.metrics.events_dropped.with_label_values(&["rate_limited"]).inc();
            return;
        }
        if self.series.get(&event).is_some_and(|series| series.last.elapsed() > SERIES_LIFETIME) {
            self.series.remove(&event);
        }
        let namespace =
            if event.object.namespace.is_empty() { CLUSTER_NAMESPACE } else { &event.object.namespace };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        for attempt in 1..=TRIES {
            let write = async {
                match self.series.get_mut(&event) {
                    Some(series) => repeat(&api, series).await,
                    None => create(&api, namespace, &event).await.map(|name| {
                        let series = Series { name, count: 1, last: tokio::time::Instant::now() };
                        self.series.insert(event.clone(), series);
                    }),
                }
            };
            let Ok(outcome) = tokio::time::timeout(WRITE_TIMEOUT, write).await else { continue };
            match outcome {
                Ok(()) => return,
                // The first one expired meanwhile (events live for an hour): begin anew.
                Err(kube::Error::Api(status))
                    if status.code == 404 && self.series.remove(&event).is_some() => {}
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    tracing::warn!(reason = event.reason, object = event.object.name, error = %status.message, "event refused");
                    break;
                }
                Err(error) => {
                    tracing::debug!(reason = event.reason, object = event.object.name, %error, attempt, "event not written");
                    tokio::time::sleep(Duration::from_secs(1 << attempt.min(3))).await;
                }
            }
        }
        self.metrics.events_dropped.with_label_values(&["failed"]).inc();
    }

    fn within_budget(&mut self, object: &EventObject) -> bool {
        let now = tokio::time::Instant::now();
        let budget =
            self.objects.entry(object.clone()).or_insert(ObjectBudget { left: OBJECT_BURST, refilled: now });
        let refills = now.duration_since(budget.refilled).as_secs() / OBJECT_REFILL.as_secs();
        if refills > 0 {
            let refills = u32::try_from(refills).unwrap_or(OBJECT_BURST);
            budget.left = budget.left.saturating_add(refills).min(OBJECT_BURST);
            budget.refilled = now;
        }
        if budget.left == 0 {
            return false;
        }
        budget.left -= 1;
        true
    }

    /// Keeps the two maps from growing with every Node that ever was.
    fn forget_old(&mut self) {
        const MANY: usize = 4096;
        let now = tokio::time::Instant::now();
        if self.series.len() > MANY {
            self.series.retain(|_, series| now.duration_since(series.last) < SERIES_LIFETIME);
        }
        if self.objects.len() > MANY {
            self.objects.retain(|_, budget| {
                now.duration_since(budget.refilled) < OBJECT_REFILL * (OBJECT_BURST - budget.left)
            });
        }
    }
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

async fn create(api: &Api<Event>, namespace: &str, event: &Recorded) -> kube::Result<String> {
    let now = api_time(Timestamp::now());
    // client-go's form of an event's name: the object and a time that nobody else has.
    let name = format!("{}.{:x}", event.object.name, Timestamp::now().as_nanosecond());
    let body = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": event.object.api_version,
            "kind": event.object.kind,
            "namespace": event.object.namespace,
            "name": event.object.name,
            "uid": event.object.uid,
        },
        "type": event.event_type.as_str(),
        "reason": event.reason,
        "message": event.message,
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }))
    .map_err(kube::Error::SerdeError)?;
    api.create(&PostParams::default(), &body).await.map(|_| name)
}

async fn repeat(api: &Api<Event>, series: &mut Series) -> kube::Result<()> {
    let patch = json!({"count": series.count + 1, "lastTimestamp": api_time(Timestamp::now())});
    api.patch(&series.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    series.count += 1;
    series.last = tokio::time::Instant::now();
    Ok(())
}

//! Events on Nodes and Leases (`core/v1`, which is what the RBAC rules of a Go CCM allow), written in the background.

mod correlate;
mod flush;
mod metrics;
mod writer;

use kube::Client;
use tokio::sync::mpsc;

pub use metrics::EventMetrics;
pub use writer::EventWriter;

use self::flush::Flushes;
use crate::api_text::truncated;

/// Events that wait to be written; more are dropped and counted, since the work must never wait for an event.
const QUEUE_LENGTH: usize = 16_384;

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
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Recorded {
    object: EventObject,
    event_type: EventType,
    reason: &'static str,
    message: String,
    component: &'static str,
}

/// An event, and who writes it.
struct Queued {
    event: Recorded,
    client: Client,
}

/// Takes events and returns at once; they are written in the background. Cloning shares the queue.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Queued>,
    metrics: EventMetrics,
    component: &'static str,
    client: Client,
    daemon: EventObject,
    flushes: Flushes,
}

impl std::fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventRecorder").field("component", &self.component).finish_non_exhaustive()
    }
}

/// A recorder and the writer behind it. `component` is the daemon's name in `source.component`, `client` writes its
/// events, and `daemon` is what events about the daemon itself are on: its Lease, as upstream.
pub fn event_recorder(
    component: &'static str,
    client: Client,
    daemon: EventObject,
    metrics: EventMetrics,
) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let flushes = Flushes::new();
    let writer = EventWriter::new(queue, flushes.clone(), metrics.clone());
    (EventRecorder { queue: sender, metrics, component, client, daemon, flushes }, writer)
}

impl EventRecorder {
    /// The same recorder with another `source.component`, whose events this client writes.
    #[must_use]
    pub fn for_component(&self, component: &'static str, client: Client) -> Self {
        Self { component, client, ..self.clone() }
    }

    /// Waits until all events recorded so far are written or given up, for at most two seconds. For the end of a term:
    /// its events are written with clients that write only while the term lasts.
    pub async fn flush(&self) {
        self.flushes.ask().await;
    }

    /// What an event is about that concerns the daemon as a whole.
    pub fn daemon(&self) -> EventObject {
        self.daemon.clone()
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
        if self.queue.try_send(Queued { event, client: self.client.clone() }).is_err() {
            self.metrics.events_dropped.with_label_values(&["queue_full"]).inc();
        }
    }
}

//! Events on Nodes and Leases, written in the background. They are events of `core/v1`, which the RBAC rules
//! of a Go CCM allow.

mod correlate;
mod flush;
mod metrics;
mod writer;

use std::borrow::Cow;

use kube::Client;
use tokio::sync::mpsc;

pub use metrics::EventMetrics;
pub use writer::EventWriter;

use self::flush::Flushes;
use crate::api_text::truncated;

/// Maximum number of waiting events. Further ones are dropped and counted, since no work may wait for an
/// event.
const QUEUE_LENGTH: usize = 16_384;

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Everything works as it should.
    Normal,
    /// A person should look at this.
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

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventObject {
    /// `apiVersion`
    pub api_version: Cow<'static, str>,
    /// `kind`
    pub kind: &'static str,
    /// `namespace`, empty for cluster-scoped objects.
    pub namespace: String,
    /// `name`
    pub name: String,
    /// `uid`, empty if the object is not known to exist.
    pub uid: String,
}

impl EventObject {
    /// A Lease.
    pub fn lease(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            api_version: "coordination.k8s.io/v1".into(),
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
    reason: Cow<'static, str>,
    message: String,
    component: &'static str,
}

/// An event, with the client that writes it.
struct Queued {
    event: Recorded,
    client: Client,
}

/// Queues events and returns at once. They are written in the background. Clones share the queue.
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

/// Creates a recorder and its writer. `component` is the daemon's name in `source.component`, and `client`
/// writes its events. `daemon` is the object of events about the daemon itself: its Lease, as in upstream.
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
    /// The same recorder with another `source.component`. Its events are written with `client`.
    #[must_use]
    pub fn for_component(&self, component: &'static str, client: Client) -> Self {
        Self { component, client, ..self.clone() }
    }

    /// Waits at most two seconds until all events recorded so far are written or dropped. Called at the end
    /// of a leader's term, since its events are written with clients that can write only during the term.
    pub async fn flush(&self) {
        self.flushes.ask().await;
    }

    /// The object of events about the daemon as a whole.
    pub fn daemon(&self) -> EventObject {
        self.daemon.clone()
    }

    /// Records an event. Never waits: if the queue is full, the event is dropped and counted.
    pub fn record(
        &self,
        object: EventObject,
        event_type: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let (reason, message) = (reason.into(), truncated(message.into()));
        let event = Recorded { object, event_type, reason, message, component: self.component };
        if self.queue.try_send(Queued { event, client: self.client.clone() }).is_err() {
            self.metrics.events_dropped.with_label_values(&["queue_full"]).inc();
        }
    }
}

//! Events on Nodes and Leases (`core/v1`, which is what the RBAC rules of a Go CCM allow), written in the background.

mod correlate;
mod metrics;
mod writer;

use tokio::sync::mpsc;

pub use metrics::EventMetrics;
pub use writer::EventWriter;

use crate::{api_client::Clients, conditions::truncated, nodes::Node};

/// Events that wait to be written; more are dropped and counted, since the work must never wait for an event.
const QUEUE_LENGTH: usize = 16_384;

/// `source.component` of what concerns the daemon as a whole.
const DAEMON: &str = "cloud-controller-manager";

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
    metrics: EventMetrics,
    component: &'static str,
    daemon: EventObject,
}

/// A recorder and the writer behind it. `daemon` is what events about the daemon itself are on: its Lease, as upstream.
/// Events of the controllers are written by the controllers' client.
pub fn event_recorder(
    clients: &Clients,
    daemon: EventObject,
    metrics: EventMetrics,
) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let recorder = EventRecorder { queue: sender, metrics: metrics.clone(), component: DAEMON, daemon };
    (recorder, EventWriter::new(queue, clients.clone(), metrics))
}

impl EventRecorder {
    /// The same recorder with another `source.component`.
    #[must_use]
    pub fn for_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
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
        if self.queue.try_send(event).is_err() {
            self.metrics.events_dropped.with_label_values(&["queue_full"]).inc();
        }
    }
}

//! Says what became of a file that changed: in the log, in metrics and in an event.

use crate::{
    events::{EventRecorder, EventType},
    metrics::Metrics,
};

/// What was read again; the `file` label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--cloud-config`, or a file that it names.
    CloudConfig,
    /// `--kubeconfig`, or a file that it names; the service account's token and CA in a pod.
    Kubeconfig,
    /// A serving certificate or its key.
    ServingCertificate,
    /// A CA bundle that client certificates are checked with.
    ClientCa,
}

impl Source {
    /// As in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CloudConfig => "cloud-config",
            Self::Kubeconfig => "kubeconfig",
            Self::ServingCertificate => "serving-certificate",
            Self::ClientCa => "client-ca",
        }
    }
}

/// Reports reloads. Cloning shares what is behind it.
#[derive(Clone, Debug)]
pub struct ReloadReporter {
    metrics: Metrics,
    events: Option<EventRecorder>,
}

impl ReloadReporter {
    /// A reporter; without a recorder there are no events.
    pub fn new(metrics: Metrics, events: Option<EventRecorder>) -> Self {
        Self { metrics, events }
    }

    /// The new version is in force.
    pub fn succeeded(&self, source: Source) {
        let source = source.as_str();
        tracing::info!(file = source, "changed and read again");
        self.metrics.config_reloads.with_label_values(&[source, "success"]).inc();
        self.metrics.config_reload_failed.with_label_values(&[source]).set(0);
        self.record(EventType::Normal, "ConfigReloaded", format!("The changed {source} is in force"));
    }

    /// Credentials that are replaced now and then by design were replaced.
    pub fn renewed(&self, source: Source) {
        let source = source.as_str();
        tracing::debug!(file = source, "renewed");
        self.metrics.config_reloads.with_label_values(&[source, "success"]).inc();
        self.metrics.config_reload_failed.with_label_values(&[source]).set(0);
    }

    /// The new version was refused and the old one stays in force. `why` names the file or key and holds no secret.
    pub fn failed(&self, source: Source, why: &str) {
        let source = source.as_str();
        tracing::error!(file = source, error = why, "changed and refused; the version before stays in force");
        self.metrics.config_reloads.with_label_values(&[source, "failure"]).inc();
        self.metrics.config_reload_failed.with_label_values(&[source]).set(1);
        let message = format!("The changed {source} is refused, the version before stays in force: {why}");
        self.record(EventType::Warning, "ConfigReloadFailed", message);
    }

    fn record(&self, event_type: EventType, reason: &'static str, message: String) {
        if let Some(events) = &self.events {
            events.record(events.daemon(), event_type, reason, message);
        }
    }
}

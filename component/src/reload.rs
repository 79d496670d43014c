//! Reports the result of reading a changed file again: in the log, in metrics and in an event.

mod metrics;

use std::sync::Arc;

use crate::events::{EventRecorder, EventType};

pub use metrics::ReloadMetrics;

/// What was read again. This is the `file` label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--kubeconfig`, or a file that it names; the service account's token and CA in a pod.
    Kubeconfig,
    /// `--authentication-kubeconfig`, or a file that it names.
    AuthenticationKubeconfig,
    /// `--authorization-kubeconfig`, or a file that it names.
    AuthorizationKubeconfig,
    /// A serving certificate or its key.
    ServingCertificate,
    /// `--client-ca-file`.
    ClientCa,
    /// `--requestheader-client-ca-file`.
    RequestHeaderClientCa,
    /// The CAs that the cluster publishes in place of those two.
    ClusterTrust,
    /// A file that only this program reads, by its label.
    OfProgram(&'static str),
}

impl Source {
    /// The kubeconfig that this flag names.
    pub fn of_kubeconfig(flag: &str) -> Self {
        match flag {
            "--authentication-kubeconfig" => Self::AuthenticationKubeconfig,
            "--authorization-kubeconfig" => Self::AuthorizationKubeconfig,
            _ => Self::Kubeconfig,
        }
    }

    /// The word in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubeconfig => "kubeconfig",
            Self::AuthenticationKubeconfig => "authentication-kubeconfig",
            Self::AuthorizationKubeconfig => "authorization-kubeconfig",
            Self::ServingCertificate => "serving-certificate",
            Self::ClientCa => "client-ca",
            Self::RequestHeaderClientCa => "requestheader-client-ca",
            Self::ClusterTrust => "extension-apiserver-authentication",
            Self::OfProgram(label) => label,
        }
    }
}

/// Reports reloads. Clones share the metrics and the recorder.
#[derive(Clone, Debug)]
pub struct ReloadReporter {
    metrics: ReloadMetrics,
    events: Option<EventRecorder>,
    /// Whose files these are, where several have files of the same name.
    owner: Option<Arc<str>>,
}

impl ReloadReporter {
    /// A reporter. Without a recorder it records no events.
    pub fn new(metrics: ReloadMetrics, events: Option<EventRecorder>) -> Self {
        Self { metrics, events, owner: None }
    }

    /// A reporter for the files of one of several owners: its name follows each label, as in `cloud-config-vsphere`.
    #[must_use]
    pub fn of(self, owner: &str) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    fn label(&self, source: Source) -> String {
        let source = source.as_str();
        self.owner.as_ref().map_or_else(|| source.to_owned(), |owner| format!("{source}-{owner}"))
    }

    /// Reports that the new version is in use.
    pub fn succeeded(&self, source: Source) {
        let source = &*self.label(source);
        tracing::info!(file = source, "changed and read again");
        self.metrics.config_reloads.with_label_values(&[source, "success"]).inc();
        self.metrics.config_reload_failed.with_label_values(&[source]).set(0);
        self.record(EventType::Normal, "ConfigReloaded", format!("The changed {source} is in force"));
    }

    /// Reports that the present version is the one in use. This is logged and counted only if another version
    /// was refused before.
    pub fn unchanged(&self, source: Source) {
        if self.metrics.config_reload_failed.with_label_values(&[&*self.label(source)]).get() != 0 {
            self.succeeded(source);
        }
    }

    /// Reports that credentials were replaced that are designed to be replaced regularly.
    pub fn renewed(&self, source: Source) {
        let source = &*self.label(source);
        tracing::debug!(file = source, "renewed");
        self.metrics.config_reloads.with_label_values(&[source, "success"]).inc();
        self.metrics.config_reload_failed.with_label_values(&[source]).set(0);
    }

    /// Reports that the new version was refused and the old one stays in use. `why` names the file or key and
    /// contains no secret.
    pub fn failed(&self, source: Source, why: &str) {
        let source = &*self.label(source);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricSet as _;

    #[test]
    fn what_one_flag_names_hides_nothing_of_another() {
        let metrics = ReloadMetrics::unregistered().expect("metrics");
        let reporter = ReloadReporter::new(metrics.clone(), None);
        let [main, authentication, authorization] =
            ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"]
                .map(Source::of_kubeconfig);
        let is_refused =
            |source: Source| metrics.config_reload_failed.with_label_values(&[source.as_str()]).get() == 1;
        reporter.failed(main, "broken");
        reporter.failed(Source::ClientCa, "broken");
        for other in [
            authentication,
            authorization,
            Source::RequestHeaderClientCa,
            Source::ClusterTrust,
            Source::OfProgram("cloud-config"),
        ] {
            reporter.succeeded(other);
        }
        assert!(is_refused(main) && is_refused(Source::ClientCa));
        reporter.succeeded(main);
        assert!(!is_refused(main) && is_refused(Source::ClientCa));
    }

    #[test]
    fn the_files_of_one_owner_hide_nothing_of_another() {
        let metrics = ReloadMetrics::unregistered().expect("metrics");
        let reporter = ReloadReporter::new(metrics.clone(), None);
        let source = Source::OfProgram("cloud-config");
        reporter.clone().of("vsphere").failed(source, "broken");
        reporter.succeeded(source);
        let is_refused = |label: &str| metrics.config_reload_failed.with_label_values(&[label]).get() == 1;
        assert!(is_refused("cloud-config-vsphere") && !is_refused("cloud-config"));
    }

    #[test]
    fn the_version_before_put_back_is_good() {
        let metrics = ReloadMetrics::unregistered().expect("metrics");
        let reporter = ReloadReporter::new(metrics.clone(), None);
        let label = [Source::ServingCertificate.as_str()];
        let count = || metrics.config_reloads.with_label_values(&[label[0], "success"]).get();
        reporter.unchanged(Source::ServingCertificate);
        assert_eq!(count(), 0, "no news");
        reporter.failed(Source::ServingCertificate, "broken");
        reporter.unchanged(Source::ServingCertificate);
        assert_eq!((count(), metrics.config_reload_failed.with_label_values(&label).get()), (1, 0));
    }
}

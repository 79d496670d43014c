//! Upstream's metrics of authentication and authorization on the secure port.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, exponential_buckets};

use crate::metrics::{MetricSet, Register};

/// Counts and durations of authentications and authorizations, by result.
#[derive(Clone, Debug)]
pub struct AccessMetrics {
    users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_duration: HistogramVec,
    authorizations: IntCounterVec,
    authorization_duration: HistogramVec,
}

impl MetricSet for AccessMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        // Upstream's buckets.
        let buckets = exponential_buckets(0.001, 2.0, 15)?;
        Ok(Self {
            users: register.counters(
                "authenticated_user_requests",
                "[ALPHA] Counter of authenticated requests broken out by username.",
                &["username"],
            )?,
            authentications: register.counters(
                "authentication_attempts",
                "[ALPHA] Counter of authenticated attempts.",
                &["result"],
            )?,
            authentication_duration: register.histograms(
                "authentication_duration_seconds",
                "[ALPHA] Authentication duration in seconds broken out by result.",
                &["result"],
                &buckets,
            )?,
            authorizations: register.counters(
                "authorization_attempts_total",
                "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
                &["result"],
            )?,
            authorization_duration: register.histograms(
                "authorization_duration_seconds",
                "[ALPHA] Authorization duration in seconds broken out by result.",
                &["result"],
                &buckets,
            )?,
        })
    }
}

impl AccessMetrics {
    /// Records an authentication and how long it took. `None`: the credentials were refused.
    pub fn authenticated(&self, user: Option<&str>, took: Duration) {
        let result = if user.is_some() { "success" } else { "error" };
        if let Some(name) = user {
            self.users.with_label_values(&[kind_of_user(name)]).inc();
        }
        self.authentications.with_label_values(&[result]).inc();
        self.authentication_duration.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Records an authorization and how long it took. `result` is `allowed`, `denied`, `no-opinion` or
    /// `error`.
    pub fn authorized(&self, result: &str, took: Duration) {
        self.authorizations.with_label_values(&[result]).inc();
        self.authorization_duration.with_label_values(&[result]).observe(took.as_secs_f64());
    }
}

/// Upstream's few classes of user names.
fn kind_of_user(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_user_is_a_label() {
        for (name, kind) in [
            ("admin", "admin"),
            ("jane@example.com", "email_id"),
            ("system:anonymous", "other"),
            ("", "other"),
        ] {
            assert_eq!(kind_of_user(name), kind);
        }
    }
}

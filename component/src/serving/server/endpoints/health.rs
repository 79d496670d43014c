//! `/healthz`, `/livez`, `/readyz`, their single checks, and the metrics of the checks (`/metrics/slis`).

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use http::{HeaderMap, StatusCode};
use prometheus::{Gauge, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::{
    super::{
        responses::{self, Answer},
        seldom::Seldom,
    },
    metrics,
};
use crate::{
    health::{Check, Concerns, HealthChecks},
    metrics::start_time,
};

/// Pause between two log lines about failing checks.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The check that always passes.
const PING: &str = "ping";

/// One of the three endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Healthz,
    Livez,
    Readyz,
}

impl Kind {
    /// The endpoint for a path, and the single check that the path names.
    pub(super) fn of_path(path: &str) -> Option<(Self, Option<&str>)> {
        let path = path.strip_prefix('/')?;
        let (endpoint, check) =
            path.split_once('/').map_or((path, None), |(endpoint, check)| (endpoint, Some(check)));
        let kind = match endpoint {
            "healthz" => Self::Healthz,
            "livez" => Self::Livez,
            "readyz" => Self::Readyz,
            _ => return None,
        };
        Some((kind, check))
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }

    fn runs(self, concerns: Concerns) -> bool {
        concerns == Concerns::Liveness || self == Self::Readyz
    }
}

/// Runs the checks.
pub(super) struct Health {
    checks: HealthChecks,
    registry: Registry,
    healthcheck: IntGaugeVec,
    healthchecks_total: IntCounterVec,
    /// Limits the log, since every client may ask for health.
    failures: Seldom,
}

impl Health {
    pub(super) fn new(checks: HealthChecks) -> prometheus::Result<Self> {
        let registry = Registry::new();
        // Upstream's names and texts.
        let healthcheck = IntGaugeVec::new(
            Opts::new(
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
            ),
            &["name", "type"],
        )?;
        let healthchecks_total = IntCounterVec::new(
            Opts::new(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
            ),
            &["name", "type", "status"],
        )?;
        let start = Gauge::with_opts(Opts::new(
            "process_start_time_seconds",
            "[ALPHA] Start time of the process since unix epoch in seconds.",
        ))?;
        start.set(start_time().unwrap_or_default());
        registry.register(Box::new(start))?;
        registry.register(Box::new(healthcheck.clone()))?;
        registry.register(Box::new(healthchecks_total.clone()))?;
        let failures = Seldom::new(LOG_PAUSE);
        Ok(Self { checks, registry, healthcheck, healthchecks_total, failures })
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = (String, Check)> {
        let ping: Check = std::sync::Arc::new(|| Ok(()));
        std::iter::once((PING.to_owned(), Concerns::Liveness, ping))
            .chain(self.checks.all())
            .filter(move |(_, concerns, _)| kind.runs(*concerns))
            .map(|(name, _, check)| (name, check))
    }

    /// The result of all checks of an endpoint, in upstream's format. The reason for a failure is only
    /// logged, since every client may read the response.
    pub(super) fn all(&self, kind: Kind, query: &str) -> Answer {
        let parameters: Vec<(_, _)> = form_urlencoded::parse(query.as_bytes()).collect();
        let excluded: BTreeSet<&str> =
            parameters.iter().filter(|(key, _)| key == "exclude").map(|(_, name)| name.as_ref()).collect();
        let mut unknown = excluded.clone();
        let (mut lines, mut failed, mut reasons) = (String::new(), Vec::new(), String::new());
        for (name, check) in self.of(kind) {
            // Writing to a String cannot fail.
            if excluded.contains(name.as_str()) {
                unknown.remove(name.as_str());
                let _ = writeln!(lines, "[+]{name} excluded: ok");
                continue;
            }
            let outcome = check();
            self.count(&name, kind, outcome.is_ok());
            match outcome {
                Ok(()) => drop(writeln!(lines, "[+]{name} ok")),
                Err(why) => {
                    let _ = writeln!(lines, "[-]{name} failed: reason withheld");
                    let _ = write!(reasons, "[-]{name} failed: {why}; ");
                    failed.push(name);
                }
            }
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
            let _ = writeln!(
                lines,
                "warn: some health checks cannot be excluded: no matches for {}",
                names.join(",")
            );
        }
        let endpoint = kind.as_str();
        if !failed.is_empty() {
            if self.failures.may() {
                tracing::warn!(
                    "{} check failed: {endpoint}: {}",
                    failed.join(","),
                    reasons.trim_end_matches("; ")
                );
            }
            let text = format!("{lines}{endpoint} check failed\n");
            return responses::text(StatusCode::INTERNAL_SERVER_ERROR, text);
        }
        if parameters.iter().any(|(key, _)| key == "verbose") {
            return responses::text(StatusCode::OK, format!("{lines}{endpoint} check passed\n"));
        }
        responses::text(StatusCode::OK, "ok")
    }

    /// The result of one check. It includes the reason for a failure, since the client is authorized for this
    /// path.
    pub(super) fn one(&self, kind: Kind, name: &str) -> Answer {
        let Some((_, check)) = self.of(kind).find(|(known, _)| known == name) else {
            return responses::not_found();
        };
        match check() {
            Ok(()) => responses::text(StatusCode::OK, "ok"),
            Err(why) => {
                let text = format!("internal server error: {why}\n");
                responses::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }

    fn count(&self, name: &str, kind: Kind, passed: bool) {
        self.healthcheck.with_label_values(&[name, kind.as_str()]).set(passed.into());
        let status = if passed { "success" } else { "error" };
        self.healthchecks_total.with_label_values(&[name, kind.as_str(), status]).inc();
    }

    /// `/metrics/slis`
    pub(super) fn metrics(&self, headers: &HeaderMap) -> Answer {
        metrics::metrics(&self.registry, headers)
    }

    /// `DELETE /metrics/slis`
    pub(super) fn reset_metrics(&self) -> Answer {
        self.healthcheck.reset();
        self.healthchecks_total.reset();
        responses::text(StatusCode::OK, "metrics reset\n")
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn health() -> Health {
        let checks = HealthChecks::new();
        checks.add("leaderElection", Concerns::Liveness, || Ok(()));
        checks.add("shutdown", Concerns::Readiness, || Err("process is shutting down".to_owned()));
        Health::new(checks).expect("metrics")
    }

    async fn read(answer: Answer) -> (u16, String) {
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("no error").to_bytes();
        (status, String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn upstreams_format() {
        let health = health();
        for (kind, query, status, text) in [
            (Kind::Healthz, "", 200, "ok"),
            (Kind::Livez, "verbose=false", 200, "[+]ping ok\n[+]leaderElection ok\nlivez check passed\n"),
            (Kind::Healthz, "verbose", 200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n"),
            (
                Kind::Readyz,
                "",
                500,
                "[+]ping ok\n[+]leaderElection ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n",
            ),
            (Kind::Readyz, "exclude=shutdown", 200, "ok"),
            (
                Kind::Readyz,
                "verbose&exclude=shutdown&exclude=leaderElection&exclude=b&exclude=a",
                200,
                "[+]ping ok\n[+]leaderElection excluded: ok\n[+]shutdown excluded: ok\n\
                 warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nreadyz check passed\n",
            ),
            // Not a check of this endpoint.
            (
                Kind::Healthz,
                "exclude=shutdown&verbose",
                200,
                "[+]ping ok\n[+]leaderElection ok\n\
                 warn: some health checks cannot be excluded: no matches for \"shutdown\"\nhealthz check passed\n",
            ),
        ] {
            let (found, answer) = read(health.all(kind, query)).await;
            assert_eq!((found, answer.as_str()), (status, text), "{kind:?}?{query}");
        }
    }

    #[tokio::test]
    async fn each_check_by_itself() {
        let health = health();
        for (path, status, text) in [
            ("/healthz/ping", 200, "ok"),
            ("/readyz/leaderElection", 200, "ok"),
            ("/readyz/shutdown", 500, "internal server error: process is shutting down\n"),
            ("/livez/shutdown", 404, "404 page not found\n"),
            ("/healthz/", 404, "404 page not found\n"),
        ] {
            let Some((kind, Some(check))) = Kind::of_path(path) else { panic!("{path}") };
            assert_eq!(read(health.one(kind, check)).await, (status, text.to_owned()), "{path}");
        }
        for path in ["/", "/health", "/healthzy", "healthz", "//healthz"] {
            assert_eq!(Kind::of_path(path), None, "{path}");
        }
    }

    #[tokio::test]
    async fn results_are_counted_and_can_be_forgotten() {
        let health = health();
        for _ in 0..2 {
            health.all(Kind::Readyz, "");
        }
        let (_, text) = read(health.metrics(&HeaderMap::new())).await;
        for line in [
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.",
            "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.",
            "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.",
            "process_start_time_seconds 1.",
            "kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1",
            "kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 0",
            "kubernetes_healthchecks_total{name=\"shutdown\",status=\"error\",type=\"readyz\"} 2",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(read(health.reset_metrics()).await, (200, "metrics reset\n".to_owned()));
        let (_, text) = read(health.metrics(&HeaderMap::new())).await;
        assert!(!text.contains("kubernetes_"), "{text}");
    }
}

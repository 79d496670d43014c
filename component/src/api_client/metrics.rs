//! Metrics of requests to the API server: upstream's `rest_client_*`, and the writes of a dry run.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramVec, IntCounterVec,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::metrics::{MetricSet, Register};

const LATENCY: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// 64 bytes to 16 MB.
const SIZES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// From 10 minutes, which is too often, to 4 years.
const ROTATION_AGES: [f64; 11] = [
    600.0,
    1800.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// The metrics of requests to the API server.
#[derive(Clone, Debug)]
pub struct ClientMetrics {
    requests: IntCounterVec,
    retries: IntCounterVec,
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    rate_limiter: HistogramVec,
    plugin_ttl: PluginTtl,
    plugin_rotation_age: Histogram,
    /// Writes that `--dry-run` suppressed, by `verb` and `resource`.
    pub dry_run_writes: IntCounterVec,
}

impl MetricSet for ClientMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let by_host = ["verb", "host"];
        let dry_run_writes = register.own("dry_run_writes_total");
        let plugin_ttl = PluginTtl::new()?;
        register.add("gauge", &plugin_ttl)?;
        Ok(Self {
            requests: register.counters(
                "rest_client_requests_total",
                "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            )?,
            retries: register.counters(
                "rest_client_request_retries_total",
                "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
                &["code", "verb", "host"],
            )?,
            duration: register.histograms(
                "rest_client_request_duration_seconds",
                "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
                &by_host,
                &LATENCY,
            )?,
            request_size: register.histograms(
                "rest_client_request_size_bytes",
                "[ALPHA] Request size in bytes. Broken down by verb and host.",
                &by_host,
                &SIZES,
            )?,
            response_size: register.histograms(
                "rest_client_response_size_bytes",
                "[ALPHA] Response size in bytes. Broken down by verb and host.",
                &by_host,
                &SIZES,
            )?,
            rate_limiter: register.histograms(
                "rest_client_rate_limiter_duration_seconds",
                "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
                &by_host,
                &LATENCY,
            )?,
            plugin_rotation_age: register.histogram(
                "rest_client_exec_plugin_certificate_rotation_age",
                "[ALPHA] Histogram of the number of seconds the last auth exec plugin client certificate lived before being rotated. If auth exec plugin client certificates are unused, histogram will contain no data.",
                &ROTATION_AGES,
            )?,
            dry_run_writes: register.counters(
                &dry_run_writes,
                "Different writes that would have been sent without --dry-run.",
                &["verb", "resource"],
            )?,
            plugin_ttl,
        })
    }
}

impl ClientMetrics {
    /// Counts a request that got a response with this status, or failed (`None`).
    pub fn answered(&self, verb: &str, host: &str, status: Option<StatusCode>, is_retry: bool) {
        let code = status.as_ref().map_or("<error>", StatusCode::as_str);
        self.requests.with_label_values(&[code, verb, host]).inc();
        if is_retry {
            self.retries.with_label_values(&[code, verb, host]).inc();
        }
    }

    /// Records the duration of a request, waiting times included.
    pub fn took(&self, verb: &str, host: &str, time: Duration) {
        self.duration.with_label_values(&[verb, host]).observe(time.as_secs_f64());
    }

    /// Records how long a request waited for the rate limit.
    pub fn rate_limited(&self, verb: &str, host: &str, time: Duration) {
        self.rate_limiter.with_label_values(&[verb, host]).observe(time.as_secs_f64());
    }

    /// Records the size of a request's body.
    pub fn request_size(&self, verb: &str, host: &str, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "no request has 2^52 bytes")]
        self.request_size.with_label_values(&[verb, host]).observe(bytes as f64);
    }

    /// The histogram of response sizes.
    pub fn response_size(&self, verb: &str, host: &str) -> Histogram {
        self.response_size.with_label_values(&[verb, host])
    }

    /// Sets when the certificate of a plugin expires. `None` if there is none.
    pub(crate) fn set_plugin_end(&self, end: Option<Timestamp>) {
        *self.plugin_ttl.end.lock() = end;
    }

    /// Records the age at which a plugin's certificate was replaced.
    pub(crate) fn plugin_rotated(&self, age: Duration) {
        self.plugin_rotation_age.observe(age.as_secs_f64());
    }
}

/// The remaining lifetime of a certificate at the time of the scrape.
#[derive(Clone, Debug)]
struct PluginTtl {
    end: Arc<Mutex<Option<Timestamp>>>,
    seconds: Gauge,
}

impl PluginTtl {
    fn new() -> prometheus::Result<Self> {
        let seconds = Gauge::new(
            "rest_client_exec_plugin_ttl_seconds",
            "[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec plugins are unused or manage no TLS certificates, the value will be +INF.",
        )?;
        Ok(Self { end: Arc::default(), seconds })
    }
}

impl Collector for PluginTtl {
    fn desc(&self) -> Vec<&Desc> {
        self.seconds.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let end = *self.end.lock();
        let left = end.map_or(f64::INFINITY, |end| end.duration_since(Timestamp::now()).as_secs_f64());
        self.seconds.set(left);
        self.seconds.collect()
    }
}

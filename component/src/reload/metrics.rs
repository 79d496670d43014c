//! The metrics of reloads.

use prometheus::{IntCounterVec, IntGaugeVec};

use crate::metrics::{MetricSet, Register};

/// Metrics of files that change while the program runs.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    /// Files read again after a change, by `file` and `result`.
    pub config_reloads: IntCounterVec,
    /// 1 while the newest version of the `file` is refused and an older one is in use.
    pub config_reload_failed: IntGaugeVec,
}

impl MetricSet for ReloadMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let (reloads, failed) = (register.own("config_reloads_total"), register.own("config_reload_failed"));
        Ok(Self {
            config_reloads: register.counters(
                &reloads,
                "Configuration, credentials and certificates that changed and were read again.",
                &["file", "result"],
            )?,
            config_reload_failed: register.gauges(
                &failed,
                "1 while the newest version of a file is refused and an older one is in force.",
                &["file"],
            )?,
        })
    }
}

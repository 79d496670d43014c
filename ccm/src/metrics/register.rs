//! Registers metrics, and remembers how they are called for the documentation.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

/// One metric as an operator has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// What it counts; upstream's begins with its stability.
    pub help: String,
}

impl Described {
    /// Whether it is ours and not one that a Go CCM has too.
    pub fn is_own(&self) -> bool {
        self.name.starts_with("cloud_controller_manager_")
    }
}

pub(super) struct Register<'r> {
    registry: &'r Registry,
    pub(super) described: Vec<Described>,
}

impl<'r> Register<'r> {
    pub(super) fn new(registry: &'r Registry) -> Self {
        Self { registry, described: Vec::new() }
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> prometheus::Result<Histogram> {
        let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.add("histogram", &metric)?;
        Ok(metric)
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> prometheus::Result<HistogramVec> {
        let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.add("histogram", &metric)?;
        Ok(metric)
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.add("counter", &metric)?;
        Ok(metric)
    }

    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.add("gauge", &metric)?;
        Ok(metric)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        let metric = IntGauge::new(name, help)?;
        self.add("gauge", &metric)?;
        Ok(metric)
    }

    /// Adds a collector whose metrics are all of one kind.
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        collector: &(impl Collector + Clone + 'static),
    ) -> prometheus::Result<()> {
        self.described.extend(collector.desc().into_iter().map(|desc| Described {
            name: desc.fq_name.clone(),
            kind: if desc.fq_name.ends_with("_total") { "counter" } else { kind },
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        }));
        self.registry.register(Box::new(collector.clone()))
    }
}

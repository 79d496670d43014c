//! Registers metrics, and records their descriptions for the documentation.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

/// The description of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Whether only this program has it. The names of such metrics begin with the program's namespace.
    pub is_own: bool,
    /// Its help text. Upstream's begins with the stability.
    pub help: String,
}

/// The metrics of one part of a program.
pub trait MetricSet: Clone + Send + Sync + 'static {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// A name is registered twice, which is a mistake in the program.
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self>;

    /// Creates metrics that are not exposed.
    ///
    /// # Errors
    /// The same as [`register`](Self::register).
    fn unregistered() -> prometheus::Result<Self> {
        Self::register(&mut Register::new(&Registry::new(), "unregistered", &mut Vec::new()))
    }
}

/// Where the parts register their metrics.
#[derive(Debug)]
pub struct Register<'r> {
    registry: &'r Registry,
    namespace: &'static str,
    described: &'r mut Vec<Described>,
}

impl<'r> Register<'r> {
    pub(super) fn new(
        registry: &'r Registry,
        namespace: &'static str,
        described: &'r mut Vec<Described>,
    ) -> Self {
        Self { registry, namespace, described }
    }

    /// The full name of a metric that upstream does not have. It begins with the program's namespace.
    pub fn own(&self, name: &str) -> String {
        format!("{}_{name}", self.namespace)
    }

    /// A counter without labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn counter(&mut self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        let metric = IntCounter::new(name, help)?;
        self.add("counter", &metric)?;
        Ok(metric)
    }

    /// A histogram without labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.add("histogram", &metric)?;
        Ok(metric)
    }

    /// A histogram for each value of its labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn histograms(
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

    /// A counter for each value of its labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.add("counter", &metric)?;
        Ok(metric)
    }

    /// A gauge for each value of its labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.add("gauge", &metric)?;
        Ok(metric)
    }

    /// A gauge without labels.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn gauge(&mut self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        let metric = IntGauge::new(name, help)?;
        self.add("gauge", &metric)?;
        Ok(metric)
    }

    /// Adds a collector whose metrics are all of one `kind`: `gauge` or `histogram`. A metric whose name ends
    /// with `_total` counts as a counter nevertheless.
    ///
    /// # Errors
    /// One of the names is already registered.
    pub fn add(
        &mut self,
        kind: &'static str,
        collector: &(impl Collector + Clone + 'static),
    ) -> prometheus::Result<()> {
        let described: Vec<Described> = collector
            .desc()
            .into_iter()
            .map(|desc| Described {
                name: desc.fq_name.clone(),
                kind: if desc.fq_name.ends_with("_total") { "counter" } else { kind },
                labels: desc.variable_labels.clone(),
                is_own: desc.fq_name.strip_prefix(self.namespace).is_some_and(|rest| rest.starts_with('_')),
                help: desc.help.clone(),
            })
            .collect();
        self.registry.register(Box::new(collector.clone()))?;
        self.described.extend(described);
        Ok(())
    }
}

//! Prometheus' text format, with numbers in Go's notation, since labels such as `le="1e-08"` are used in
//! queries.

use std::fmt::Write as _;

use basics::go::format_float;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// All metric families as text.
pub fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.get_metric().is_empty()) {
        let name = family.name();
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            MetricType::SUMMARY | MetricType::UNTYPED => "untyped",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(family.help(), false));
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::COUNTER => line(&mut text, name, metric, None, metric.get_counter().get_value()),
                MetricType::GAUGE => line(&mut text, name, metric, None, metric.get_gauge().get_value()),
                MetricType::HISTOGRAM => histogram(&mut text, name, metric),
                MetricType::SUMMARY | MetricType::UNTYPED => {}
            }
        }
    }
    text
}

fn histogram(text: &mut String, name: &str, metric: &Metric) {
    #[expect(clippy::cast_precision_loss, reason = "nothing happens 2^52 times")]
    let number = |count: u64| count as f64;
    let histogram = metric.get_histogram();
    let bucket_name = format!("{name}_bucket");
    for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
        let count = number(bucket.cumulative_count());
        line(text, &bucket_name, metric, Some(bucket.upper_bound()), count);
    }
    let count = number(histogram.get_sample_count());
    line(text, &bucket_name, metric, Some(f64::INFINITY), count);
    line(text, &format!("{name}_sum"), metric, None, histogram.get_sample_sum());
    line(text, &format!("{name}_count"), metric, None, count);
}

fn line(text: &mut String, name: &str, metric: &Metric, bound: Option<f64>, value: f64) {
    text.push_str(name);
    let label = |pair: &LabelPair| format!("{}=\"{}\"", pair.name(), escaped(pair.value(), true));
    let labels: Vec<String> = metric
        .get_label()
        .iter()
        .map(label)
        .chain(bound.map(|bound| format!("le=\"{}\"", format_float(bound))))
        .collect();
    if !labels.is_empty() {
        let _ = write!(text, "{{{}}}", labels.join(","));
    }
    let _ = writeln!(text, " {}", format_float(value));
}

fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

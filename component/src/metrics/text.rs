//! Prometheus' text format, with numbers in Go's notation, since labels such as `le="1e-08"` are used in
//! queries.

use std::fmt::Write as _;

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
        .chain(bound.map(|bound| format!("le=\"{}\"", number(bound))))
        .collect();
    if !labels.is_empty() {
        let _ = write!(text, "{{{}}}", labels.join(","));
    }
    let _ = writeln!(text, " {}", number(value));
}

fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

/// The number in the notation of Go's `strconv.FormatFloat(value, 'g', -1, 64)`.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Rust's shortest representation has the same digits as Go's.
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // The range that Go prints without an exponent ('g' with the shortest precision).
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (10e-9, "1e-08"),
            (0.000_01, "1e-05"),
            (0.000_1, "0.0001"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (1_000_000.0, "1e+06"),
            (1_795_277_668.56, "1.79527766856e+09"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (123.456, "123.456"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}

//! Kubernetes' JSON format:
//! `{"ts":1637510041123.456,"caller":"file.rs:123","msg":"message","v":0,"key":"value"}`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tracing::Level;

use super::{level::verbosity_of, record::Record};

/// Keys that a field must not use.
const OURS: [&str; 6] = ["ts", "caller", "msg", "v", "err", "severity"];

/// The record as a line with its line break. As in Kubernetes, an error has `err` instead of `v`. A warning
/// has `severity`, which Kubernetes does not have.
pub(super) fn line(record: &Record) -> String {
    // Milliseconds with microseconds as a fraction.
    #[expect(clippy::cast_precision_loss, reason = "the microseconds of some 285 years are exact")]
    let milliseconds = record.time.as_microsecond() as f64 / 1_000.0;
    let mut line = "{".to_owned();
    let mut add = |key: &str, value: Value| {
        let comma = if line.len() > 1 { "," } else { "" };
        let _ = write!(line, "{comma}{}:{value}", Value::from(key));
    };
    add("ts", json!(milliseconds));
    add("caller", json!(format!("{}:{}", record.file, record.line)));
    add("msg", json!(record.message));
    if record.level != Level::ERROR {
        add("v", json!(verbosity_of(record.level)));
    }
    if record.level == Level::WARN {
        add("severity", json!("warning"));
    }
    if record.error.is_some() || record.level == Level::ERROR {
        add("err", json!(record.error));
    }
    for (key, value) in &record.fields {
        if OURS.contains(key) {
            add(&format!("{key}_"), value.clone());
        } else {
            add(key, value.clone());
        }
    }
    line.push_str("}\n");
    line
}

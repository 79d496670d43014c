//! klog's structured text format: `I1121 15:54:01.123456   12345 file.rs:123] "message" key="value"`.

use std::fmt::Write as _;

use basics::go::quoted;
use serde_json::Value;
use tracing::Level;

use super::record::Record;

/// The record as a line with its line break. Times are in UTC.
pub(super) fn line(record: &Record) -> String {
    let severity = match record.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO | Level::DEBUG | Level::TRACE => 'I',
    };
    let time = record.time.to_zoned(jiff::tz::TimeZone::UTC);
    let mut line = format!(
        "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {}:{}] {}",
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.subsec_nanosecond() / 1_000,
        std::process::id(),
        record.file,
        record.line,
        quoted(&record.message),
    );
    if let Some(error) = &record.error {
        let _ = write!(line, " err={}", quoted(error));
    }
    for (key, value) in &record.fields {
        let _ = match value {
            Value::String(text) => write!(line, " {key}={}", quoted(text)),
            other => write!(line, " {key}={other}"),
        };
    }
    line.push('\n');
    line
}

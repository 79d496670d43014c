//! A log record, read from an event of tracing.

use std::{error::Error, fmt};

use jiff::Timestamp;
use serde_json::Value;
use tracing::{
    Event, Level,
    field::{Field, Visit},
};

/// The content of one line.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    /// The name of the source file, without folders.
    pub(super) file: &'static str,
    pub(super) line: u32,
    pub(super) message: String,
    /// The error: the field `error`, which Kubernetes calls `err`.
    pub(super) error: Option<String>,
    /// The other fields, in order.
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Record {
    pub(super) fn new(event: &Event<'_>, time: Timestamp) -> Self {
        let metadata = event.metadata();
        let file = metadata.file().unwrap_or_default();
        let mut record = Self {
            time,
            level: *metadata.level(),
            file: file.rsplit(['/', '\\']).next().unwrap_or(file),
            line: metadata.line().unwrap_or_default(),
            message: String::new(),
            error: None,
            fields: Vec::new(),
        };
        event.record(&mut record);
        record
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        let value = value.into();
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match field.name() {
            "message" => self.message = text(value),
            "error" | "err" => self.error = Some(text(value)),
            // The crate `log` adds these fields to describe where a record comes from.
            name if name.starts_with("log.") => {}
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, basics::error_chain(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde_json::Value;
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use super::{Record, json, text};

/// Keeps every record.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Record>>>);

impl<S: tracing::Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let time = Timestamp::from_microsecond(1_763_740_441_123_456).expect("a time");
        self.0.lock().expect("not poisoned").push(Record::new(event, time));
    }
}

fn records(say: impl FnOnce()) -> Vec<Record> {
    let kept = Kept::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(kept.clone()), say);
    kept.0.lock().expect("not poisoned").clone()
}

#[test]
fn text_is_klogs() {
    let records = records(|| {
        tracing::info!(node = "n\n1", count = 3, ready = true, of = ?Some(1), "look \"here\"");
        tracing::warn!("slow");
        let error = std::io::Error::other("no\nroute");
        tracing::error!(error = &error as &dyn std::error::Error, name = %"x", "failed");
    });
    let lines: Vec<String> = records.iter().map(text::line).collect();
    let pid = std::process::id();
    let ends = [
        "] \"look \\\"here\\\"\" node=\"n\\n1\" count=3 ready=true of=\"Some(1)\"\n",
        "] \"slow\"\n",
        "] \"failed\" err=\"no\\nroute\" name=\"x\"\n",
    ];
    for ((line, end), severity) in lines.iter().zip(ends).zip(['I', 'W', 'E']) {
        let beginning = format!("{severity}1121 15:54:01.123456 {pid:>7} tests.rs:");
        assert!(line.starts_with(&beginning) && line.ends_with(end), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }
}

#[test]
fn json_is_kubernetes() {
    let records = records(|| {
        tracing::debug!(node = "n", count = 3, v = 9, "debugging");
        tracing::warn!(error = "why", "slow");
        tracing::error!("failed");
    });
    let lines: Vec<Value> =
        records.iter().map(|record| serde_json::from_str(&json::line(record)).expect("JSON")).collect();
    assert_eq!(lines[0]["ts"], 1_763_740_441_123.456);
    assert_eq!(lines[0]["msg"], "debugging");
    assert_eq!(lines[0]["v"], 4);
    assert_eq!(lines[0]["v_"], 9);
    assert_eq!(lines[0]["count"], 3);
    assert!(lines[0]["caller"].as_str().is_some_and(|caller| caller.starts_with("tests.rs:")));
    assert_eq!((lines[1]["v"].clone(), lines[1]["err"].clone()), (0.into(), "why".into()));
    assert_eq!(lines[1]["severity"], "warning");
    assert!(lines[2].get("v").is_none() && lines[2].as_object().is_some_and(|line| line.contains_key("err")));
}

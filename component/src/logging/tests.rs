use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams, runtime::watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, prelude::*};

use super::{Log, Record, json, text};
use crate::{api_client::describe, command_line::VModule, watching};

/// Keeps every record.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Record>>>);

impl<S: tracing::Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let time = Timestamp::from_microsecond(1_763_740_441_123_456).expect("a time");
        self.0.lock().push(Record::new(event, time));
    }
}

fn records(say: impl FnOnce()) -> Vec<Record> {
    let kept = Kept::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(kept.clone()), say);
    kept.0.lock().clone()
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

/// Answers with a Secret that cannot be read. The client logs them whole, and its errors quote the value.
#[test]
fn an_answer_that_cannot_be_read_is_never_told() {
    let kept = Kept::default();
    let most = VModule { pattern: "*".to_owned(), level: 10 };
    let log = Log { vmodule: vec![most], json: false, split: false };
    let shown = kept.clone().with_filter(filter_fn(move |metadata| log.shows(metadata)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let errors = tracing::subscriber::with_default(tracing_subscriber::registry().with(shown), || {
        runtime.block_on(async {
            let odd = json!({"metadata": {"name": "odd"}, "data": "hunter2"});
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": [odd]});
            let answer = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let asked = if request.uri().path().ends_with("/odd") { &odd } else { &list };
                let body = asked.to_string();
                std::future::ready(Ok::<_, tower::BoxError>(http::Response::new(body)))
            });
            let client = kube::Client::new(answer, "default");
            let secrets = Api::<Secret>::namespaced(client.clone(), "default");
            let mut errors = vec![
                describe(&secrets.get("odd").await.expect_err("odd")),
                describe(&secrets.list(&ListParams::default()).await.expect_err("odd")),
            ];
            let watched = Api::<Secret>::namespaced(watching::client(client), "default");
            let mut events = std::pin::pin!(watching::watch(watched, watcher::Config::default()));
            while errors.len() < 3 {
                if let Some(Err(error)) = futures::StreamExt::next(&mut events).await {
                    errors.push(basics::error_chain(&error));
                }
            }
            tracing::warn!(error = errors[0], "told by this program");
            errors
        })
    });
    for error in &errors {
        assert!(error.contains("invalid type: string, expected a map"), "{error}");
    }
    let records = kept.0.lock().clone();
    assert!(records.iter().any(|record| record.message == "told by this program"), "{records:?}");
    assert!(!format!("{records:?}").contains("hunter2"), "{records:?}");
}

//! Pauses between watches that end at once. kube's watcher opens the next one without any where a watch ends as it should,
//! and what stands between us and the API server may end each of them with its first byte.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use basics::backoff::Backoff;
use http::Uri;
use tokio::time::{Duration, Instant, sleep};

/// The first wait is client-go's. The longest one is not its 30 s: that keeps thousands of kubelets apart, and whoever
/// asks here is one of a few; who leads may be able to write all the while, and must not go blind for longer.
pub(super) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(800), most: Duration::from_secs(5) };

/// A watch that lasts less is a short one (client-go's figure). The API server ends them after minutes.
const SHORT: Duration = Duration::from_secs(1);

/// What became of the watches of each question.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<String, Last>>);

/// The last watch that was answered.
#[derive(Clone, Copy, Debug)]
struct Last {
    began: Instant,
    /// Short ones in a row before it.
    short: u32,
}

impl Pauses {
    /// Waits until the next watch may be opened that asks this.
    pub(super) async fn wait(&self, uri: &Uri) {
        let pause = self.with(|last| {
            let last = last.get_mut(&question(uri))?;
            last.short = if last.began.elapsed() < SHORT { last.short.saturating_add(1) } else { 0 };
            (last.short > 0).then(|| BACKOFF.after(last.short).min(BACKOFF.most))
        });
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }

    /// Takes note of a watch that was opened.
    pub(super) fn opened(&self, uri: &Uri) {
        let began = Instant::now();
        self.with(|last| {
            last.entry(question(uri))
                .and_modify(|last| last.began = began)
                .or_insert(Last { began, short: 0 });
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Last>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which objects a watch is about, without the version that it begins with.
fn question(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default().as_bytes();
    let mut question = uri.path().to_owned();
    for (key, value) in form_urlencoded::parse(query) {
        if key == "fieldSelector" || key == "labelSelector" {
            question.extend(["&", &key, "=", &value]);
        }
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_other_objects_are_other_questions() {
        let question = |uri: &str| question(&uri.parse().expect("a URI"));
        let nodes = "/api/v1/nodes?watch=true&resourceVersion=";
        assert_eq!(question(&format!("{nodes}1")), question(&format!("{nodes}2")));
        let one = "/api/v1/namespaces/a/secrets?watch=true&fieldSelector=metadata.name%3D";
        assert_ne!(
            question(&format!("{one}b&resourceVersion=1")),
            question(&format!("{one}c&resourceVersion=1"))
        );
    }
}

//! Pauses between watches that end at once. kube's watcher opens the next watch without a pause if the
//! previous one ended normally, and a proxy in front of the API server may end each watch with its first
//! byte.

use std::collections::HashMap;

use basics::backoff::Backoff;
use http::Uri;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep};

/// The first wait is client-go's. The longest one is not its 30 s, which spreads the requests of thousands of
/// kubelets. There are only a few replicas of this daemon, and a leader that can still write must not miss
/// changes for longer.
pub(super) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(800), most: Duration::from_secs(5) };

/// A watch shorter than this is a short one (client-go's value). The API server ends watches after minutes.
const SHORT: Duration = Duration::from_secs(1);

/// The last watch for each query.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<String, Last>>);

/// The last watch that the API server accepted.
#[derive(Clone, Copy, Debug)]
struct Last {
    began: Instant,
    /// Short watches in a row before it.
    short: u32,
}

impl Pauses {
    /// Waits until the next watch with this query may be opened.
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

    /// Records that a watch was opened.
    pub(super) fn opened(&self, uri: &Uri) {
        let began = Instant::now();
        self.with(|last| {
            last.entry(question(uri))
                .and_modify(|last| last.began = began)
                .or_insert(Last { began, short: 0 });
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Last>) -> T) -> T {
        work(&mut self.0.lock())
    }
}

/// The query of a watch without the resource version that it starts from.
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

//! Writes events one after the other.

use std::{collections::HashMap, time::Duration};

use basics::LogOnce;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    EventMetrics, Queued, Recorded,
    correlate::{Correlator, SeriesKey},
    flush::{FLUSH_TIMEOUT, Flushes},
};
use crate::api_text::api_time;

/// Pause after each event, so that events do not hold up the patches that matter: at most 50 events per
/// second.
const PAUSE: Duration = Duration::from_millis(20);

/// The API server keeps an event for an hour after its last repeat.
const SERIES_LIFETIME: Duration = Duration::from_secs(3600);

/// Number of remembered series after which old ones are forgotten.
const MANY: usize = 4096;

/// Timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of tries before an event is dropped.
const TRIES: u32 = 5;

/// Namespace of events on cluster-scoped objects, as in upstream.
const CLUSTER_NAMESPACE: &str = "default";

/// Writes the recorded events. [`run`](Self::run) it in a task.
pub struct EventWriter {
    queue: mpsc::Receiver<Queued>,
    flushes: Flushes,
    flush_asked: watch::Receiver<u64>,
    /// The event that is being written, kept so that an interruption does not lose it.
    under_way: Option<Outgoing>,
    metrics: EventMetrics,
    correlator: Correlator,
    series: HashMap<SeriesKey, Series>,
    /// The component and namespace of writes that the API server refuses now. Each outage has one log line.
    refused: LogOnce<(&'static str, String)>,
}

/// An event that is being written.
#[derive(Clone)]
struct Outgoing {
    event: Recorded,
    client: Client,
    key: SeriesKey,
    /// Used for all tries, so that an event is not written twice if a response was lost or a write was
    /// interrupted.
    name: String,
}

struct Series {
    name: String,
    count: i32,
    last: Instant,
}

impl EventWriter {
    pub(super) fn new(queue: mpsc::Receiver<Queued>, flushes: Flushes, metrics: EventMetrics) -> Self {
        Self {
            queue,
            flush_asked: flushes.asked(),
            flushes,
            under_way: None,
            metrics,
            correlator: Correlator::default(),
            series: HashMap::new(),
            refused: LogOnce::default(),
        }
    }

    /// Writes events until `stop` is cancelled. Then writes the remaining ones, for at most two seconds.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut flush_asked = self.flush_asked.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = flush_asked.changed() => {
                    let number = *flush_asked.borrow_and_update();
                    self.write_rest().await;
                    self.flushes.done(number);
                }
                () = self.write_all() => break,
            }
        }
        // Kubernetes waits for the daemon to end, and an event is not worth a long wait.
        self.write_rest().await;
    }

    /// Writes events as they arrive, until all recorders are dropped. This future may be dropped at any time:
    /// an interrupted write is repeated later.
    async fn write_all(&mut self) {
        loop {
            if self.under_way.is_none() {
                let Some(event) = self.queue.recv().await else { return };
                self.under_way = self.correlate(event);
            }
            if let Some(outgoing) = self.under_way.clone() {
                self.write(&outgoing, TRIES).await;
                self.under_way = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Writes the waiting events, without pauses and with one try each, since there is little time.
    async fn write_rest(&mut self) {
        let rest = async {
            loop {
                if self.under_way.is_none() {
                    let Ok(event) = self.queue.try_recv() else { return };
                    self.under_way = self.correlate(event);
                }
                if let Some(outgoing) = self.under_way.clone() {
                    self.write(&outgoing, 1).await;
                    self.under_way = None;
                }
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, rest).await.is_err() {
            let left = self.queue.len() + usize::from(self.under_way.is_some());
            tracing::warn!(left, "events were not written within {FLUSH_TIMEOUT:?}");
        }
    }

    fn correlate(&mut self, Queued { event, client }: Queued) -> Option<Outgoing> {
        let Some((event, key)) = self.correlator.correlate(event, Instant::now()) else {
            self.metrics.events_dropped.with_label_values(&["rate_limited"]).inc();
            return None;
        };
        // The name as client-go forms it: the object's name and a unique time.
        let name = format!("{}.{:x}", event.object.name, Timestamp::now().as_nanosecond());
        Some(Outgoing { event, client, key, name })
    }

    async fn write(&mut self, Outgoing { event, client, key, name }: &Outgoing, tries: u32) {
        self.forget_old();
        let namespace =
            if event.object.namespace.is_empty() { CLUSTER_NAMESPACE } else { &event.object.namespace };
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let mut attempt = 0;
        while attempt < tries {
            attempt += 1;
            let write = async {
                match self.series.get_mut(key) {
                    Some(series) => repeat(&api, series, event).await,
                    None => create(&api, namespace, name, event).await.map(|()| {
                        let series = Series { name: name.clone(), count: 1, last: Instant::now() };
                        self.series.insert(key.clone(), series);
                    }),
                }
            };
            let Ok(outcome) = tokio::time::timeout(WRITE_TIMEOUT, write).await else { continue };
            match outcome {
                Ok(()) => {
                    if self.refused.ends(&(event.component, namespace.to_owned())) {
                        tracing::info!(namespace, "events are written again");
                    }
                    return;
                }
                // The event object has expired (events live for an hour), so a new one is created.
                Err(kube::Error::Api(status)) if status.code == 404 && self.series.remove(key).is_some() => {
                    attempt -= 1;
                }
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    let (reason, object) = (&*event.reason, event.object.name.as_str());
                    if self.refused.begins(&(event.component, namespace.to_owned())) {
                        tracing::warn!(
                            reason, object, error = %status.message,
                            "event refused; of others that are refused before one is written nothing is said"
                        );
                    } else {
                        tracing::debug!(reason, object, error = %status.message, "event refused");
                    }
                    break;
                }
                Err(error) => {
                    tracing::debug!(reason = &*event.reason, object = event.object.name, %error, attempt, "event not written");
                    if attempt < tries {
                        tokio::time::sleep(Duration::from_secs(1 << attempt.min(3))).await;
                    }
                }
            }
        }
        self.metrics.events_dropped.with_label_values(&["failed"]).inc();
    }

    /// Limits the size of the map, which would otherwise grow with every Node that ever existed.
    fn forget_old(&mut self) {
        if self.series.len() > MANY {
            self.series.retain(|_, series| series.last.elapsed() < SERIES_LIFETIME);
        }
        if self.series.len() > MANY {
            // Very many events: the counts of forgotten series begin at one again.
            self.series.clear();
        }
    }
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

async fn create(api: &Api<Event>, namespace: &str, name: &str, event: &Recorded) -> kube::Result<()> {
    let now = api_time(Timestamp::now());
    let body = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": event.object.api_version,
            "kind": event.object.kind,
            "namespace": event.object.namespace,
            "name": event.object.name,
            "uid": event.object.uid,
        },
        "type": event.event_type.as_str(),
        "reason": event.reason,
        "message": event.message,
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }))
    .map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &body).await {
        // The previous try has created it, but its response was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        outcome => outcome.map(drop),
    }
}

async fn repeat(api: &Api<Event>, series: &mut Series, event: &Recorded) -> kube::Result<()> {
    let patch = json!({
        "count": series.count + 1,
        "lastTimestamp": api_time(Timestamp::now()),
        "message": event.message,
    });
    api.patch(&series.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    series.count += 1;
    series.last = Instant::now();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        cmp::Ordering::{Equal, Greater, Less},
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        },
    };

    use http::{Method, Request, Response, StatusCode};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::Value;
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        events::{EventObject, EventRecorder, EventType, event_recorder},
        metrics::MetricSet as _,
    };

    fn recorder<F>(
        answer: impl Fn(Value) -> F + Clone + Send + Sync + 'static,
    ) -> (EventRecorder, EventWriter)
    where
        F: Future<Output = StatusCode> + Send,
    {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                assert_eq!(request.method(), Method::POST);
                let body = request.into_body().collect().await?.to_bytes();
                let event: Value = serde_json::from_slice(&body).expect("JSON");
                let status = answer(event.clone()).await;
                let failure =
                    json!({"kind": "Status", "status": "Failure", "message": "no", "code": status.as_u16()});
                let text = if status.is_success() { event } else { failure }.to_string();
                let response = Response::builder().status(status).body(Body::from(text.into_bytes()));
                Ok::<_, tower::BoxError>(response.expect("an answer"))
            }
        });
        let client = Client::new(service, "default");
        let daemon = EventObject::lease("kube-system", "ccm", "");
        event_recorder("ccm", client, daemon, EventMetrics::unregistered().expect("metrics"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_the_end_cut_off_is_not_a_second_event() {
        let (names, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let answer = {
            let (names, asked) = (names.clone(), asked.clone());
            move |event: Value| {
                let first = {
                    let mut names = names.lock();
                    names.push(event["metadata"]["name"].to_string());
                    names.len() == 1
                };
                asked.notify_one();
                async move {
                    if first {
                        std::future::pending::<()>().await;
                    }
                    StatusCode::CREATED
                }
            }
        };
        let (recorder, writer) = recorder(answer);
        recorder.record(recorder.daemon(), EventType::Normal, "LeaderElection", "me stopped leading");
        let stop = CancellationToken::new();
        let writing = tokio::spawn(writer.run(stop.clone()));
        asked.notified().await;
        stop.cancel();
        writing.await.expect("it ended");
        let names = names.lock().clone();
        assert_eq!(names.len(), 2);
        assert_eq!(names[0], names[1], "the API server sees that it is the same");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_writes_all_that_was_recorded_before_it() {
        let (written, first) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let asked = Arc::new(Notify::new());
        let (recorder, writer) = recorder({
            let (written, asked) = (written.clone(), asked.clone());
            move |_| {
                let (written, hangs) = (written.clone(), first.swap(false, Relaxed));
                asked.notify_one();
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    written.fetch_add(1, Relaxed);
                    StatusCode::CREATED
                }
            }
        });
        let writing = tokio::spawn(writer.run(CancellationToken::new()));
        for number in 0..200 {
            let lease = EventObject::lease("kube-system", &format!("lease-{number}"), "");
            recorder.record(lease, EventType::Normal, "Reason", "what happened");
        }
        asked.notified().await;
        recorder.flush().await;
        assert_eq!(written.load(Relaxed), 200, "also the one whose first try hangs");
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_ends_in_time() {
        let (recorder, writer) = recorder(|_| std::future::pending::<StatusCode>());
        let began = Instant::now();
        recorder.record(recorder.daemon(), EventType::Normal, "Reason", "what happened");
        recorder.flush().await;
        assert_eq!(began.elapsed(), FLUSH_TIMEOUT, "nobody writes");
        let writing = tokio::spawn(writer.run(CancellationToken::new()));
        recorder.flush().await;
        assert_eq!(began.elapsed(), FLUSH_TIMEOUT * 2, "the API server does not answer");
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn one_event_that_fails_at_the_end_costs_no_other() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (recorder, writer) = recorder({
            let written = written.clone();
            move |event: Value| {
                let is_good = event["reason"] == "Good";
                if is_good {
                    written.lock().push(event["message"].clone());
                }
                async move { if is_good { StatusCode::CREATED } else { StatusCode::SERVICE_UNAVAILABLE } }
            }
        });
        recorder.record(recorder.daemon(), EventType::Normal, "Bad", "one");
        recorder.record(recorder.daemon(), EventType::Normal, "Good", "two");
        let stop = CancellationToken::new();
        stop.cancel();
        writer.run(stop).await;
        assert_eq!(*written.lock(), ["two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_one_line() {
        let (recorder, mut writer) = recorder(|event: Value| async move {
            if event["reason"] == "Good" { StatusCode::CREATED } else { StatusCode::FORBIDDEN }
        });
        let mut lines = Vec::new();
        for reason in ["Bad", "Bad", "Good", "Bad"] {
            recorder.record(
                recorder.daemon(),
                EventType::Normal,
                reason,
                format!("{} {reason}", lines.len()),
            );
            let event = writer.queue.recv().await.expect("an event");
            let outgoing = writer.correlate(event).expect("not too many");
            let before = writer.refused.all().count();
            writer.write(&outgoing, TRIES).await;
            lines.push(writer.refused.all().count().cmp(&before));
        }
        // One line when an outage begins, and one when it ends.
        assert_eq!(lines, [Greater, Equal, Less, Greater]);
    }
}

use futures::stream;
use http_body::Body as _;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::sync::Notify;

use crate::gate::PartFence;

use super::*;
use crate::workload::testing::answering;

/// An API server whose answers have these chunks, each after a pause.
fn sends(chunk: &'static [u8], count: usize, pause: Duration) -> Client {
    let answer = move |_: Request<Body>| async move {
        let chunks = stream::unfold(0, move |sent| async move {
            if sent >= count {
                return None;
            }
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk))), sent + 1))
        });
        Response::new(StreamBody::new(Box::pin(chunks)))
    };
    Limited::client(answering(answer), PartFence::default(), Arc::default())
}

/// How many bytes are read.
async fn read(client: &Client, path: &str) -> Result<usize, String> {
    text(client, path).await.map(|text| text.len())
}

async fn text(client: &Client, path: &str) -> Result<Vec<u8>, String> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let mut body =
        client.send(request).await.map_err(|error| cloudprovider::error_chain(&error))?.into_body();
    let mut text = Vec::new();
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return Ok(text),
            Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
            Some(Err(error)) => return Err(cloudprovider::error_chain(&error)),
        }
    }
}

const MIB: &[u8] = &[b'x'; 1 << 20];
/// A mebibyte that ends a line.
const LINE: &[u8] = &{
    let mut line = [b'x'; 1 << 20];
    line[9] = b'\n';
    line
};
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn answers_end_at_their_limits() {
    assert_eq!(read(&sends(b"ok", 1, Duration::ZERO), "/readyz").await, Ok(2));
    assert_eq!(read(&sends(MIB, 16, Duration::ZERO), "/x").await, Ok(16 << 20));
    let error = read(&sends(MIB, usize::MAX, Duration::ZERO), "/x").await.expect_err("endless");
    assert!(error.contains("the answer has more than 16777216 bytes"), "{error}");
    let began = Instant::now();
    let error = read(&sends(b"x", usize::MAX, SECOND), "/x").await.expect_err("slow bytes");
    assert!(error.contains("longer than 60s") && began.elapsed() == WHOLE, "{error}");
}

#[tokio::test(start_paused = true)]
async fn small_answers_with_many_values_end_at_their_limits() {
    // Each item has three bytes here and a thousand in memory. An API server may answer with more of them than it was asked for.
    let list = |count: usize| async move {
        let items = vec!["{}"; count].join(",");
        let answer: &'static [u8] =
            Box::leak(format!("{{\"items\":[{items}]}}").into_bytes().into_boxed_slice());
        read(&sends(answer, 1, Duration::ZERO), "/x?limit=10").await
    };
    assert!(list(10_000).await.is_ok());
    let error = list(10_001).await.expect_err("too many items");
    assert!(error.contains("the answer has more than 10000 items"), "{error}");
    for (path, what) in [
        ("/x", "the answer has more than 400000"),
        ("/x?watch=1", "an event of the watch has more than 100000"),
    ] {
        let error = read(&sends(b"[{},[],", 110_000, Duration::ZERO), path).await.expect_err("many values");
        assert!(error.contains(what), "{error}");
    }
    let events = read(&sends(b"[{},[],{}]\n", 100_000, Duration::ZERO), "/x?watch=1").await;
    assert_eq!(events, Ok(1_100_000), "each event counts by itself");
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_watch_is_a_line() {
    let watched = |piece: &'static [u8], count: usize| async move {
        let text = text(&sends(piece, count, Duration::ZERO), "/x?watch=1").await.expect("it is read");
        String::from_utf8(text).expect("text")
    };
    let as_kubernetes = "{\"a\": [{}, \"}\\n\"]}\n";
    assert_eq!(watched(as_kubernetes.as_bytes(), 2).await, as_kubernetes.repeat(2));
    assert_eq!(
        watched(b"{\n  \"a\": {\n    \"b\": []\n  }\n}", 2).await,
        "{  \"a\": {    \"b\": []  }}\n".repeat(2)
    );
    // In the middle of an event, and in an answer that is no event.
    assert_eq!(watched(b"{\n{}\n", 2).await, "{{}{{}");
    assert_eq!(watched(b"no\n\n", 2).await, "no\nno\n");
    assert_eq!(text(&sends(b"{\n}", 1, Duration::ZERO), "/x").await, Ok(b"{\n}".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_they_are_silent_and_not_when_they_are_long() {
    let began = Instant::now();
    assert_eq!(read(&sends(b"{}\n", 100, 60 * SECOND), "/x?watch=true").await, Ok(300));
    assert_eq!(began.elapsed(), 6000 * SECOND);
    let began = Instant::now();
    assert_eq!(
        read(&sends(b"{}\n", 2, 600 * SECOND), "/x?watch=true").await,
        Ok(0),
        "it ends as any watch does"
    );
    assert_eq!(began.elapsed(), SILENCE);
    let error = read(&sends(MIB, 3, Duration::ZERO), "/x?watch=true").await.expect_err("no end of line");
    assert!(error.contains("an event of the watch has more than"), "{error}");
    assert_eq!(read(&sends(LINE, 20, Duration::ZERO), "/x?watch=1").await, Ok(20 << 20), "lines end");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_slowed_down() {
    let began = Instant::now();
    assert_eq!(read(&sends(LINE, 104, Duration::ZERO), "/x?watch=true").await, Ok(104 << 20));
    let took = began.elapsed();
    assert!(took >= 9 * SECOND && took <= 11 * SECOND, "40 MiB beyond the first 64 at 4 MiB/s: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_hang_cost_their_own_slots() {
    let inside = Arc::new(AtomicUsize::new(0));
    let count = inside.clone();
    let hangs = answering(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Response<Body>>()
    });
    let client = Limited::client(hangs, PartFence::default(), Arc::default());
    let began = Instant::now();
    let all = (0..20).map(|_| read(&client, "/x"));
    let outcomes = futures::future::join_all(all).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.as_ref().is_err_and(|why| why.contains("no answer within 10s")))
    );
    assert_eq!((inside.load(Ordering::Relaxed), began.elapsed()), (REQUESTS, HEAD));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_the_answer_is_read_or_dropped() {
    let gate = Arc::new(Notify::new());
    let (opens, log) = (gate.clone(), Arc::new(Mutex::new(0)));
    let counted = log.clone();
    let answer = move |_: Request<Body>| {
        *counted.lock() += 1;
        let opens = opens.clone();
        async move {
            let one = stream::once(async move {
                opens.notified().await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"ok")))
            });
            Response::new(StreamBody::new(Box::pin(one)))
        }
    };
    let client = Limited::client(answering(answer), PartFence::default(), Arc::default());
    let mut answers = Vec::new();
    for _ in 0..REQUESTS {
        answers.push(
            client.send(Request::get("/x").body(Body::empty()).expect("a request")).await.expect("a head"),
        );
    }
    let more = || Request::get("/x").body(Body::empty()).expect("a request");
    assert!(client.send(more()).await.is_err(), "all slots are taken");
    let probe = Request::get(PROBE_PATH).body(Body::empty()).expect("a request");
    drop(client.send(probe).await.expect("a probe has a slot of its own"));
    answers.pop();
    let answer = client.send(more()).await.expect("a slot is free");
    assert_eq!(*log.lock(), REQUESTS + 2);
    drop((answer, answers, gate));
}

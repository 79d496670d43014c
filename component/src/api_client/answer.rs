//! The body of a response, on its way to the caller.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use kube::client::Body;
use prometheus::Histogram;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The body of the API server's response.
pub(super) struct AnswerBody {
    body: Body,
    /// For a watch: the body ends when this address is retired, as if the API server had ended the watch.
    retired: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// How long the body may be silent.
    silence: Option<Silence>,
    /// Measures the size of the body.
    size: Option<Size>,
}

struct Silence {
    longest: Duration,
    end: Pin<Box<Sleep>>,
}

/// As in upstream, only complete responses are counted, and refusals without a body are not.
struct Size {
    bytes: usize,
    /// Whether the end was reached.
    is_whole: bool,
    is_refusal: bool,
    histogram: Histogram,
}

impl AnswerBody {
    pub(super) fn new(body: Body) -> Self {
        Self { body, retired: None, silence: None, size: None }
    }

    /// The body of a watch. It ends when `retired` is cancelled.
    pub(super) fn until(body: Body, retired: CancellationToken) -> Self {
        Self { retired: Some(Box::pin(retired.cancelled_owned())), ..Self::new(body) }
    }

    /// If nothing arrives for `longest`, the connection is considered dead. A watch then ends, as if the API
    /// server had ended it, and the client resumes it. Any other body fails with an error.
    pub(super) fn at_most_silent(self, longest: Option<Duration>) -> Self {
        let silence = longest.map(|longest| Silence { longest, end: Box::pin(sleep(longest)) });
        Self { silence, ..self }
    }

    /// Adds the size of the body to `histogram` once the whole body has arrived. `status` is that of the
    /// response.
    pub(super) fn measured(self, status: StatusCode, histogram: Histogram) -> Self {
        let is_whole = self.body.is_end_stream();
        Self { size: Some(Size { bytes: 0, is_whole, is_refusal: !status.is_success(), histogram }), ..self }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        if let Some(retired) = &mut self.retired
            && retired.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let frame = pin!(&mut self.body).poll_frame(cx);
        if let Some(silence) = &mut self.silence {
            if frame.is_ready() {
                silence.end.as_mut().reset(Instant::now() + silence.longest);
            } else {
                ready!(silence.end.as_mut().poll(cx));
                let longest = silence.longest;
                // The body is neither polled again nor counted as complete.
                (self.silence, self.size, self.body) = (None, None, Body::empty());
                if self.retired.is_some() {
                    tracing::debug!("a watch said nothing for {longest:?}: it is taken up anew");
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(Err(kube::Error::Service(
                    format!("the answer broke off: nothing came for {longest:?}").into(),
                ))));
            }
        }
        // The reader may stop at the last frame without polling for the end.
        let is_end = self.body.is_end_stream();
        if let Some(size) = &mut self.size
            && let Poll::Ready(frame) = &frame
        {
            match frame {
                Some(Ok(frame)) => {
                    size.bytes += frame.data_ref().map_or(0, Bytes::len);
                    size.is_whole = is_end;
                }
                Some(Err(_)) => self.size = None,
                None => size.is_whole = true,
            }
        }
        frame
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        if !self.is_whole || (self.is_refusal && self.bytes == 0) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "no answer has 2^52 bytes")]
        self.histogram.observe(self.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, StreamBody};
    use kube::Client;
    use prometheus::HistogramOpts;

    use super::*;

    /// What is counted for a response with these parts, of which `read` parts are read: the number of
    /// responses and bytes.
    async fn counted(status: u16, parts: Vec<Result<&'static str, &'static str>>, read: usize) -> (u64, f64) {
        let histogram = Histogram::with_opts(HistogramOpts::new("size", "size")).expect("a histogram");
        let answer = move |_: Request<Body>| {
            let frames = stream::iter(parts.clone());
            let frames = frames.map(|part| part.map(|text| Frame::data(Bytes::from(text))));
            async { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let body = client.send(Request::new(Body::empty())).await.expect("an answer").into_body();
        let status = StatusCode::from_u16(status).expect("a status");
        let mut answer = AnswerBody::new(body).measured(status, histogram.clone());
        for _ in 0..read {
            let _ = answer.frame().await;
        }
        drop(answer);
        (histogram.get_sample_count(), histogram.get_sample_sum())
    }

    #[tokio::test]
    async fn answers_that_break_off_have_no_size() {
        let whole = || vec![Ok("abc"), Ok("de")];
        assert_eq!(counted(200, whole(), 3).await, (1, 5.0));
        assert_eq!(counted(404, whole(), 3).await, (1, 5.0));
        assert_eq!(counted(200, whole(), 1).await, (0, 0.0), "nobody reads on");
        assert_eq!(counted(200, vec![Ok("abc"), Err("reset")], 3).await, (0, 0.0), "it breaks off");
        assert_eq!(counted(200, Vec::new(), 1).await, (1, 0.0));
        assert_eq!(counted(502, Vec::new(), 1).await, (0, 0.0));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_watch_and_breaks_off_the_rest() {
        const LONGEST: Duration = Duration::from_secs(90);
        let silent = async || {
            let answer = |_: Request<Body>| async {
                let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("x")))]);
                let later = stream::once(async {
                    sleep(LONGEST / 2).await;
                    Ok(Frame::data(Bytes::from("y")))
                });
                Ok::<_, Infallible>(Response::new(StreamBody::new(
                    first.chain(later.boxed()).chain(stream::pending()),
                )))
            };
            let client = Client::new(tower::service_fn(answer), "default");
            client.send(Request::new(Body::empty())).await.expect("an answer").into_body()
        };
        let began = Instant::now();
        let mut watch =
            AnswerBody::until(silent().await, CancellationToken::new()).at_most_silent(Some(LONGEST));
        assert!(watch.frame().await.expect("a frame").is_ok());
        assert!(watch.frame().await.expect("a frame").is_ok());
        assert!(watch.frame().await.is_none(), "it ends");
        assert!(began.elapsed() >= LONGEST + LONGEST / 2 && began.elapsed() < LONGEST * 2);
        let mut answer = AnswerBody::new(silent().await).at_most_silent(Some(LONGEST));
        assert!(answer.frame().await.expect("a frame").is_ok());
        assert!(answer.frame().await.expect("a frame").is_ok());
        let error = answer.frame().await.expect("an outcome").expect_err("it breaks off");
        assert!(error.to_string().contains("nothing came for 90s"), "{error}");
    }

    #[test]
    fn the_end_need_not_be_asked_for() {
        let histogram = Histogram::with_opts(HistogramOpts::new("size", "size")).expect("a histogram");
        let answer = AnswerBody::new(Body::empty()).measured(StatusCode::OK, histogram.clone());
        assert!(answer.is_end_stream());
        drop(answer);
        assert_eq!(histogram.get_sample_count(), 1);
    }
}

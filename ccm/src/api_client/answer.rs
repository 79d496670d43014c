//! The body of an answer, on its way to whoever asked.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use prometheus::Histogram;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The API server's answer.
pub(super) struct AnswerBody {
    body: Body,
    /// For a watch: it ends when its address is retired, as if the API server had ended it.
    retired: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Who wants to know how many bytes there were.
    size: Option<Size>,
}

struct Size {
    bytes: usize,
    histogram: Histogram,
}

impl AnswerBody {
    pub(super) fn new(body: Body) -> Self {
        Self { body, retired: None, size: None }
    }

    /// The answer to a watch, which ends when `retired` is cancelled.
    pub(super) fn until(body: Body, retired: CancellationToken) -> Self {
        Self { retired: Some(Box::pin(retired.cancelled_owned())), ..Self::new(body) }
    }

    /// Tells `histogram` the size, once all of it came.
    pub(super) fn measured(self, histogram: Histogram) -> Self {
        Self { size: Some(Size { bytes: 0, histogram }), ..self }
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
        if let Some(size) = &mut self.size
            && let Poll::Ready(Some(Ok(frame))) = &frame
        {
            size.bytes += frame.data_ref().map_or(0, Bytes::len);
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
        #[expect(clippy::cast_precision_loss, reason = "no answer has 2^52 bytes")]
        self.histogram.observe(self.bytes as f64);
    }
}

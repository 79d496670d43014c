//! Notices whether a connection has data that its client has not taken yet.
//!
//! A response is complete for the HTTP library as soon as it is buffered. Until the client has taken it, the
//! connection is not idle: if it were evicted then, the client would get a part of the response.
//!
//! With HTTP/2 the last few KiB of a response may wait for the client's window inside the library. That does
//! not show here.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::slots::Slot;

/// A stream that tells its slot whether written data waits to be sent.
#[derive(Debug)]
pub(in super::super) struct Unsent<S> {
    stream: S,
    slot: Arc<Slot>,
}

impl<S> Unsent<S> {
    pub(in super::super) fn new(stream: S, slot: Arc<Slot>) -> Self {
        Self { stream, slot }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unsent<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unsent<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buffer);
        // What was accepted may still be in the TLS session. The flush that follows each write tells.
        if outcome.is_pending() {
            self.slot.unsent(true);
        }
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.slot.unsent(outcome.is_pending());
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::{super::slots::Slots, *};
    use crate::serving::server::source::Source;

    /// A connection whose only request is answered.
    fn answered(slots: &Slots) -> Arc<Slot> {
        let address = IpAddr::from([192, 0, 2, 1]);
        let slot = Arc::new(slots.take(Source::of(address, None), address));
        slot.heard();
        drop(slot.request(0));
        slot
    }

    fn is_evicted(slot: &Slot) -> bool {
        slot.evicted().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_response_is_sent_whole_before_its_connection_is_idle() {
        let slots = Slots::new(100, 2, u64::MAX);
        let (ours, mut theirs) = duplex(16);
        let slow = answered(&slots);
        let mut stream = Unsent::new(tokio::io::BufWriter::new(ours), slow.clone());
        stream.write_all(&[0; 20]).await.expect("it is buffered");
        assert!(stream.flush().now_or_never().is_none(), "the pipe is full");
        let others = [0; 2].map(|_| answered(&slots));
        assert_eq!((is_evicted(&slow), is_evicted(&others[0])), (false, true));
        theirs.read_exact(&mut [0; 16]).await.expect("a part");
        stream.flush().await.expect("the rest");
        let _more = [0; 2].map(|_| answered(&slots));
        assert!(is_evicted(&slow), "it has everything");
    }
}

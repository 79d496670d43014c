//! Bounds what a client sends: how much in its handshake, how much at a time, and for how long nothing.
//!
//! A connection has two of these streams, below and above TLS: an encrypted record can hold nothing, and a small record can hold
//! thousands of compressed fields. The thread of the port turns to other connections after each portion.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::admission::Connection;

/// Bytes of TLS that are read at a time.
const RECORDS: usize = 8 << 10;

/// Size of a handshake with the most certificates that a client may send.
pub(super) const HANDSHAKE_SIZE: usize = 40 << 10;

/// A connection without traffic for this long is closed; upstream's. It is longer than the longest profile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A stream that is read in portions, and fails if nothing is read or written for a time. A client that sends nothing and a client
/// that reads nothing are the same here.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    portion: usize,
    /// Bytes of the current portion that were read.
    read: usize,
    /// Bytes that may still arrive. `None`: any number.
    left: Option<usize>,
    /// Learns when all is written.
    connection: Option<Arc<Connection>>,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Guarded<S> {
    /// For a connection that begins with a handshake.
    pub(super) fn encrypted(stream: S) -> Self {
        Self::new(stream, RECORDS, Some(HANDSHAKE_SIZE), None)
    }

    /// For decrypted requests of this connection.
    pub(super) fn decrypted(stream: S, portion: usize, connection: Arc<Connection>) -> Self {
        Self::new(stream, portion, None, Some(connection))
    }

    fn new(stream: S, portion: usize, left: Option<usize>, connection: Option<Arc<Connection>>) -> Self {
        Self { stream, portion, read: 0, left, connection, deadline: Box::pin(sleep(IDLE_TIMEOUT)) }
    }

    /// Records that the handshake is complete.
    pub(super) fn handshake_completed(&mut self) {
        self.left = None;
    }

    /// Records progress, or fails if there was none for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
            return outcome;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= self.portion {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = buffer.remaining().min(self.portion);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(length));
        let outcome = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let read = part.filled().len();
        buffer.advance(read);
        self.read += read;
        if let Some(left) = self.left {
            let Some(left) = left.checked_sub(read) else {
                return Poll::Ready(Err(io::Error::other("the handshake is too large")));
            };
            self.left = Some(left);
        }
        self.watch(cx, outcome)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.watch(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A flush without pending data is not progress.
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.watch(cx, Poll::Pending),
            outcome @ Poll::Ready(_) => {
                if let Some(connection) = &self.connection {
                    connection.all_is_written();
                }
                outcome
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.watch(cx, Poll::Pending),
            outcome @ Poll::Ready(_) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::{super::admission::Admission, *};
    use crate::serving::server::source::Source;

    const PORTION: usize = 512;

    fn decrypted<S>(stream: S) -> Guarded<S> {
        Guarded::decrypted(stream, PORTION, Admission::new(1, 1, u64::MAX).admit(Source::Here))
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_progress_does_not() {
        let (ours, mut theirs) = duplex(16);
        let mut stream = decrypted(ours);
        for _ in 0..3 {
            tokio::time::advance(IDLE_TIMEOUT * 2 / 3).await;
            theirs.write_all(b"x").await.expect("written");
            stream.read_u8().await.expect("read");
        }
        let start = Instant::now();
        assert_eq!(stream.read_u8().await.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), IDLE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_ends_too() {
        let (ours, _theirs) = duplex(16);
        let mut stream = decrypted(ours);
        let error = stream.write_all(&[0; 17]).await.expect_err("the pipe is full");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn other_connections_are_read_in_between() {
        let (ours, mut theirs) = duplex(4 * PORTION);
        theirs.write_all(&[7; 4 * PORTION]).await.expect("there is room");
        let mut stream = decrypted(ours);
        let (mut buffer, mut polls) = ([0; 4 * PORTION], 0);
        let mut read = Box::pin(stream.read_exact(&mut buffer));
        std::future::poll_fn(|cx| {
            polls += 1;
            read.as_mut().poll(cx)
        })
        .await
        .expect("all of it");
        drop(read);
        assert_eq!((polls, buffer), (4, [7; 4 * PORTION]));
    }

    #[tokio::test]
    async fn a_handshake_is_no_larger_than_its_limit() {
        for is_completed in [true, false] {
            let (ours, mut theirs) = duplex(64);
            tokio::spawn(async move { while theirs.write_all(&[0; 64]).await.is_ok() {} });
            let mut stream = Guarded::encrypted(ours);
            stream.read_exact(&mut [0; HANDSHAKE_SIZE]).await.expect("a handshake");
            if is_completed {
                stream.handshake_completed();
            }
            assert_eq!(stream.read_u8().await.is_ok(), is_completed);
        }
    }
}

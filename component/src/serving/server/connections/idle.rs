//! Closes a connection without traffic, and lets other tasks run during heavy traffic.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::paced::Decrypted;

/// Bytes in one turn: about the head of a typical request. A frame of nine bytes can need a reply, and each
/// byte of a head can be a compressed field.
const TURN: usize = 512;

/// A stream that fails if nothing was read or written for some time. A client that sends nothing and a client
/// that reads nothing look the same here.
#[derive(Debug)]
pub(super) struct Idle<S> {
    pub(super) stream: S,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    this_turn: usize,
}

impl<S> Idle<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: Box::pin(sleep(limit)), this_turn: 0 }
    }

    /// Records progress, or fails if there was none for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            let deadline = Instant::now() + self.limit;
            self.deadline.as_mut().reset(deadline);
            return outcome;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Decrypted + Unpin> AsyncRead for Idle<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.this_turn >= TURN {
            self.this_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = [0; TURN];
        let length = buffer.remaining().min(TURN);
        let mut part = ReadBuf::new(&mut part[..length]);
        let outcome = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        self.this_turn += part.filled().len();
        if !part.filled().is_empty() {
            self.stream.passed_on();
        }
        buffer.put_slice(part.filled());
        self.watch(cx, outcome)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.watch(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A flush without pending data is not progress.
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.watch(cx, Poll::Pending),
            outcome @ Poll::Ready(_) => outcome,
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(90);

    impl Decrypted for DuplexStream {
        fn passed_on(&mut self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_progress_does_not() {
        let (ours, mut theirs) = duplex(16);
        let mut idle = Idle::new(ours, LIMIT);
        for _ in 0..3 {
            tokio::time::advance(LIMIT * 2 / 3).await;
            theirs.write_all(b"x").await.expect("written");
            idle.read_u8().await.expect("read");
        }
        let start = Instant::now();
        assert_eq!(idle.read_u8().await.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), LIMIT);
    }

    #[tokio::test]
    async fn others_have_their_turn() {
        let (ours, mut theirs) = duplex(4 * TURN);
        theirs.write_all(&[7; 4 * TURN]).await.expect("there is room");
        let mut idle = Idle::new(ours, LIMIT);
        let (mut buffer, mut polls) = ([0; 4 * TURN], 0);
        let mut read = Box::pin(idle.read_exact(&mut buffer));
        std::future::poll_fn(|cx| {
            polls += 1;
            read.as_mut().poll(cx)
        })
        .await
        .expect("all of it");
        drop(read);
        assert_eq!((polls, buffer), (4, [7; 4 * TURN]));
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_ends_too() {
        let (ours, _theirs) = duplex(16);
        let mut idle = Idle::new(ours, LIMIT);
        let error = idle.write_all(&[0; 17]).await.expect_err("the pipe is full");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

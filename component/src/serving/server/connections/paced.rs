//! Limits the rate at which a client's data is read.
//!
//! Received data is the main cost: a byte of compressed headers can take a hundred bytes of memory, and nine
//! bytes are a whole frame that needs a reply. So each connection has a maximum rate after an initial supply,
//! and yields to other connections from time to time. The initial supply is for the handshake. A client that
//! reconnects again and again gains no supply for requests.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};
use tokio_rustls::server::TlsStream;

/// Size of a handshake with the most certificates that a client may send. These bytes may arrive at any
/// speed. A longer handshake is not accepted.
pub(super) const HANDSHAKE_SIZE: u32 = 40 << 10;

/// Bytes that may arrive at any speed after the handshake: about the head of a typical request.
const REQUEST_SUPPLY: u32 = 8 << 10;

/// Bytes per second after that. Enough for some requests with a token, or many small ones.
const RATE: u32 = 4 << 10;

/// Bytes in one turn.
const TURN: usize = 8 << 10;

/// Maximum number of bytes after the handshake without any decrypted data: one TLS record of the largest
/// size. More bytes belong to an endless handshake message, which would be buffered until its end.
pub(super) const SILENT_SIZE: usize = 16384 + 2048 + 5;

/// Bytes in one read. The data after the end of a record is less than this.
pub(super) const READ: usize = 4 << 10;

/// Additional pause when the supply is used up.
const PAUSE: Duration = Duration::from_millis(100);

/// A stream that is read at a bounded rate.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    /// Maximum number of bytes that can be read at any speed.
    supply: f64,
    /// Number of bytes that may be read, as of `counted`. Negative if a read returned more.
    left: f64,
    counted: Instant,
    pause: Option<Pin<Box<Sleep>>>,
    this_turn: usize,
    /// Bytes that may still arrive for the handshake. `None`: the handshake is done.
    handshake: Option<u32>,
    /// Bytes that arrived since data was last passed on.
    silent: usize,
}

/// A stream of decrypted data.
pub(super) trait Decrypted {
    /// Records that decrypted data was passed on.
    fn passed_on(&mut self);
}

impl<S> Decrypted for TlsStream<Paced<S>> {
    fn passed_on(&mut self) {
        self.get_mut().0.silent = 0;
    }
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S) -> Self {
        let supply = f64::from(HANDSHAKE_SIZE);
        Self {
            stream,
            supply,
            left: supply,
            counted: Instant::now(),
            pause: None,
            this_turn: 0,
            handshake: Some(HANDSHAKE_SIZE),
            silent: 0,
        }
    }

    /// Records that the handshake is done.
    pub(super) fn encrypted(&mut self) {
        self.supply = f64::from(REQUEST_SUPPLY);
        self.left = self.left.min(self.supply);
        self.handshake = None;
    }

    /// Records that the client is known: it may send at any speed.
    pub(super) fn known(&mut self) {
        self.supply = f64::INFINITY;
        self.left = self.supply;
        self.pause = None;
    }

    /// Waits until data may be read.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.this_turn >= TURN {
            self.this_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let now = Instant::now();
            let earned = now.duration_since(self.counted).as_secs_f64() * f64::from(RATE);
            self.left = (self.left + earned).min(self.supply);
            self.counted = now;
            if self.left > 0.0 {
                return Poll::Ready(());
            }
            let missing = Duration::from_secs_f64(-self.left / f64::from(RATE));
            self.pause = Some(Box::pin(sleep_until(now + missing + PAUSE)));
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(cx));
        if self.silent >= SILENT_SIZE {
            return Poll::Ready(Err(io::Error::other("a message of a handshake does not end")));
        }
        let length = buffer.remaining().min(READ);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(length));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        let count = u32::try_from(read).unwrap_or(u32::MAX);
        self.this_turn += read;
        self.left -= f64::from(count);
        if let Some(left) = &mut self.handshake {
            match left.checked_sub(count) {
                Some(less) => *left = less,
                None => return Poll::Ready(Err(io::Error::other("the handshake is too large"))),
            }
        } else {
            self.silent += read;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Fills the buffer.
    async fn read_all<S: AsyncRead + Unpin>(paced: &mut Paced<S>, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(READ) {
            paced.read_exact(part).await.expect("requests");
            paced.silent = 0;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_slowly_and_the_rest_at_once() {
        let (ours, mut theirs) = duplex(64);
        tokio::spawn(async move { while theirs.write_all(&[0; 64]).await.is_ok() {} });
        let mut paced = Paced::new(ours);
        let start = Instant::now();
        let mut buffer = vec![0; HANDSHAKE_SIZE as usize];
        paced.read_exact(&mut buffer).await.expect("a handshake");
        assert_eq!(start.elapsed(), Duration::ZERO);
        paced.encrypted();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let start = Instant::now();
        read_all(&mut paced, &mut buffer).await;
        let took = start.elapsed().as_secs_f64();
        let expected = f64::from(HANDSHAKE_SIZE - REQUEST_SUPPLY) / f64::from(RATE);
        assert!((expected - 0.2..expected + 0.3).contains(&took), "{took}");
        // The supply is used up. More data is there, but it has to wait.
        let asked = tokio::time::timeout(Duration::ZERO, paced.read_u8()).await;
        asked.expect_err("nothing is left");
        paced.known();
        let start = Instant::now();
        for _ in 0..10 {
            read_all(&mut paced, &mut buffer).await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_ends_somewhere() {
        let (ours, mut theirs) = duplex(64);
        tokio::spawn(async move { while theirs.write_all(&[0; 64]).await.is_ok() {} });
        let mut paced = Paced::new(ours);
        let mut buffer = vec![0; HANDSHAKE_SIZE as usize];
        paced.read_exact(&mut buffer).await.expect("a handshake");
        paced.read_exact(&mut [0]).await.expect_err("no more");
    }

    #[tokio::test]
    async fn others_have_their_turn() {
        let (ours, mut theirs) = duplex(2 * TURN);
        theirs.write_all(&[0; 2 * TURN]).await.expect("there is room");
        let mut paced = Paced::new(ours);
        let mut buffer = [0; TURN];
        let mut polls = 0;
        let mut read = Box::pin(async {
            paced.read_exact(&mut buffer).await?;
            paced.read_exact(&mut buffer).await
        });
        std::future::poll_fn(|cx| {
            polls += 1;
            read.as_mut().poll(cx)
        })
        .await
        .expect("all of it");
        assert_eq!(polls, 2);
    }
}

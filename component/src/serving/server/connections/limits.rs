//! What clients may use, and what memory that takes: the sum is in the tests.

use std::{fs, time::Duration};

use super::paced::HANDSHAKE_SIZE;
use crate::serving::server::{listener, responses::PIECE};

/// How long a client may take until it is encrypted, and its certificate is verified.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take until it has taken an answer.
const TAKING_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections from other machines at the same time.
const CONNECTIONS: usize = 256;

/// Of those, from one address; and as many more from this machine.
const FROM_ONE_ADDRESS: usize = 128;

/// Requests from other machines at the same time, beside one on each connection.
const REQUESTS: usize = 192;

/// Of those, from one address; and as many more from this machine.
const REQUESTS_FROM_ONE_ADDRESS: usize = 128;

/// Streams of an HTTP/2 connection whose client showed no certificate that is known.
const STREAMS_OF_STRANGERS: u32 = 8;

/// Bytes of the head of a request. HTTP/2 counts 32 more for each field, which is about what it costs.
pub(super) const HEADER_SIZE: u32 = 16 << 10;

/// Bytes of a request's body that come before anybody reads it.
pub(super) const BODY_WINDOW: u32 = 4 << 10;

/// Bytes of an answer that a connection holds.
pub(super) const SEND_BUFFER: usize = 8 << 10;

/// Bytes that are encrypted and not taken yet.
pub(super) const TLS_BUFFER: usize = 16 << 10;

/// Bytes that clients can make the daemon hold, and the kernel for it: all connections, requests and answers together.
/// Connections that wait to be accepted are not in it: [`listener::BACKLOG`] with a receive buffer each, 4 MiB more, which
/// the kernel holds only while the port's thread does not come to accept them.
const MEMORY: u64 = 80 << 20;

/// What a client sends is a record of TLS at most until it is decrypted. Its buffer has the head of a record too.
const RECORD: u64 = 18 << 10;

/// Tasks, timers and tables of a connection or of a request.
const TASK: u64 = 8 << 10;

/// Bytes that a connection takes at most while nothing is asked on it: the kernel's buffers, a record that comes, what of
/// it is decrypted and what is encrypted, and what HTTP has: of HTTP/2 a frame, a head in parts, frames to send, and
/// two tables of 4 KiB. HTTP/1.1 has less.
pub(super) const CONNECTION_MEMORY: u64 = 2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER) as u64
    + RECORD
    + 2 * TLS_BUFFER as u64
    + 3 * HEADER_SIZE as u64
    + (8 << 10)
    + TASK;

/// Bytes that a handshake takes beyond that. It has nothing of HTTP yet, but its messages in a buffer that grows by
/// doubling, their certificates twice, and all that was said so far, which a signature of TLS 1.2 is about.
pub(super) const HANDSHAKE_MEMORY: u64 = 2 * HANDSHAKE_SIZE as u64;

/// Bytes that a request takes at most beside its head and the answer that waits: what of the answer is on its way, and
/// what came of its body.
pub(super) const REQUEST_MEMORY: u64 = SEND_BUFFER as u64 + PIECE as u64 + BODY_WINDOW as u64 + TASK;

/// Bytes of an answer that count: a larger one is sent too.
pub(super) const MAX_ANSWER: u64 = 12 << 20;

/// Open files that are left to everybody else: the API server, the cloud, the election.
const OTHER_FILES: usize = 256;

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// How long a client may take until it is encrypted.
    pub handshake: Duration,
    /// How long a client may take until it has taken an answer.
    pub taking: Duration,
    /// Connections from other machines at the same time.
    pub connections: usize,
    /// Of those, from one address; and as many more from this machine.
    pub from_one_address: usize,
    /// Requests from other machines at the same time, beside one on each connection.
    pub requests: usize,
    /// Of those, from one address; and as many more from this machine.
    pub requests_from_one_address: usize,
    /// Bytes that all of that may take.
    pub memory: u64,
}

impl Limits {
    /// With so many streams of one HTTP/2 connection, and the rest as it always is.
    pub(in super::super) fn new(http2_streams: u32) -> Self {
        Self {
            http2_streams,
            handshake: HANDSHAKE_TIMEOUT,
            taking: TAKING_TIMEOUT,
            connections: CONNECTIONS,
            from_one_address: FROM_ONE_ADDRESS,
            requests: REQUESTS,
            requests_from_one_address: REQUESTS_FROM_ONE_ADDRESS,
            memory: MEMORY,
        }
    }

    /// Leaves some of the files that this process may open to others. A connection is one.
    pub(in super::super) fn within_open_files(self) -> Self {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        match open_files(&limits) {
            Some(files) => self.within(files),
            None => self,
        }
    }

    fn within(self, files: usize) -> Self {
        let all = self.connections + self.from_one_address;
        let left = files.saturating_sub(OTHER_FILES).max(files / 4);
        if left >= all {
            return self;
        }
        let part = |count: usize| (count * left / all).max(1);
        let limits = Self {
            connections: part(self.connections),
            from_one_address: part(self.from_one_address),
            ..self
        };
        tracing::warn!(
            files,
            connections = limits.connections,
            from_one_address = limits.from_one_address,
            "this process may open few files: the secure port takes fewer connections"
        );
        limits
    }

    /// Streams of one HTTP/2 connection, by whether its client is known by its certificate.
    pub(super) fn http2_streams(&self, is_known: bool) -> u32 {
        if is_known { self.http2_streams } else { self.http2_streams.min(STREAMS_OF_STRANGERS) }
    }
}

/// The soft limit in Linux' table of them. `None`: there is none, or it is not there.
fn open_files(limits: &str) -> Option<usize> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{
        super::paced::{READ, SILENT_SIZE},
        *,
    };

    #[test]
    fn some_files_are_left_to_others() {
        let table = "Limit                     Soft Limit           Hard Limit           Units\n\
                     Max processes             127235               127235               processes\n\
                     Max open files            1024                 524288               files\n";
        assert_eq!(open_files(table), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files"),
            None
        );
        assert_eq!(open_files(""), None);
        let limits = |files| {
            let limits = Limits::new(100).within(files);
            (limits.connections, limits.from_one_address)
        };
        assert_eq!(limits(1024), (256, 128));
        assert_eq!(limits(448), (128, 64));
        assert_eq!(limits(256), (42, 21));
        assert_eq!(limits(0), (1, 1));
    }

    #[test]
    fn there_is_memory_for_all() {
        // What the daemon may take in all, less what it takes without clients in a small cluster and some for a
        // large answer while it is made.
        const ALL: u64 = (128 - 32 - 16) << 20;
        let limits = Limits::new(100);
        let connections = limits.connections + limits.from_one_address;
        let requests = connections + limits.requests + limits.requests_from_one_address;
        let sum = connections as u64 * CONNECTION_MEMORY + requests as u64 * REQUEST_MEMORY;
        // So that nobody is thrown out who asks as everybody does, and a large answer has room beside that.
        assert!(sum <= limits.memory, "{} KiB", sum >> 10);
        assert!(limits.memory <= ALL);
        // Also where all that is open comes from this machine: most connections are in their handshakes then.
        let here = limits.from_one_address as u64 * (CONNECTION_MEMORY + HANDSHAKE_MEMORY);
        assert!(here + MAX_ANSWER <= limits.memory);
        // What a handshake has is no more than what is counted of it.
        let kernel = 2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER) as u64;
        let size = u64::from(HANDSHAKE_SIZE);
        let certificates = basics::tls::MAX_SIZE as u64;
        assert!(kernel + 3 * size + 2 * certificates + TASK <= CONNECTION_MEMORY + HANDSHAKE_MEMORY);
        // Nor is a message of a handshake after it: nothing is decrypted beside that.
        // The rest of a read, what may come, and one more read.
        assert!((READ + SILENT_SIZE + READ) as u64 <= RECORD + TLS_BUFFER as u64);
    }

    #[test]
    fn who_is_not_known_asks_little_at_once() {
        let limits = Limits::new(100);
        assert_eq!((limits.http2_streams(true), limits.http2_streams(false)), (100, STREAMS_OF_STRANGERS));
        assert_eq!(Limits::new(3).http2_streams(false), 3);
    }
}

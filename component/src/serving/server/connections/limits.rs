//! Limits for clients, and the memory that they imply. A test checks the sum.

use std::{fs, time::Duration};

use super::paced::HANDSHAKE_SIZE;
use crate::serving::server::{listener, responses::PIECE};

/// Timeout for a handshake, including the verification of the client's certificate.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to read a response.
const TAKING_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of connections from other machines at the same time.
const CONNECTIONS: usize = 256;

/// Maximum number of those from one address. This machine may have as many in addition.
const FROM_ONE_ADDRESS: usize = 128;

/// All connections of the secure port.
pub(in super::super) const ALL_CONNECTIONS: usize = CONNECTIONS + FROM_ONE_ADDRESS;

/// Maximum number of requests in progress from other machines, beside one on each connection.
const REQUESTS: usize = 192;

/// Maximum number of those from one address. This machine may have as many in addition.
const REQUESTS_FROM_ONE_ADDRESS: usize = 128;

/// Streams on an HTTP/2 connection of a client without a known certificate.
const STREAMS_OF_STRANGERS: u32 = 8;

/// Size of a request's head, in bytes. HTTP/2 counts 32 more for each field, which is about the cost of a
/// field.
pub(super) const HEADER_SIZE: u32 = 16 << 10;

/// Bytes of a request's body that are buffered before the server reads the body.
pub(super) const BODY_WINDOW: u32 = 4 << 10;

/// Bytes of a response that a connection buffers.
pub(in super::super) const SEND_BUFFER: usize = 8 << 10;

/// Encrypted bytes that the client has not read yet.
pub(in super::super) const TLS_BUFFER: usize = 16 << 10;

/// Bytes that clients can make the daemon hold, including the kernel's buffers: all connections, requests and
/// responses together. Connections in the accept queue are not counted: [`listener::BACKLOG`] connections
/// with a receive buffer each, 4 MiB more. The kernel holds these only until the port's thread accepts them.
const MEMORY: u64 = 80 << 20;

/// Received data is buffered as one TLS record at most until it is decrypted. The buffer includes the head of
/// a record.
const RECORD: u64 = 18 << 10;

/// Tasks, timers and tables of one connection or request.
const TASK: u64 = 8 << 10;

/// Maximum number of bytes for a connection without requests: the kernel's buffers, an incoming record, its
/// decrypted part, encrypted data, and the state of HTTP. For HTTP/2 that is a frame, a head in parts, frames
/// to send, and two tables of 4 KiB. HTTP/1.1 has less.
pub(super) const CONNECTION_MEMORY: u64 = 2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER) as u64
    + RECORD
    + 2 * TLS_BUFFER as u64
    + 3 * HEADER_SIZE as u64
    + (8 << 10)
    + TASK;

/// Additional bytes during a handshake. There is no HTTP state yet, but the buffer of its messages grows by
/// doubling, their certificates are held twice, and the transcript is kept, since a TLS 1.2 signature covers
/// it.
pub(in super::super) const HANDSHAKE_MEMORY: u64 = 2 * HANDSHAKE_SIZE as u64;

/// Maximum number of bytes for a request, beside its head and the waiting response: the part of the response
/// that is being sent, and the received part of its body.
pub(super) const REQUEST_MEMORY: u64 = SEND_BUFFER as u64 + PIECE as u64 + BODY_WINDOW as u64 + TASK;

/// Bytes of a response that count towards the limit. A larger response is sent too.
pub(super) const MAX_ANSWER: u64 = 12 << 20;

/// Open files that are reserved for other parts of the daemon: the API server, the cloud, the election.
pub(in super::super) const OTHER_FILES: usize = 256;

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    /// Maximum number of streams on one HTTP/2 connection.
    pub http2_streams: u32,
    /// Timeout for a handshake.
    pub handshake: Duration,
    /// How long a client may take to read a response.
    pub taking: Duration,
    /// Maximum number of connections from other machines at the same time.
    pub connections: usize,
    /// Maximum number of those from one address. This machine may have as many in addition.
    pub from_one_address: usize,
    /// Maximum number of requests in progress from other machines, beside one on each connection.
    pub requests: usize,
    /// Maximum number of those from one address. This machine may have as many in addition.
    pub requests_from_one_address: usize,
    /// Maximum number of bytes for all of the above.
    pub memory: u64,
}

impl Limits {
    /// The limits with this number of streams on one HTTP/2 connection, and fixed values otherwise.
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

    /// Reserves some of this process's file descriptors for other parts. A connection takes one.
    pub(in super::super) fn within_open_files(self) -> Self {
        let (connections, from_one_address) =
            within_open_files("the secure port", OTHER_FILES, (self.connections, self.from_one_address));
        Self { connections, from_one_address, ..self }
    }

    /// Maximum number of streams on one HTTP/2 connection. It depends on whether the client is known by its
    /// certificate.
    pub(super) fn http2_streams(&self, is_known: bool) -> u32 {
        if is_known { self.http2_streams } else { self.http2_streams.min(STREAMS_OF_STRANGERS) }
    }
}

/// How many connections from other machines and from one address `port` may take beside `others`, files of other parts. This
/// machine may have as many as one address in addition. A connection takes one file descriptor.
pub(in super::super) fn within_open_files(
    port: &str,
    others: usize,
    wanted: (usize, usize),
) -> (usize, usize) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(files) = open_files(&limits) else { return wanted };
    let (connections, from_one_address) = within(files, others, wanted);
    if (connections, from_one_address) != wanted {
        tracing::warn!(
            files,
            connections,
            from_one_address,
            "this process may open few files: {port} takes fewer connections"
        );
    }
    (connections, from_one_address)
}

fn within(files: usize, others: usize, wanted: (usize, usize)) -> (usize, usize) {
    let all = wanted.0 + wanted.1;
    let left = files.saturating_sub(others).max(files / 4);
    if left >= all {
        return wanted;
    }
    let part = |count: usize| (count * left / all).max(1);
    (part(wanted.0), part(wanted.1))
}

/// The soft limit in Linux' table of limits. `None`: unlimited, or not in the table.
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
        let limits = |files| within(files, OTHER_FILES, (CONNECTIONS, FROM_ONE_ADDRESS));
        assert_eq!(limits(1024), (256, 128));
        assert_eq!(limits(448), (128, 64));
        assert_eq!(limits(256), (42, 21));
        assert_eq!(limits(0), (1, 1));
    }

    #[test]
    fn there_is_memory_for_all() {
        // The limit of the daemon, minus its use without clients in a small cluster, minus some for building
        // a large response.
        const ALL: u64 = (128 - 32 - 16) << 20;
        let limits = Limits::new(100);
        let connections = limits.connections + limits.from_one_address;
        let requests = connections + limits.requests + limits.requests_from_one_address;
        let sum = connections as u64 * CONNECTION_MEMORY + requests as u64 * REQUEST_MEMORY;
        // Enough for ordinary clients without an eviction, with room for a large response.
        assert!(sum <= limits.memory, "{} KiB", sum >> 10);
        assert!(limits.memory <= ALL);
        // Also if all connections come from this machine, where most of them are in their handshakes.
        let here = limits.from_one_address as u64 * (CONNECTION_MEMORY + HANDSHAKE_MEMORY);
        assert!(here + MAX_ANSWER <= limits.memory);
        // A handshake takes no more than the amount that is counted for it.
        let kernel = 2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER) as u64;
        let size = u64::from(HANDSHAKE_SIZE);
        let certificates = basics::tls::MAX_SIZE as u64;
        assert!(kernel + 3 * size + 2 * certificates + TASK <= CONNECTION_MEMORY + HANDSHAKE_MEMORY);
        // The same holds for a handshake message after the handshake, since no data is decrypted meanwhile.
        // The rest of a read, the data that may follow, and one more read.
        assert!((READ + SILENT_SIZE + READ) as u64 <= RECORD + TLS_BUFFER as u64);
    }

    #[test]
    fn who_is_not_known_asks_little_at_once() {
        let limits = Limits::new(100);
        assert_eq!((limits.http2_streams(true), limits.http2_streams(false)), (100, STREAMS_OF_STRANGERS));
        assert_eq!(Limits::new(3).http2_streams(false), 3);
    }
}

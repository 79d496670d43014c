//! Limits for clients, and the memory that they imply. A test checks the sum.

use std::{fs, time::Duration};

use super::stream::HANDSHAKE_SIZE;
use crate::serving::server::{listener, responses::PIECE};

/// Streams on an HTTP/2 connection of a client without a trusted certificate.
pub(in super::super) const STREAMS_OF_STRANGERS: u32 = 8;

/// Size of a request's head, in bytes. HTTP/2 counts 32 more for each field, which is about the cost of a
/// field.
pub(super) const HEADER_SIZE: u32 = 16 << 10;

/// Flow-control window of an HTTP/2 connection: the least that HTTP/2 allows.
pub(in super::super) const CONNECTION_WINDOW: u32 = 64 << 10;

/// Bytes of a response that a connection buffers.
pub(super) const SEND_BUFFER: usize = 8 << 10;

/// Encrypted bytes that the client has not read yet.
pub(super) const TLS_BUFFER: usize = 16 << 10;

/// The largest message of a handshake, which TLS buffers until its end, also after the handshake.
const TLS_MESSAGE: usize = 64 << 10;

/// Tasks, timers and tables of one connection or request.
const TASK: usize = 8 << 10;

/// Maximum number of bytes for a connection without requests: the kernel's buffers, an incoming message of TLS, its decrypted part,
/// encrypted data, and the state of HTTP. For HTTP/2 that is a frame, a head in parts, frames to send, and two tables of 4 KiB.
/// HTTP/1.1 has less.
pub(super) const CONNECTION_MEMORY: u64 = (2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER)
    + TLS_MESSAGE
    + 2 * TLS_BUFFER
    + 3 * HEADER_SIZE as usize
    + (8 << 10)
    + TASK) as u64;

/// Additional bytes during a handshake. There is no HTTP state yet, but its certificates are held twice, and the transcript is kept,
/// since a TLS 1.2 signature covers it.
pub(super) const HANDSHAKE_MEMORY: usize = 2 * HANDSHAKE_SIZE;

/// Maximum number of bytes for a request, beside its head and the waiting response: the part of the response
/// that is being sent, and the received part of its body.
pub(super) const REQUEST_MEMORY: usize = SEND_BUFFER + PIECE + (4 << 10) + TASK;

/// Bytes of a response that count towards the limit. A larger response is sent too.
pub(super) const MAX_ANSWER: usize = 12 << 20;

/// Open files that are reserved for other parts of the daemon: the API server, the cloud, the election.
pub(in super::super) const OTHER_FILES: usize = 256;

/// Limits for the clients of a port.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    /// Maximum number of connections of this node at the same time.
    pub here: usize,
    /// Maximum number of connections of all other clients.
    pub elsewhere: usize,
    /// Bytes that clients can make the daemon hold, including the kernel's buffers. Connections in the accept queue are not counted:
    /// [`listener::BACKLOG`] connections with a receive buffer each, 4 MiB more.
    pub memory: u64,
    /// Maximum number of streams on an HTTP/2 connection of a client with a trusted certificate.
    pub http2_streams: u32,
    /// Bytes of a body that are received before it is read.
    pub body_window: u32,
    /// Decrypted bytes that are read before it is the turn of another connection. A frame of nine bytes can need a reply, and each
    /// byte of a head can be a compressed field.
    pub portion: usize,
    /// How long a handshake may take, including the verification of the client's certificate.
    pub handshake: Duration,
    /// How long a client may take to read a response.
    pub reading: Duration,
}

impl Limits {
    /// Those of the secure port, with this number of streams on one HTTP/2 connection.
    pub(in super::super) const fn secure_port(http2_streams: u32) -> Self {
        Self {
            here: 96,
            elsewhere: 192,
            memory: 80 << 20,
            http2_streams,
            body_window: 4 << 10,
            // About the head of a typical request.
            portion: 512,
            handshake: Duration::from_secs(10),
            reading: Duration::from_secs(30),
        }
    }

    /// Reserves `others`, files of other parts, among those that this process may open. A connection takes one.
    pub(in super::super) fn within_open_files(self, port: &str, others: usize) -> Self {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let Some(files) = open_files(&limits) else { return self };
        let fewer = self.within(files, others);
        if fewer.elsewhere < self.elsewhere {
            tracing::warn!(
                files,
                connections = fewer.elsewhere,
                from_this_node = fewer.here,
                "this process may open few files: {port} takes fewer connections"
            );
        }
        fewer
    }

    fn within(self, files: usize, others: usize) -> Self {
        let all = self.here + self.elsewhere;
        let left = files.saturating_sub(others).max(files / 4).min(all);
        let part = |count: usize| (count * left / all).max(1);
        Self { here: part(self.here), elsewhere: part(self.elsewhere), ..self }
    }

    /// Maximum number of streams on an HTTP/2 connection.
    pub(super) fn streams(&self, is_known: bool) -> u32 {
        if is_known { self.http2_streams } else { self.http2_streams.min(STREAMS_OF_STRANGERS) }
    }
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
    use super::*;

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
            let limits = Limits::secure_port(100).within(files, OTHER_FILES);
            (limits.elsewhere, limits.here)
        };
        assert_eq!(limits(1024), (192, 96));
        assert_eq!(limits(400), (96, 48));
        assert_eq!(limits(256), (42, 21));
        assert_eq!(limits(0), (1, 1));
    }

    #[test]
    fn there_is_memory_for_all() {
        // The limit of the daemon, minus its use without clients in a small cluster, minus some for building
        // a large response.
        const ALL: u64 = (128 - 32 - 16) << 20;
        let limits = Limits::secure_port(100);
        assert!(limits.memory <= ALL);
        // Enough for all connections with a request each and a large response, without an eviction.
        let connections = (limits.here + limits.elsewhere) as u64;
        let sum = connections * (CONNECTION_MEMORY + REQUEST_MEMORY as u64) + MAX_ANSWER as u64;
        assert!(sum <= limits.memory, "{} KiB", sum >> 10);
        // A handshake takes no more than the amount that is counted for it.
        let kernel = 2 * (listener::RECEIVE_BUFFER + listener::SEND_BUFFER);
        let certificates = basics::tls::MAX_SIZE;
        let handshake = kernel + TLS_MESSAGE + HANDSHAKE_SIZE + 2 * certificates + TASK;
        assert!(handshake as u64 <= CONNECTION_MEMORY + HANDSHAKE_MEMORY as u64);
    }

    #[test]
    fn clients_without_a_trusted_certificate_have_few_streams() {
        let limits = Limits::secure_port(100);
        assert_eq!((limits.streams(true), limits.streams(false)), (100, STREAMS_OF_STRANGERS));
        assert_eq!(Limits::secure_port(3).streams(false), 3);
    }
}

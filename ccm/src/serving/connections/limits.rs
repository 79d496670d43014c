//! What clients may use.

use std::{fs, time::Duration};

/// How long a client may take until it is encrypted, and its certificate is verified.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take until it has taken an answer.
const TAKING_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections from other machines at the same time.
const CONNECTIONS: usize = 512;

/// Of those, from one address; and as many more from this machine.
const FROM_ONE_ADDRESS: usize = 128;

/// Requests from other machines at the same time, beside one on each connection.
const REQUESTS: usize = 512;

/// Of those, from one address; and as many more from this machine.
const REQUESTS_FROM_ONE_ADDRESS: usize = 128;

/// Streams of an HTTP/2 connection whose client showed no certificate that is known.
const STREAMS_OF_STRANGERS: u32 = 8;

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
            let limits = Limits::new(100).within(files);
            (limits.connections, limits.from_one_address)
        };
        assert_eq!(limits(1024), (512, 128));
        assert_eq!(limits(576), (256, 64));
        assert_eq!(limits(256), (51, 12));
        assert_eq!(limits(0), (1, 1));
    }

    #[test]
    fn who_is_not_known_asks_little_at_once() {
        let limits = Limits::new(100);
        assert_eq!((limits.http2_streams(true), limits.http2_streams(false)), (100, STREAMS_OF_STRANGERS));
        assert_eq!(Limits::new(3).http2_streams(false), 3);
    }
}

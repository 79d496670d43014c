//! Limits the number of requests in progress.
//!
//! Each connection has its own place for one request, and the number of connections is limited. More requests
//! at the same time, which HTTP/2 permits, take additional places. Their number is limited for each source
//! and in total, so that no client can block the requests of another one. A place is free again when the
//! HTTP library has the whole response, or the client does not want it any more.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::serving::server::source::Source;

/// Counts requests in progress. Clones share the counts.
#[derive(Clone, Debug)]
pub(in super::super) struct Requests {
    further: Arc<Mutex<Further>>,
    most: usize,
    from_one_source: usize,
}

/// The places in use beside the first one of each connection.
#[derive(Debug, Default)]
struct Further {
    /// From other machines.
    all: usize,
    by_source: HashMap<Source, usize>,
}

/// The requests on one connection.
#[derive(Debug)]
pub(in super::super) struct OfConnection {
    requests: Requests,
    source: Source,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// Whether the connection's own place is in use.
    first: bool,
    /// For each response that is ready but not yet read: since when.
    answered: BTreeMap<u64, Instant>,
}

/// The place of one request. It is free again when dropped.
#[derive(Debug)]
pub(in super::super) struct Place {
    connection: Arc<OfConnection>,
    id: u64,
    is_first: bool,
}

impl Requests {
    /// `most` additional places for all other machines, and `from_one_source` for each of them and for this
    /// one.
    pub(in super::super) fn new(most: usize, from_one_source: usize) -> Self {
        Self { further: Arc::default(), most, from_one_source }
    }

    pub(in super::super) fn of_connection(&self, source: Source) -> Arc<OfConnection> {
        Arc::new(OfConnection { requests: self.clone(), source, places: Mutex::default() })
    }

    fn take(&self, source: Source) -> bool {
        let mut further = self.further.lock();
        let of_source = further.by_source.get(&source).copied().unwrap_or_default();
        let is_full = source != Source::Here && further.all >= self.most;
        if is_full || of_source >= self.from_one_source {
            return false;
        }
        further.by_source.insert(source, of_source + 1);
        further.all += usize::from(source != Source::Here);
        true
    }

    fn give_back(&self, source: Source) {
        let mut further = self.further.lock();
        further.all -= usize::from(source != Source::Here);
        if let Some(of_source) = further.by_source.get_mut(&source) {
            *of_source -= 1;
            if *of_source == 0 {
                further.by_source.remove(&source);
            }
        }
    }
}

impl OfConnection {
    /// A place for a request. `None`: there are too many requests.
    pub(in super::super) fn begin(self: &Arc<Self>) -> Option<Place> {
        let mut places = self.places.lock();
        let is_first = !std::mem::replace(&mut places.first, true);
        if !is_first && !self.requests.take(self.source) {
            return None;
        }
        places.next += 1;
        Some(Place { connection: self.clone(), id: places.next, is_first })
    }

    /// Waits until the client has left a response unread for `limit`.
    pub(in super::super) async fn is_stuck(&self, limit: Duration) {
        loop {
            sleep(limit / 8).await;
            let oldest = self.places.lock().answered.values().min().copied();
            if oldest.is_some_and(|since| since.elapsed() >= limit) {
                return;
            }
        }
    }
}

impl Place {
    /// Records that the response is ready, and that the client has to read it.
    pub(in super::super) fn answered(&self) {
        self.connection.places.lock().answered.insert(self.id, Instant::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.connection.places.lock();
        places.answered.remove(&self.id);
        if self.is_first {
            places.first = false;
        } else {
            self.connection.requests.give_back(self.connection.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn there(last: u8) -> Source {
        Source::of(IpAddr::from([192, 0, 2, last]), None)
    }

    fn begin(connection: &Arc<OfConnection>, count: usize) -> Vec<Place> {
        (0..count).map_while(|_| connection.begin()).collect()
    }

    #[test]
    fn each_connection_has_a_place_and_shares_the_others() {
        let requests = Requests::new(5, 3);
        let [one, same, other, third] = [1, 1, 2, 3].map(|source| requests.of_connection(there(source)));
        let mut of_one = begin(&one, 9);
        assert_eq!(of_one.len(), 1 + 3, "one address has its share");
        let of_same = begin(&same, 9);
        assert_eq!(of_same.len(), 1, "and shares it among its connections");
        let of_other = begin(&other, 9);
        assert_eq!(of_other.len(), 1 + 2, "all together have so many");
        assert_eq!(begin(&third, 9).len(), 1);
        let here = requests.of_connection(Source::Here);
        let of_here = begin(&here, 9);
        assert_eq!(of_here.len(), 1 + 3, "this machine has its own");
        of_one.pop();
        assert!(one.begin().is_some());
        drop(of_one);
        assert_eq!(begin(&one, 9).len(), 1 + 3);
        drop((of_same, of_other, of_here));
        let further = requests.further.lock();
        assert_eq!((further.all, further.by_source.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_take_its_answer_is_found() {
        let limit = Duration::from_secs(30);
        let connection = Requests::new(5, 3).of_connection(there(1));
        let stuck = |patience: Duration| tokio::time::timeout(patience, connection.is_stuck(limit));
        let (slow, taken) = (connection.begin().expect("a place"), connection.begin().expect("a place"));
        stuck(10 * limit).await.expect_err("nothing is answered yet");
        taken.answered();
        drop(taken);
        slow.answered();
        stuck(limit / 2).await.expect_err("there is time");
        stuck(limit).await.expect("too long");
    }
}

//! Images in memory.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::super::{
    fetch::{Fetch, Origin},
    limits::Source,
};

/// What a server sends at once.
const BLOCK: usize = 10_000;

/// What a server has.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    /// Whether the server says how long it is.
    pub(crate) has_length: bool,
    /// The connection breaks after so many bytes.
    pub(crate) breaks_after: Option<usize>,
    /// The time between two blocks.
    pub(crate) pace: Duration,
    /// Each block needs a permit.
    pub(crate) gate: Option<Arc<Semaphore>>,
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, has_length: true, breaks_after: None, pace: Duration::ZERO, gate: None }
    }
}

/// Servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeFetch(Arc<Mutex<Servers>>);

#[derive(Debug, Default)]
struct Servers {
    bodies: HashMap<String, Body>,
    opened: HashMap<String, usize>,
    open: usize,
    most_at_once: usize,
}

impl FakeFetch {
    /// Sets what a server has.
    pub(crate) fn serve(&self, origin: &Origin, body: impl Into<Body>) {
        self.0.lock().bodies.insert(origin.to_string(), body.into());
    }

    /// How many times something was fetched.
    pub(crate) fn opened(&self) -> usize {
        self.0.lock().opened.values().sum()
    }

    /// How many times something was fetched from there.
    pub(crate) fn opened_from(&self, origin: &Origin) -> usize {
        self.0.lock().opened.get(&origin.to_string()).copied().unwrap_or(0)
    }

    /// How much was fetched at the same time at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.0.lock().most_at_once
    }
}

#[async_trait]
impl Fetch for FakeFetch {
    async fn open(&self, origin: &Origin) -> Result<Box<dyn Source>> {
        let mut servers = self.0.lock();
        *servers.opened.entry(origin.to_string()).or_default() += 1;
        match servers.bodies.get(&origin.to_string()).cloned() {
            Some(body) => {
                servers.open += 1;
                servers.most_at_once = servers.most_at_once.max(servers.open);
                Ok(Box::new(Reading { body, at: 0, fetch: self.clone() }))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("{origin}: the server answers 404"))),
        }
    }
}

struct Reading {
    body: Body,
    at: usize,
    fetch: FakeFetch,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.fetch.0.lock().open -= 1;
    }
}

#[async_trait]
impl Source for Reading {
    fn length(&self) -> Option<u64> {
        self.body.has_length.then_some(self.body.bytes.len() as u64)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        tokio::time::sleep(self.body.pace).await;
        if let Some(gate) = &self.body.gate {
            gate.acquire().await.expect("open").forget();
        }
        if self.body.breaks_after.is_some_and(|after| self.at >= after) {
            return Err(Error::new(ErrorKind::Unavailable, "the server has closed the connection"));
        }
        let end = self.body.bytes.len().min(self.at + BLOCK);
        let block = self.body.bytes.slice(self.at..end);
        self.at = end;
        Ok(Some(block).filter(|block| !block.is_empty()))
    }
}

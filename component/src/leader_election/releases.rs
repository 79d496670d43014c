//! Tells a standby that the Lease was released, so that it need not wait for its next read.
//!
//! This is only a hint. The standby then reads the Lease and decides by its content. So a watch that is late,
//! wrong or forbidden costs time but never safety.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until};

use super::{lock::Lock, step::Record};

/// Pause before a watch that ended is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// The same pause after a refusal, since permissions change rarely.
const REOPEN_FORBIDDEN: Duration = Duration::from_secs(300);

/// Watches one Lease.
pub(super) struct Releases {
    lock: Lock,
    watch: Option<BoxStream<'static, kube::Result<WatchEvent<Lease>>>>,
    open_at: Instant,
    /// Whether the Lease may be watched, as far as is known. A Go CCM does not need this permission, so it
    /// may be missing.
    pub(super) allowed: bool,
}

impl Releases {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock, watch: None, open_at: Instant::now(), allowed: true }
    }

    /// Waits until the Lease has no holder. Cancel-safe.
    pub(super) async fn next(&mut self) {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                None => {
                    sleep_until(self.open_at).await;
                    let params = WatchParams::default().fields(&format!("metadata.name={}", self.lock.name));
                    // From version 0, the watch begins with the present Lease, so no change in between is
                    // missed.
                    match self.lock.api.watch(&params, "0").await {
                        Ok(watch) => self.watch.insert(watch.boxed()),
                        Err(error) => {
                            self.close(&error);
                            continue;
                        }
                    }
                }
            };
            match watch.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    self.allowed = true;
                    if Record::read(lease.spec.as_ref()).holder.is_empty() {
                        return;
                    }
                }
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(WatchEvent::Bookmark(_))) => self.allowed = true,
                Some(Ok(WatchEvent::Error(status))) => self.close(&kube::Error::Api(status)),
                Some(Err(error)) => self.close(&error),
                None => self.reopen_after(REOPEN),
            }
        }
    }

    fn close(&mut self, error: &kube::Error) {
        let forbidden = matches!(error, kube::Error::Api(status) if status.code == 403);
        if forbidden && self.allowed {
            tracing::info!(
                "the lease may not be watched (RBAC verb watch): a standby looks at it more often instead"
            );
            self.allowed = false;
        }
        self.reopen_after(if forbidden { REOPEN_FORBIDDEN } else { REOPEN });
    }

    fn reopen_after(&mut self, pause: Duration) {
        self.watch = None;
        self.open_at = Instant::now() + pause;
    }
}

//! What is done from time to time, or when claims were read: what nobody has any more is given up.

use std::time::Duration;

use cloudprovider::ServiceRef;
use futures::{StreamExt as _, stream};
use tokio::time::sleep;

use super::Inner;
use crate::{
    announce::{Fault, Holds},
    faults::Faults,
    ledger::Ledger,
};

/// How often it is looked whether all held addresses are on their interfaces. Longer than the announcer needs to remedy what
/// it can.
pub(super) const FAULT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How many Services that are gone are given up at once.
const RELEASE_CONCURRENCY: usize = 8;

/// How often all claims are read anew, and those of Services that are gone are given up.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// How long after Services that lack an address were tried again the next try begins, however many addresses become free.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is looked whether a term has begun in which no Service has asked for anything yet.
pub(super) const BEGIN_INTERVAL: Duration = Duration::from_secs(10);

impl Inner {
    /// At the beginning of each term, gives up what Services have that are gone: nobody asks for them any more.
    pub(super) async fn sweep_at_begin(&self) {
        let Ok(ledger) = self.ledger() else { return };
        let mut swept = None;
        loop {
            sleep(BEGIN_INTERVAL).await;
            let term = ledger.term();
            if swept == Some(term) || ledger.services().alone_for().is_zero() {
                continue;
            }
            match ledger.gone_at_begin().await {
                Ok(gone) => {
                    swept = Some(term);
                    self.release_gone(ledger, gone).await;
                }
                Err(error) => {
                    tracing::debug!(
                        error = error.report(),
                        "cannot look for addresses of Services that are gone"
                    );
                }
            }
        }
    }

    /// When an address becomes free that a Service lacks, has the Services tried again that wait.
    pub(super) async fn retry_when_freed(&self) {
        let Ok(ledger) = self.ledger() else { return };
        loop {
            ledger.was_freed().await;
            ledger.services().retry_waiting();
            sleep(RETRY_INTERVAL).await;
        }
    }

    pub(super) async fn sweep_regularly(&self) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let Ok(ledger) = self.ledger() else { return };
            self.sweep(ledger).await;
        }
    }

    pub(super) async fn sweep(&self, ledger: &Ledger) {
        match ledger.sweep().await {
            Ok(gone) => self.release_gone(ledger, gone).await,
            Err(error) => {
                tracing::warn!(error = error.report(), "cannot look for addresses of Services that are gone");
            }
        }
    }

    /// Tells of addresses that are held and that no interface has, and tries again what could not be held.
    pub(super) async fn watch_faults(&self) {
        let (Some(holds), Ok(ledger)) = (&self.holds, self.ledger()) else { return };
        let mut faults = Faults::default();
        loop {
            sleep(FAULT_CHECK_INTERVAL).await;
            let news = faults.note(holds.faults());
            for Fault { address, why } in news.lost {
                let message = format!(
                    "{address} is not announced at the moment: {why}; it is announced again when that is remedied"
                );
                for service in ledger.with(|index| index.holders(address)).unwrap_or_default() {
                    ledger.services().warn(&service, "AddressNotAnnounced", message.clone());
                }
            }
            for address in news.back {
                tracing::info!(%address, "the address is announced again, or not held any more");
            }
            if holds.retry().await {
                ledger.services().retry_waiting();
            }
        }
    }

    /// Whenever all claims were read, gives up announced addresses without a claim: an earlier load balancer may have
    /// handed over more than is true by now, or somebody deleted claims.
    pub(super) async fn announce_claims_only(&self) {
        let (Some(holds), Ok(ledger)) = (&self.holds, self.ledger()) else { return };
        loop {
            tokio::select! {
                () = ledger.was_read() => self.release_unclaimed(holds, ledger).await,
                () = holds.taken_over() => {
                    if let Err(error) = ledger.read_anew().await {
                        tracing::warn!(error = error.report(), "cannot read the claims of the addresses taken over");
                    }
                }
            }
        }
    }

    async fn release_unclaimed(&self, holds: &Holds, ledger: &Ledger) {
        let find = || {
            let unclaimed =
                ledger.with(|index| holds.unclaimed(|uid, address| index.is_of_service(uid, address)));
            unclaimed.unwrap_or_default()
        };
        if find().is_empty() {
            return;
        }
        // Nobody claims one of them meanwhile.
        let _closed = ledger.close().await;
        for (uid, address) in find() {
            tracing::info!(%address, "the address is not claimed any more, so it is announced no longer");
            if let Err(error) = holds.release_one(&uid, address).await {
                tracing::warn!(%address, error = error.report(), "cannot give up an announced address");
            }
        }
    }

    /// Gives up what Services have that are gone. What fails is tried in the next sweep.
    pub(super) async fn release_gone(&self, ledger: &Ledger, gone: Vec<ServiceRef>) {
        let release = async |service: ServiceRef| {
            tracing::info!(service = %service, "gives up the addresses of a Service that is gone");
            self.local.forget(&service.uid);
            self.warnings.forget(&service.uid);
            let released = async {
                // Another Service may get the address as soon as the claim is gone.
                if let Some(holds) = &self.holds {
                    holds.release(&service.uid).await?;
                }
                let _open = ledger.open().await?;
                ledger.release_all(&service).await
            };
            if let Err(error) = released.await {
                tracing::warn!(
                    service = %service,
                    error = error.report(),
                    "cannot give up the addresses of a Service that is gone"
                );
            }
        };
        stream::iter(gone).map(release).buffer_unordered(RELEASE_CONCURRENCY).collect::<()>().await;
    }
}

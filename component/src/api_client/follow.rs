//! Follows the kubeconfig, or the service account's token and CA, and every file that they name.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{ApiServer, connection::Endpoint, location::Location};
use crate::{
    files::FileChanges,
    reload::{ReloadReporter, Source},
};

/// Pause before a refused version is tried again. The API server may have been away at the time.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// A plugin's credentials are replaced this long before they expire, but not before four fifths of their
/// lifetime are over.
const BEFORE_END: Duration = Duration::from_secs(60);

impl ApiServer {
    /// Applies new versions of the files until `stop` is cancelled. A version that cannot be used, or that
    /// the API server refuses, is reported and ignored; the previous one stays in use.
    pub async fn follow(self, reporter: ReloadReporter, stop: CancellationToken) {
        let changes = self.changes.lock().take();
        if let (Some(location), Some(changes)) = (self.location.clone(), changes) {
            stop.run_until_cancelled(self.follow_files(&location, changes, &reporter)).await;
        } else {
            stop.cancelled().await;
        }
    }

    async fn follow_files(&self, location: &Location, mut changes: FileChanges, reporter: &ReloadReporter) {
        let mut refused: Option<String> = None;
        let source = Source::of_kubeconfig(location.flag);
        loop {
            let before = self.connection.current();
            let end = before.validity.and_then(|validity| validity.end);
            self.metrics.set_plugin_end(before.certificate_end());
            // In a pod the token is replaced once an hour.
            let mut by_design = location.kubeconfig.is_none();
            tokio::select! {
                () = changes.changed() => {}
                () = sleep(TRY_AGAIN), if refused.is_some() => {}
                () = nearly(end) => by_design = true,
                () = self.refused(&before), if before.validity.is_some() => by_design = true,
            }
            match read(location, &mut changes, &before).await {
                Ok([main, election]) => {
                    if before.certificate_end().is_some() {
                        self.metrics.plugin_rotated(before.made.elapsed());
                    }
                    self.connection.replace(main.into());
                    self.election.replace(election.into());
                    if refused.take().is_some() || !by_design {
                        reporter.succeeded(source);
                    } else {
                        reporter.renewed(source);
                    }
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    if refused.as_ref() != Some(&why) {
                        reporter.failed(source, &why);
                    }
                    refused = Some(why);
                }
            }
        }
    }

    /// Waits until the API server refuses the credentials of `endpoint`. Refusals of credentials that were
    /// just read are ignored.
    async fn refused(&self, endpoint: &Endpoint) {
        sleep(TRY_AGAIN.saturating_sub(endpoint.made.elapsed())).await;
        let election = self.election.current();
        tokio::select! {
            () = endpoint.refused() => {}
            () = election.refused() => {}
        }
    }
}

/// Reads the current files and checks that they work. From now on `changes` watches the files that they name.
async fn read(
    location: &Location,
    changes: &mut FileChanges,
    before: &Endpoint,
) -> anyhow::Result<[Endpoint; 2]> {
    let files = location.load().await?.files;
    if !files.iter().eq(changes.paths()) {
        *changes = FileChanges::new(files).await;
    }
    // Read again, because changes before this point are not noticed later.
    let ready = location.ready().await?;
    let main = Endpoint::new(ready.clone()).await?;
    main.probe(before).await?;
    Ok([main, Endpoint::new(ready).await?])
}

async fn nearly(end: Option<Timestamp>) {
    let Some(end) = end else { return std::future::pending().await };
    let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
    // Never at once: a plugin that prints expired credentials must not be run in a tight loop.
    sleep(left.saturating_sub(BEFORE_END.min(left / 5)).max(TRY_AGAIN)).await;
}

//! What the log tells of the listings.

use cloudprovider::{Error, LogOnce};

use crate::cattle::inventory::Inventory;

/// The troubles that were logged.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    listing: LogOnce,
    unreadable: LogOnce,
    events: LogOnce,
}

impl Troubles {
    /// Tells how a listing ended.
    pub(super) fn of_listing(&mut self, outcome: Result<&Inventory, &Error>) {
        match outcome {
            Ok(inventory) => {
                tracing::debug!(hosts = inventory.len(), "the hosts were listed");
                if self.listing.changes_to(None) {
                    tracing::info!(hosts = inventory.len(), "the hosts can be listed again");
                }
                let unreadable = inventory.unreadable();
                if self.unreadable.changes_to(unreadable) {
                    match unreadable {
                        Some(why) => tracing::warn!("{why}; until it can, no host counts as gone"),
                        None => tracing::info!("all hosts can be read again"),
                    }
                }
            }
            Err(error) => {
                let why = error.report();
                if self.listing.changes_to(Some(&why)) {
                    tracing::warn!(error = %why, "the hosts cannot be listed; until they can, none counts as gone");
                }
            }
        }
    }

    /// Tells how a subscription to events ended.
    pub(super) fn of_events(&mut self, trouble: Option<&Error>) {
        let why = trouble.map(Error::report);
        if self.events.changes_to(why.as_deref()) {
            match why {
                Some(why) => {
                    tracing::info!(error = %why, "there are no events, so the hosts are listed more often");
                }
                None => tracing::info!("events arrive again"),
            }
        }
    }
}

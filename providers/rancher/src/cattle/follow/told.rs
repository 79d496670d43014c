//! What the log tells of the listings: each trouble once, until it changes or is over.

use cloudprovider::Error;

use crate::cattle::inventory::Inventory;

/// The troubles that were told.
#[derive(Debug, Default)]
pub(super) struct Told {
    listing: Option<String>,
    unreadable: Option<String>,
    events: Option<String>,
}

impl Told {
    /// Tells how a listing ended.
    pub(super) fn of_listing(&mut self, outcome: Result<&Inventory, &Error>) {
        match outcome {
            Ok(inventory) => {
                tracing::debug!(hosts = inventory.len(), "the hosts were listed");
                if is_news(&mut self.listing, None) {
                    tracing::info!(hosts = inventory.len(), "the hosts can be listed again");
                }
                let unreadable = inventory.unreadable();
                if is_news(&mut self.unreadable, unreadable.map(str::to_owned)) {
                    match unreadable {
                        Some(why) => tracing::warn!("{why}; until it can, no host counts as gone"),
                        None => tracing::info!("all hosts can be read again"),
                    }
                }
            }
            Err(error) => {
                let why = error.report();
                if is_news(&mut self.listing, Some(why.clone())) {
                    tracing::warn!(error = %why, "the hosts cannot be listed; until they can, none counts as gone");
                }
            }
        }
    }

    /// Tells how a subscription to events ended.
    pub(super) fn of_events(&mut self, trouble: Option<&Error>) {
        let why = trouble.map(Error::report);
        if is_news(&mut self.events, why.clone()) {
            match why {
                Some(why) => {
                    tracing::info!(error = %why, "there are no events, so the hosts are listed more often");
                }
                None => tracing::info!("events arrive again"),
            }
        }
    }
}

/// Whether this is news: another trouble than the one told before, or none after one.
fn is_news(told: &mut Option<String>, trouble: Option<String>) -> bool {
    let is_news = *told != trouble;
    *told = trouble;
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_until_it_changes_or_is_over() {
        let mut told = None;
        for (trouble, expected) in [
            (None, false),
            (Some("away"), true),
            (Some("away"), false),
            (Some("refused"), true),
            (Some("refused"), false),
            (None, true),
            (None, false),
            (Some("refused"), true),
        ] {
            assert_eq!(is_news(&mut told, trouble.map(str::to_owned)), expected, "{trouble:?}");
        }
    }
}

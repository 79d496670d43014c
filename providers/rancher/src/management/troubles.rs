//! What the log tells of the machines.

use cloudprovider::{Error, LogOnce};

use super::provisioning::Foreign;

/// What it costs that the bootstraps may not be read.
pub(super) const NO_ADDRESSES: &str =
    "the token may not list and watch rkebootstraps (rke.cattle.io), so the addresses there are not known";

/// What it costs that the server's nodes cannot be watched.
pub(super) const NOT_WATCHED: &str =
    "the server's nodes cannot be watched, and are listed every pollInterval instead";

/// The troubles that were logged, and where the machines come from.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    listing: LogOnce,
    unreadable: LogOnce,
    addresses: LogOnce,
    mirror: LogOnce,
    origin: LogOnce,
}

impl Troubles {
    /// Tells that the machines were listed.
    pub(super) fn listed(&mut self, machines: usize) {
        tracing::debug!(machines, "the machines were listed");
        if self.listing.changes_to(None) {
            tracing::info!(machines, "the machines can be listed again");
        }
    }

    /// Tells why the machines cannot be listed.
    pub(super) fn not_listed(&mut self, error: &Error) {
        let why = error.report();
        if self.listing.changes_to(Some(&why)) {
            tracing::warn!(error = %why, "the machines cannot be listed; until they can, none counts as gone");
        }
    }

    /// Tells which nodes of the server cannot be read, if any.
    pub(super) fn unreadable(&mut self, nodes: Option<&str>) {
        if self.unreadable.changes_to(nodes) {
            match nodes {
                Some(words) => tracing::warn!("{words}"),
                None => tracing::info!("all nodes of the server can be read again"),
            }
        }
    }

    /// Tells whether the addresses of machines may be read, that is, the bootstraps.
    pub(super) fn addresses(&mut self, refusal: Option<&Error>) {
        let why = refusal.map(Error::report);
        if self.addresses.changes_to(why.as_deref()) {
            match why {
                Some(why) => tracing::warn!(error = %why, "{NO_ADDRESSES}"),
                None => tracing::info!("the rkebootstraps can be read again"),
            }
        }
    }

    /// Tells whether the server's nodes may be watched.
    pub(super) fn mirror(&mut self, refusal: Option<&Error>) {
        let why = refusal.map(Error::report);
        if self.mirror.changes_to(why.as_deref()) {
            match why {
                Some(why) => tracing::warn!(error = %why, "{NOT_WATCHED}"),
                None => tracing::info!("the server's nodes can be watched again"),
            }
        }
    }

    /// Tells where the machines of a cluster come from: from its Machines, or why not.
    pub(super) fn origin(&mut self, cluster: &str, foreign: Option<Foreign>) {
        let words = foreign.map_or("its machines are Rancher's", Foreign::words);
        if !self.origin.changes_to(Some(&format!("{cluster}: {words}"))) {
            return;
        }
        match foreign {
            None => tracing::info!(cluster, "the Machines of the cluster are watched"),
            Some(Foreign::Forbidden) => {
                tracing::warn!(
                    cluster,
                    reason = words,
                    "the cluster's nodes in Rancher are followed, and no Node is deleted"
                );
            }
            Some(_) => {
                tracing::info!(
                    cluster,
                    reason = words,
                    "the cluster's nodes in Rancher are followed, and no Node is deleted"
                );
            }
        }
    }
}

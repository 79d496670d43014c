//! Watches the server's nodes, which mirror the Nodes of a cluster whose machines are not Rancher's.
//!
//! They are objects of `management.cattle.io`, which Rancher 2.9 shows to administrators alone. All others
//! list them by `/v3/nodes`.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind, Result};
use futures::StreamExt as _;
use kube::{
    Api,
    runtime::watcher::{self, watcher},
};
use tokio::time::{Instant, sleep_until};

use super::{
    cluster::Cluster,
    inventory::{Change, Listing, Machines, SourceOfTruth},
    machine::Machine,
    node_objects::{self, NodeObject},
    nodes,
    transport::watch_error,
    troubles::{NOT_WATCHED, Troubles},
    watches::{self, Step, ended, until_error},
};
use crate::norman::reply::unavailable;

/// The watch of the nodes of one cluster.
pub(super) struct Mirror<'a> {
    pub(super) kubernetes: &'a kube::Client,
    pub(super) cluster: &'a Cluster,
    pub(super) machines: &'a Machines,
    pub(super) began: Instant,
    pub(super) page_size: u32,
    pub(super) refresh_interval: Duration,
}

/// How a watch ended.
pub(super) enum MirrorEnd {
    /// The next listing is due.
    Due,
    /// The nodes cannot be watched.
    NotWatched {
        why: Error,
        /// Whether they were listed before that. If not, they may be listed another way.
        is_listed: bool,
    },
}

impl Mirror<'_> {
    /// Lists the nodes, and watches them until the next listing is due.
    ///
    /// # Errors
    /// Why the inventory is stale.
    pub(super) async fn watch(&self, troubles: &mut Troubles) -> Result<MirrorEnd> {
        let kind = node_objects::kind();
        let namespace = &self.cluster.id;
        let api: Api<NodeObject> = Api::namespaced_with(self.kubernetes.clone(), namespace, &kind);
        let mut events = std::pin::pin!(until_error(watcher(api, watches::config(self.page_size))));
        let mut listed = Some(Vec::new());
        loop {
            let is_listed = listed.is_none();
            let next = tokio::select! {
                next = events.next() => next,
                () = self.machines.listing_wanted(), if is_listed => return Ok(MirrorEnd::Due),
                () = sleep_until(self.began + self.refresh_interval), if is_listed => {
                    troubles.mirror(None);
                    return Ok(MirrorEnd::Due);
                }
            };
            let step = match next {
                None => return Err(unavailable("the watch of nodes ended")),
                Some(Ok(event)) => Step::of(event, |object, is_there| self.change(object, is_there)),
                Some(Err(fault)) if cannot_be_watched(&fault) => {
                    let error = watch_error(&fault);
                    // All else may be an object that cannot be read, and a token that is refused here may be
                    // refused everywhere.
                    let is_listed = matches!(fault, watcher::Error::WatchStartFailed(_))
                        && error.kind() != ErrorKind::Unauthenticated;
                    return Ok(MirrorEnd::NotWatched { why: needs_rights(error, namespace), is_listed });
                }
                Some(Err(fault)) => ended(&fault, &kind, namespace)?,
            };
            // A listing does not show that the watch after it works.
            if is_listed && matches!(step, Step::Changed(_)) {
                troubles.mirror(None);
            }
            match (step, &mut listed) {
                // What is known stays, until the next listing replaces it at once.
                (Step::Expired, None) => return Ok(MirrorEnd::Due),
                (Step::Expired, Some(_)) => {
                    return Err(unavailable("a watch was too old before it began (410)"));
                }
                (Step::Changed(Some(Change::Put(machine))), Some(machines)) => machines.push(*machine),
                (Step::Changed(Some(change)), None) => self.machines.apply(change),
                (Step::Listed, listed) => {
                    if let Some(machines) = listed.take() {
                        self.replace(machines, troubles);
                    }
                }
                // Nothing leaves a listing that is not complete.
                (Step::Begun | Step::Changed(_), _) => {}
            }
        }
    }

    fn change(&self, object: NodeObject, is_there: bool) -> Option<Change> {
        let machine = nodes::machine(node_objects::node(object)?, &self.cluster.id)?;
        Some(if is_there { Change::Put(Box::new(machine)) } else { Change::Remove(machine.key) })
    }

    fn replace(&self, machines: Vec<Machine>, troubles: &mut Troubles) {
        troubles.listed(machines.len());
        let listing = Listing {
            cluster: self.cluster.id.clone(),
            source_of_truth: SourceOfTruth::Mirror,
            is_watched: true,
            is_active: self.cluster.is_active(),
            machines,
            ..Listing::default()
        };
        self.machines.replace(listing, self.began);
    }
}

/// What it costs that the nodes cannot be watched, and why that is so.
pub(super) fn limit(why: &Error) -> String {
    format!("{NOT_WATCHED}: {}", why.report())
}

/// A refusal names the rights that watching takes.
fn needs_rights(error: Error, namespace: &str) -> Error {
    if error.kind() != ErrorKind::PermissionDenied {
        return error;
    }
    error.wrap(format!(
        "that takes the token of an administrator, or where the server goes by roles, list and watch on nodes (management.cattle.io) in namespace {namespace} of the management cluster"
    ))
}

/// Whether another way to list the nodes may work: the token is refused here, the server lacks the kind, or a
/// node has a field that cannot be read. Nothing is deleted because of a mirror, so a 404 of a proxy is no
/// danger here.
fn cannot_be_watched(fault: &watcher::Error) -> bool {
    let of_call = match fault {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        _ => None,
    };
    let is_odd = match of_call {
        Some(kube::Error::Api(status)) => status.code == 404,
        Some(kube::Error::SerdeError(_)) => true,
        _ => false,
    };
    let is_refused = |kind| matches!(kind, ErrorKind::PermissionDenied | ErrorKind::Unauthenticated);
    is_odd || is_refused(watch_error(fault).kind())
}

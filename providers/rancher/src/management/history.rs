//! Whether what the management cluster says continues what it said before. A restore from a backup breaks
//! that: then a Machine that it lacks may still be there.

use std::time::SystemTime;

use cloudprovider::{Error, ErrorKind, NodeIdentity, Result};
use kube::core::ObjectMeta;

/// The advice if nothing proves that a machine is gone.
const ADVICE: &str = "if the machine is really gone, delete the Node yourself";

/// What tells a management cluster from a restored one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The UID of the provisioning `Cluster`.
    pub(super) uid: String,
    /// When that object was created. In a restored management cluster this may be the time of the restore.
    pub(super) created: Option<SystemTime>,
    /// The resource version of the management cluster. It only grows, and an older one comes back with a
    /// backup of etcd.
    pub(super) revision: Option<u64>,
}

impl Origin {
    /// The origin of what this provisioning `Cluster` belongs to. The revision is still open.
    pub(super) fn of(cluster: &ObjectMeta) -> Self {
        Self {
            uid: cluster.uid.clone().unwrap_or_default(),
            created: cluster.creation_timestamp.as_ref().map(|time| time.0.into()),
            revision: None,
        }
    }

    /// Whether `before` can have become this without a restore.
    fn continues(&self, before: &Self) -> bool {
        let is_back = self.revision.zip(before.revision).is_some_and(|(now, before)| now < before);
        self.uid == before.uid && !is_back
    }
}

/// What this process knows of the life of the management cluster.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<Origin>,
    /// Whether a restore was seen. It stays so, since the lost Machines are not known.
    is_broken: bool,
}

impl History {
    /// Takes over the origin of a complete listing. Returns whether it continues the listings before.
    pub(super) fn go_on(&mut self, origin: Origin) -> bool {
        let continues = self.last.as_ref().is_none_or(|before| origin.continues(before));
        if !continues {
            self.is_broken = true;
            tracing::warn!(
                "the management cluster was restored from a backup: a Node whose Machine it lacks is not deleted; {ADVICE}"
            );
        }
        self.last = Some(origin);
        continues
    }

    /// Fails unless a complete listing without the Machine of this Node proves that the Machine is gone. This
    /// is for Machines whose deletion this process did not see.
    ///
    /// # Errors
    /// Why it proves nothing, and what to do.
    pub(super) fn check_proof(&self, node: &NodeIdentity) -> Result<()> {
        let cluster = self.last.as_ref().and_then(|origin| origin.created);
        let doubt = match (cluster, node.created) {
            _ if self.is_broken => "the management cluster was restored from a backup",
            (Some(cluster), Some(node)) if cluster <= node => return Ok(()),
            (Some(_), Some(_)) => {
                "the provisioning Cluster is younger than this node, as after a restore of the management cluster"
            }
            _ => "it is not known whether the provisioning Cluster is older than this node",
        };
        let words = format!("the Machine of this node is missing, which proves nothing: {doubt}; {ADVICE}");
        Err(Error::new(ErrorKind::Conflict, words))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn origin(uid: &str, created: u64, revision: u64) -> Origin {
        let created = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(created));
        Origin { uid: uid.to_owned(), created, revision: Some(revision) }
    }

    fn node(created: u64) -> NodeIdentity {
        let created = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(created));
        NodeIdentity { created, ..NodeIdentity::default() }
    }

    /// The words of the doubt, if there is one.
    fn doubt(history: &History, node: &NodeIdentity) -> String {
        history.check_proof(node).err().map(|error| error.report()).unwrap_or_default()
    }

    #[test]
    fn a_missing_machine_is_gone_only_if_the_cluster_is_older_than_the_node() {
        let mut history = History::default();
        assert!(doubt(&history, &node(20)).contains("not known"));
        assert!(history.go_on(origin("a", 10, 100)));
        assert_eq!(doubt(&history, &node(20)), "");
        assert!(doubt(&history, &node(9)).contains("younger than this node"));
        assert!(doubt(&history, &NodeIdentity::default()).contains("delete the Node yourself"));
    }

    #[test]
    fn a_restore_breaks_the_history_for_good() {
        for (before, after, continues) in [
            (origin("a", 10, 100), origin("a", 10, 100), true),
            (origin("a", 10, 100), origin("a", 10, 101), true),
            (origin("a", 10, 100), Origin { revision: None, ..origin("a", 10, 0) }, true),
            // A backup of etcd.
            (origin("a", 10, 100), origin("a", 10, 99), false),
            // Objects that were created anew.
            (origin("a", 10, 100), origin("b", 10, 101), false),
        ] {
            let mut history = History::default();
            assert!(history.go_on(before.clone()));
            assert_eq!(history.go_on(after.clone()), continues, "{before:?}, {after:?}");
            assert!(history.go_on(after.clone()), "the same again");
            assert_eq!(
                doubt(&history, &node(20)).contains("was restored"),
                !continues,
                "{before:?}, {after:?}"
            );
        }
    }
}

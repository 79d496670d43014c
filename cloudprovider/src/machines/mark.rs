//! Whose something in the cloud is.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// How soon a step looks again at something foreign that is in its way.
const CONFLICT_RETRY: Duration = Duration::from_secs(60);

/// Whose something in the cloud is: a machine's, or a cluster's. It is both the identity that a request has
/// and what a provider writes on everything that it creates.
///
/// A provider stores it in whatever form its cloud can keep. The type reads and writes itself with serde.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark {
    /// The UID that the object had when it was first seen, a UUID in lower case. It does not change when the
    /// object moves to another management cluster.
    pub uid: String,
    /// The namespace of the object and of its Cluster.
    pub namespace: String,
    /// The name of the Cluster.
    pub cluster: String,
    /// The name of the machine's object, which is also the name of its Node unless the provider names that
    /// otherwise. `None` for what belongs to the cluster as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Mark {
    /// The mark of a machine.
    pub fn machine(
        uid: impl Into<String>,
        namespace: impl Into<String>,
        cluster: impl Into<String>,
        machine: impl Into<String>,
    ) -> Self {
        Self { machine: Some(machine.into()), ..Self::cluster(uid, namespace, cluster) }
    }

    /// The mark of a cluster.
    pub fn cluster(uid: impl Into<String>, namespace: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self { uid: uid.into(), namespace: namespace.into(), cluster: cluster.into(), machine: None }
    }

    /// The name of the object: of the machine, or of the cluster if it is the cluster's mark.
    pub fn name(&self) -> &str {
        self.machine.as_deref().unwrap_or(&self.cluster)
    }

    /// Whether something in the cloud that carries the mark `found`, or none, belongs to this object.
    pub fn owns(&self, found: Option<&Self>) -> bool {
        found == Some(self)
    }

    /// The error of a step that finds something foreign in its way: `what`, such as `domain "node-1" on
    /// kvm1`, which carries the mark `found`, or none. Whose mark that is, only [the log](Error::log_report)
    /// says: with it the names of everything that was made for the other object could be computed.
    pub fn conflict(&self, what: impl fmt::Display, found: Option<&Self>) -> Error {
        let whose = if found.is_some() { "belongs to another object" } else { "carries no mark" };
        let words = format!("{what} exists and {whose}; it is left alone and is in the way of {self}");
        let error = Error::new(ErrorKind::Conflict, words).with_retry_after(CONFLICT_RETRY);
        match found {
            Some(found) => error.with_log_detail(format!("it belongs to {found}")),
            None => error,
        }
    }

    /// The error of a step that cannot reach what it is about: `what`, such as `the machine`, was made at
    /// `place`, such as `hypervisor "kvm1"`, which is not in the configuration any more. It may be there
    /// still, so it is neither gone nor lost. The message tells nothing of what else is configured.
    pub fn out_of_reach(&self, what: impl fmt::Display, place: impl fmt::Display) -> Error {
        let words = format!(
            "{what} was made on {place}, which the configuration of the controller does not have any more. It may run there still, so \
             nothing is deleted, and the finalizer stays. An operator can add {place} to the configuration again or, if that is gone for \
             good, remove the finalizer by hand"
        );
        Error::new(ErrorKind::InvalidConfiguration, words)
    }
}

impl fmt::Display for Mark {
    /// For messages: `machine default/node-1 of cluster prod (uid ...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, namespace, cluster, machine } = self;
        match machine {
            Some(machine) => write!(f, "machine {namespace}/{machine} of cluster {cluster} (uid {uid})"),
            None => write!(f, "cluster {namespace}/{cluster} (uid {uid})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark::machine("u-1", "default", "prod", "node-1")
    }

    #[test]
    fn only_what_carries_the_whole_mark_is_ours() {
        assert!(mark().owns(Some(&mark())));
        assert!(!mark().owns(None));
        for other in [
            Mark { uid: "u-2".into(), ..mark() },
            Mark { namespace: "other".into(), ..mark() },
            Mark { cluster: "test".into(), ..mark() },
            Mark { machine: Some("node-2".into()), ..mark() },
            Mark::cluster("u-1", "default", "prod"),
        ] {
            assert!(!mark().owns(Some(&other)), "{other}");
        }
    }

    #[test]
    fn a_conflict_names_the_other_side_in_the_log_alone_and_is_tried_again_slowly() {
        let other = Mark::machine("u-2", "team-b", "test", "web-1");
        let error = mark().conflict("domain \"node-1\"", Some(&other));
        assert_eq!(
            error.report(),
            "domain \"node-1\" exists and belongs to another object; it is left alone and is in the way of machine \
             default/node-1 of cluster prod (uid u-1)"
        );
        assert_eq!(
            error.log_report(),
            format!("{} [it belongs to machine team-b/web-1 of cluster test (uid u-2)]", error.report())
        );
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Conflict, Some(CONFLICT_RETRY)));
        assert!(mark().conflict("volume \"a\"", None).report().contains("\"a\" exists and carries no mark"));
    }

    #[test]
    fn marks_are_read_as_they_are_written() {
        for mark in [mark(), Mark::cluster("u-1", "default", "prod")] {
            let text = serde_json::to_string(&mark).expect("it can be written");
            assert_eq!(serde_json::from_str::<Mark>(&text).expect("it can be read"), mark);
        }
        assert_eq!(mark().name(), "node-1");
        assert_eq!(Mark::cluster("u-1", "default", "prod").name(), "prod");
    }
}

//! The status of a `ClusterResourceSet`.

use cluster_api::{
    ClusterResourceSet, ClusterResourceSetStatus,
    names::{annotations, conditions as types, reasons},
};
use kube::ResourceExt as _;
use lifecycle::conditions::{Statement, Status};

use crate::engine::conditions::{Conditions, paused};

/// How many lines the message has.
const MOST_LINES: usize = 10;

/// What keeps a set from being applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Problems {
    /// Secrets that are not for sets.
    pub(super) wrong_type: Vec<String>,
    /// What is not there: resources, connections, answers of the API server.
    pub(super) internal: Vec<String>,
    /// What could not be applied, by Cluster and resource.
    pub(super) not_applied: Vec<String>,
}

/// What becomes of `ResourcesApplied`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// It stays.
    AsBefore,
    /// It goes: no Cluster is selected, so there is nothing to say.
    Nowhere,
    /// It says this.
    Says(Statement),
}

/// `ResourcesApplied`, with so many Clusters that are selected.
pub(super) fn applied(problems: &Problems, clusters: usize) -> Applied {
    let Problems { wrong_type, internal, not_applied } = problems;
    let wrong_type = wrong_type.iter().map(|name| format!("Secret type of resource {name} is not supported"));
    let wrong_type: Vec<_> = wrong_type.collect();
    // Upstream's reason is that of the first of these. What else is wrong is named with it.
    let (reason, title) = if !wrong_type.is_empty() {
        (reasons::WRONG_SECRET_TYPE, "ClusterResourceSet resources cannot be applied")
    } else if !not_applied.is_empty() {
        (reasons::NOT_APPLIED, "Failed to apply ClusterResourceSet resources to Cluster")
    } else if !internal.is_empty() {
        (reasons::INTERNAL_ERROR, "ClusterResourceSet resources cannot be applied now")
    } else if clusters == 0 {
        return Applied::Nowhere;
    } else {
        return Applied::Says(Statement::new(Status::True, reasons::APPLIED, ""));
    };
    let all: Vec<_> = wrong_type.iter().chain(not_applied).chain(internal).collect();
    let why = match &all[..] {
        [only] if !wrong_type.is_empty() => (*only).clone(),
        all => lines(title, all),
    };
    Applied::Says(Statement::new(Status::False, reason, why))
}

fn lines(title: &str, all: &[&String]) -> String {
    let more = all.len().saturating_sub(MOST_LINES);
    let more = (more > 0).then(|| format!("{more} more"));
    let lines = all.iter().copied().take(MOST_LINES).chain(&more).map(|line| format!("\n* {line}"));
    format!("{title}:{}", lines.collect::<String>())
}

/// The status.
pub(super) fn status(set: &ClusterResourceSet, applied: Applied, now: i64) -> ClusterResourceSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, set.metadata.generation);
    let is_paused = set.annotations().contains_key(annotations::PAUSED);
    conditions.set(types::PAUSED, paused("ClusterResourceSet", false, is_paused), now);
    match applied {
        Applied::AsBefore => {}
        Applied::Nowhere => conditions.remove(types::RESOURCES_APPLIED),
        Applied::Says(statement) => conditions.set(types::RESOURCES_APPLIED, statement, now),
    }
    status.conditions = conditions.write();
    status.observed_generation = set.metadata.generation;
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_names_what_a_user_can_mend() {
        let reason = |problems: &Problems, clusters| match applied(problems, clusters) {
            Applied::Says(statement) => Some((statement.reason, statement.message)),
            Applied::AsBefore | Applied::Nowhere => None,
        };
        let none = Problems::default();
        assert_eq!(reason(&none, 0), None);
        assert_eq!(reason(&none, 2), Some(("Applied".into(), String::new())));
        let lines: Vec<_> = (0..12).map(|number| format!("{number}")).collect();
        let internal = Problems { internal: vec!["Secret a does not exist".into()], ..none.clone() };
        let words = "ClusterResourceSet resources cannot be applied now:\n* Secret a does not exist";
        assert_eq!(reason(&internal, 0), Some(("InternalError".into(), words.into())));
        let (name, message) =
            reason(&Problems { not_applied: lines, ..internal.clone() }, 1).expect("a condition");
        assert_eq!(name, "NotApplied");
        assert!(message.starts_with("Failed to apply ClusterResourceSet resources to Cluster:\n* 0\n"));
        assert!(message.ends_with("\n* 9\n* 3 more"), "{message}");
        let wrong = Problems { wrong_type: vec!["a".into()], ..none };
        let words = "Secret type of resource a is not supported";
        assert_eq!(reason(&wrong, 1), Some(("WrongSecretType".into(), words.into())));
        let all = Problems {
            wrong_type: vec!["a".into(), "b".into()],
            internal: vec!["Secret c does not exist".into()],
            not_applied: vec!["ConfigMap d: it has no data".into()],
        };
        let words = "ClusterResourceSet resources cannot be applied:\n\
                     * Secret type of resource a is not supported\n\
                     * Secret type of resource b is not supported\n\
                     * ConfigMap d: it has no data\n\
                     * Secret c does not exist";
        assert_eq!(reason(&all, 1), Some(("WrongSecretType".into(), words.into())));
    }
}

//! Who asks.

use std::collections::BTreeMap;

use serde::Serialize;

/// Everybody whose identity is known.
const AUTHENTICATED: &str = "system:authenticated";
/// Everybody else.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Who does not say who they are.
const ANONYMOUS: &str = "system:anonymous";
/// May do everything, without a review.
const MASTERS: &str = "system:masters";

/// What one way of authentication says. `Ok(None)`: it has no opinion.
pub(super) type Opinion = Result<Option<User>, String>;

/// A user as Kubernetes knows one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Nobody in particular.
    pub(super) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Puts a user whose identity was proven in the group of those, as upstream does.
    #[must_use]
    pub(super) fn authenticated(mut self) -> Self {
        let is_known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(is_known) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Whether no review is needed.
    pub(super) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proven_user_is_authenticated_once() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.into(),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..User::default()
        };
        assert_eq!(user("a", &["x"]).authenticated().groups, ["x", AUTHENTICATED]);
        assert_eq!(user("a", &[AUTHENTICATED]).authenticated().groups, [AUTHENTICATED]);
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
        assert!(user("a", &["system:masters"]).is_master() && !User::anonymous().is_master());
    }
}

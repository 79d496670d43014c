//! The user that sends a request.

use std::collections::BTreeMap;

use serde::Serialize;

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of all other users.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user name for requests without credentials.
const ANONYMOUS: &str = "system:anonymous";
/// The group whose members may do everything, without a review.
const MASTERS: &str = "system:masters";

/// The result of one method of authentication. `Ok(None)`: no opinion.
pub(super) type Opinion = Result<Option<User>, String>;

/// A user, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The anonymous user.
    pub(super) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Adds an authenticated user to the group of these, as upstream does.
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

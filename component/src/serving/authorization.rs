//! What somebody may do: everything for `system:masters`, everybody on some paths, else what the API server says.

mod paths;
mod reviews;

use anyhow::anyhow;
use kube::Client;

use super::{AuthorizationOptions, delegation::Unanswered, source::Source, user::User};
use reviews::Reviews;

use paths::PathRules;

/// What is decided about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// With the reviewer's reason, which may be empty.
    Denied(String),
    /// Nobody allows it, which is a refusal too.
    NoOpinion(String),
}

impl Decision {
    /// As in upstream's metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied(_) => "denied",
            Self::NoOpinion(_) => "no-opinion",
        }
    }
}

/// What upstream calls whoever reviews, in the reason of who is allowed nothing.
const REVIEWER: &str = "kubernetes.io/webhook";

impl Decision {
    /// The decision with the reviewer's name where upstream says it: not before a refusal that the reviewer insists on.
    fn by_reviewer(self) -> Self {
        match self {
            Self::NoOpinion(reason) if !reason.is_empty() => Self::NoOpinion(format!("{REVIEWER}: {reason}")),
            other => other,
        }
    }
}

/// What is wrong with `--authorization-always-allow-paths`.
///
/// # Errors
/// In upstream's words, with the flag.
pub fn check_always_allow_paths(paths: &[String]) -> Result<(), String> {
    PathRules::new(paths).map(drop)
}

/// Whether everybody may read `path` with these values of the flag.
pub fn is_always_allowed(paths: &[String], path: &str) -> bool {
    PathRules::new(paths).is_ok_and(|rules| rules.contain(path))
}

/// Decides as upstream does.
#[derive(Debug)]
pub(super) struct Authorizer {
    always_allowed: PathRules,
    /// `None`: there is nobody to ask.
    reviews: Option<Reviews>,
}

impl Authorizer {
    /// # Errors
    /// A path that is no rule.
    pub(super) fn new(options: &AuthorizationOptions, client: Option<Client>) -> anyhow::Result<Self> {
        let always_allowed = PathRules::new(&options.always_allow_paths).map_err(|fault| anyhow!(fault))?;
        Ok(Self { always_allowed, reviews: client.map(|client| Reviews::new(client, options)) })
    }

    /// Whether `user`, who asks from there, may do `verb` (a method in lower case) on `path`.
    ///
    /// # Errors
    /// Nobody can say.
    pub(super) async fn authorize(
        &self,
        source: Source,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Decision, Unanswered> {
        if user.is_master() || self.always_allowed.contain(path) {
            return Ok(Decision::Allowed);
        }
        match &self.reviews {
            Some(reviews) => reviews.review(source, user, verb, path).await.map(Decision::by_reviewer),
            None => Ok(Decision::NoOpinion(String::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_opinion_is_named_with_its_reason() {
        let reason = || "no such role".to_owned();
        let named = Decision::NoOpinion("kubernetes.io/webhook: no such role".to_owned());
        assert_eq!(Decision::NoOpinion(reason()).by_reviewer(), named);
        for other in [Decision::Allowed, Decision::Denied(reason()), Decision::NoOpinion(String::new())] {
            assert_eq!(other.clone().by_reviewer(), other);
        }
    }
}

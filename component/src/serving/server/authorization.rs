//! Authorization of a request: `system:masters` may do everything, every user may use some paths, and the API
//! server decides the rest.

mod reviews;

use anyhow::anyhow;
use kube::Client;

use super::{authentication::User, delegation::Unanswered, source::Source};
use crate::serving::{AuthorizationOptions, always_allow_paths::PathRules};
use reviews::Reviews;

/// Upstream's name of the reviewer in the reason of a refusal.
const REVIEWER: &str = "kubernetes.io/webhook";

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// With the reviewer's reason, which may be empty.
    Denied(String),
    /// No rule allows the request. It is refused.
    NoOpinion(String),
}

impl Decision {
    /// The value of the label in upstream's metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied(_) => "denied",
            Self::NoOpinion(_) => "no-opinion",
        }
    }

    /// Adds the reviewer's name where upstream does: not to an explicit denial by the reviewer.
    fn by_reviewer(self) -> Self {
        match self {
            Self::NoOpinion(reason) if !reason.is_empty() => Self::NoOpinion(format!("{REVIEWER}: {reason}")),
            other => other,
        }
    }
}

/// Authorizes requests as upstream does.
#[derive(Debug)]
pub(super) struct Authorizer {
    always_allowed: PathRules,
    /// `None`: there is no API server to ask.
    reviews: Option<Reviews>,
}

impl Authorizer {
    /// # Errors
    /// A path that is not a valid rule.
    pub(super) fn new(options: &AuthorizationOptions, client: Option<Client>) -> anyhow::Result<Self> {
        let always_allowed = PathRules::new(&options.always_allow_paths).map_err(|fault| anyhow!(fault))?;
        Ok(Self { always_allowed, reviews: client.map(|client| Reviews::new(client, options)) })
    }

    /// Whether `user` at this source may do `verb` (an HTTP method in lower case) on `path`.
    ///
    /// # Errors
    /// The review failed.
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

//! What somebody may do: everything for `system:masters`, everybody on some paths, else what the API server says.

mod decision;
mod reviews;

use anyhow::anyhow;
use kube::Client;

use super::{delegation::Unanswered, source::Source, user::User};
use crate::serving::{AuthorizationOptions, always_allow_paths::PathRules};
use reviews::Reviews;

pub(super) use decision::Decision;

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

//! Authorization of a request: `system:masters` may do everything, every user may use some paths, and the API
//! server decides the rest.

mod decision;
mod reviews;

use anyhow::anyhow;
use kube::Client;

use super::{delegation::Unanswered, source::Source, user::User};
use crate::serving::{AuthorizationOptions, always_allow_paths::PathRules};
use reviews::Reviews;

pub(super) use decision::Decision;

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

//! Reviews by the API server (`SubjectAccessReview`).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use moka::{Expiry, future::Cache};
use sha2::{Digest as _, Sha256};

use super::{
    super::{
        delegation::{Reviewer, Unanswered},
        source::Source,
        user::User,
    },
    decision::Decision,
};
use crate::serving::AuthorizationOptions;

/// Maximum number of cached decisions, as in upstream.
const CACHE_SIZE: u64 = 8192;

/// Asks the API server, and caches its decisions.
pub(super) struct Reviews {
    api: Api<SubjectAccessReview>,
    reviewer: Reviewer,
    /// By source, and digest of user, verb and path.
    answers: Cache<(Source, [u8; 32]), Decision>,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

/// How long a decision is cached.
struct Lifetime {
    allowed: Duration,
    denied: Duration,
}

impl Expiry<(Source, [u8; 32]), Decision> for Lifetime {
    fn expire_after_create(
        &self,
        _: &(Source, [u8; 32]),
        decision: &Decision,
        _: Instant,
    ) -> Option<Duration> {
        Some(match decision {
            Decision::Allowed => self.allowed,
            Decision::Denied(_) | Decision::NoOpinion(_) => self.denied,
        })
    }
}

impl Reviews {
    pub(super) fn new(client: Client, options: &AuthorizationOptions) -> Self {
        let lifetime = Lifetime { allowed: options.authorized_ttl, denied: options.unauthorized_ttl };
        let answers = Cache::builder().max_capacity(CACHE_SIZE).expire_after(lifetime).build();
        Self { api: Api::all(client), reviewer: Reviewer::new(), answers }
    }

    /// Reviews a request. Of equal requests from one source at the same time, only one is sent to the API
    /// server. Other sources send their own, so that they do not wait for the turn of this one.
    ///
    /// # Errors
    /// The review failed. Failures are not cached.
    pub(super) async fn review(
        &self,
        source: Source,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Decision, Unanswered> {
        // As JSON, so that different requests never have the same text.
        let question =
            serde_json::to_vec(&(user, verb, path)).map_err(|error| Unanswered::Failed(error.to_string()))?;
        let key = (source, Sha256::digest(question).into());
        let answer = self.answers.try_get_with(key, self.ask(source, user, verb, path)).await;
        answer.map_err(|error: Arc<Unanswered>| error.as_ref().clone())
    }

    async fn ask(&self, source: Source, user: &User, verb: &str, path: &str) -> Result<Decision, Unanswered> {
        let review = Arc::new(SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        });
        let api = self.api.clone();
        let ask = move || {
            let (api, review) = (api.clone(), review.clone());
            async move { api.create(&PostParams::default(), &review).await }
        };
        let answer = self.reviewer.review(source, ask).await?;
        let status = answer.status.unwrap_or_default();
        let reason = status.reason.unwrap_or_default();
        match (status.allowed, status.denied.unwrap_or_default()) {
            (true, true) => Err(Unanswered::Failed(
                "webhook subject access review returned both allow and deny response".to_owned(),
            )),
            (true, false) => Ok(Decision::Allowed),
            (false, true) => Ok(Decision::Denied(reason)),
            (false, false) => Ok(Decision::NoOpinion(reason)),
        }
    }
}

//! Bearer tokens, reviewed by the API server.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};

use super::{
    super::{
        delegation::{Reviewer, Unanswered},
        source::Source,
    },
    User,
};

/// Maximum number of cached answers.
const CACHE_SIZE: u64 = 8192;

/// The key is the source, and a digest of a random salt and the token. The token itself is not stored.
type Answers = Cache<(Source, [u8; 32]), Option<User>>;

/// Asks the API server about tokens, and caches the answers.
pub(super) struct Tokens {
    api: Api<TokenReview>,
    reviewer: Reviewer,
    /// `None`: the cache is disabled.
    answers: Option<Answers>,
    salt: [u8; 32],
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(client: Client, ttl: Duration) -> Self {
        let answers =
            (!ttl.is_zero()).then(|| Cache::builder().max_capacity(CACHE_SIZE).time_to_live(ttl).build());
        let salt = Sha256::digest(uuid::Uuid::new_v4().as_bytes()).into();
        Self { api: Api::all(client), reviewer: Reviewer::new(), answers, salt }
    }

    /// The user of the token. `None`: the token is invalid. Of requests with one token from one source at the
    /// same time, only one asks the API server. Other sources ask for themselves, so that they do not wait
    /// for the turn of this one.
    ///
    /// # Errors
    /// The review failed.
    pub(super) async fn review(&self, source: Source, token: String) -> Result<Option<User>, Unanswered> {
        let Some(answers) = &self.answers else { return self.ask(source, token).await };
        let digest = Sha256::new().chain_update(self.salt).chain_update(&token).finalize().into();
        let answer = answers.try_get_with((source, digest), self.ask(source, token)).await;
        answer.map_err(|error: Arc<Unanswered>| error.as_ref().clone())
    }

    async fn ask(&self, source: Source, token: String) -> Result<Option<User>, Unanswered> {
        let api = self.api.clone();
        let ask = move || {
            let (api, token) = (api.clone(), token.clone());
            async move {
                let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
                let review = TokenReview { spec, ..TokenReview::default() };
                api.create(&PostParams::default(), &review).await
            }
        };
        let answer = self.reviewer.review(source, ask).await?;
        let status = answer.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        Ok(Some(User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }
}

/// The bearer token of a request, as upstream finds it.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_as_upstream_finds_them() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  BEARER abc def ", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let headers = [(header::AUTHORIZATION, value.parse().expect("a value"))].into_iter().collect();
            assert_eq!(bearer_token(&headers), token, "{value:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}

//! Tags, which only the Automation REST tells.
//!
//! There are two dialects: `/rest` of all versions up to 8, and `/api` from 7.0 U2 on. The one that the version suggests is
//! tried first, and the other where that one is not there.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use http::Method;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    accounts::Accounts,
    http::{Body, HttpClient, HttpError},
    moref::MoRef,
    session::CredentialSource,
    vim::CallError,
    zones::{Tag, Tags},
};

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long a logout may take: nobody waits for it gladly.
const LOGOUT_DEADLINE: Duration = Duration::from_secs(5);

/// An answer larger than this is refused.
const LARGEST_ANSWER: usize = 32 << 20;

/// Objects that are asked about in one call.
const OBJECTS_PER_CALL: usize = 2000;

/// Names of tags that are asked for at the same time.
const PARALLEL: usize = 4;

/// How long the name of a tag is believed.
const NAMES_LAST: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Legacy,
    Modern,
}

impl Dialect {
    fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Modern,
            Self::Modern => Self::Legacy,
        }
    }

    fn session_path(self) -> &'static str {
        match self {
            Self::Legacy => "/rest/com/vmware/cis/session",
            Self::Modern => "/api/session",
        }
    }

    fn object_path(self, kind: &str, id: &str) -> String {
        match self {
            Self::Legacy => format!("/rest/com/vmware/cis/tagging/{kind}/id:{id}"),
            Self::Modern => format!("/api/cis/tagging/{kind}/{id}"),
        }
    }

    fn association_path(self) -> &'static str {
        match self {
            Self::Legacy => {
                "/rest/com/vmware/cis/tagging/tag-association?~action=list-attached-tags-on-objects"
            }
            Self::Modern => "/api/cis/tagging/tag-association?action=list-attached-tags-on-objects",
        }
    }

    /// The result in an answer: the older dialect wraps it. An empty list may be null.
    fn read<T: DeserializeOwned>(self, method: &'static str, body: &[u8]) -> Result<T, CallError> {
        #[derive(Deserialize)]
        struct Wrapped<T> {
            value: T,
        }
        let result = match self {
            Self::Modern => serde_json::from_slice(body),
            Self::Legacy => serde_json::from_slice::<Wrapped<T>>(body).map(|wrapped| wrapped.value),
        };
        result.map_err(|error| CallError::Malformed {
            method,
            // serde's words may quote the body, which may hold a session
            reason: format!("the answer has another form, at column {}", error.column()).into(),
        })
    }
}

#[derive(Clone)]
struct Opened {
    dialect: Dialect,
    id: Arc<str>,
}

/// Reads the tags of one vCenter, in a session of its own: the session of SOAP is good for REST from 8.0 U3 only.
pub(crate) struct TagClient {
    http: HttpClient,
    credentials: CredentialSource,
    accounts: Arc<Accounts>,
    first: Dialect,
    session: tokio::sync::Mutex<Option<Opened>>,
    names: Mutex<Names>,
}

struct Names {
    since: Instant,
    /// `None` for a tag that was deleted meanwhile.
    tags: HashMap<Box<str>, Option<Tag>>,
    categories: HashMap<Box<str>, Box<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { since: Instant::now(), tags: HashMap::new(), categories: HashMap::new() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ObjectId {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct Attached {
    object_id: ObjectId,
    tag_ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct FoundTag {
    name: String,
    category_id: String,
}

#[derive(Debug, Deserialize)]
struct FoundCategory {
    name: String,
}

impl TagClient {
    /// A client that logs in when it is first asked. `api_version` is what the vCenter says of itself.
    pub(crate) fn new(
        http: HttpClient,
        credentials: CredentialSource,
        accounts: Arc<Accounts>,
        api_version: &str,
    ) -> Self {
        let major = api_version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        let first = if major >= 9 { Dialect::Modern } else { Dialect::Legacy };
        Self {
            http,
            credentials,
            accounts,
            first,
            session: tokio::sync::Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// The tags of these objects: one call for all of them, and one for each tag and category not seen lately.
    ///
    /// # Errors
    /// What a call brings. A tag that was deleted meanwhile is none.
    pub(crate) async fn attached(&self, objects: &[MoRef]) -> Result<Tags, CallError> {
        const METHOD: &str = "list-attached-tags-on-objects";
        let mut attached: Vec<(MoRef, Vec<String>)> = Vec::new();
        for some in objects.chunks(OBJECTS_PER_CALL) {
            let ids: Vec<_> =
                some.iter().map(|object| json!({"id": object.id(), "type": object.kind()})).collect();
            let body = json!({ "object_ids": ids }).to_string();
            let found: Option<Vec<Attached>> = self
                .request(METHOD, Method::POST, |dialect| dialect.association_path().to_owned(), Some(body))
                .await?;
            attached.extend(found.into_iter().flatten().filter_map(|one| {
                let tags = one.tag_ids.filter(|tags| !tags.is_empty())?;
                Some((MoRef::new(&one.object_id.kind, &one.object_id.id), tags))
            }));
        }
        self.learn_names(&attached).await?;
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let named = attached.into_iter().map(|(object, ids)| {
            let mut tags: Vec<_> =
                ids.iter().filter_map(|id| names.tags.get(id.as_str()).cloned().flatten()).collect();
            tags.sort();
            (object, tags)
        });
        Ok(named.collect())
    }

    async fn learn_names(&self, attached: &[(MoRef, Vec<String>)]) -> Result<(), CallError> {
        let unknown: Vec<String> = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            if names.since.elapsed() >= NAMES_LAST {
                *names = Names::default();
            }
            let ids: BTreeSet<&String> = attached.iter().flat_map(|(_, ids)| ids).collect();
            ids.into_iter().filter(|id| !names.tags.contains_key(id.as_str())).cloned().collect()
        };
        let tags = self.objects::<FoundTag>("get tag", "tag", unknown).await?;
        let categories: Vec<String> = {
            let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            let ids: BTreeSet<&String> =
                tags.iter().filter_map(|(_, found)| found.as_ref()).map(|found| &found.category_id).collect();
            ids.into_iter().filter(|id| !names.categories.contains_key(id.as_str())).cloned().collect()
        };
        let categories = self.objects::<FoundCategory>("get category", "category", categories).await?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, category) in categories {
            if let Some(category) = category {
                names.categories.insert(id.into(), category.name.into());
            }
        }
        for (id, found) in tags {
            let tag = found.and_then(|found| {
                let category = names.categories.get(found.category_id.as_str())?;
                Some(Tag { category: category.clone(), name: found.name.into() })
            });
            names.tags.insert(id.into(), tag);
        }
        Ok(())
    }

    /// Reads objects of one kind by their ids, some at a time.
    async fn objects<T: DeserializeOwned + Send>(
        &self,
        method: &'static str,
        kind: &'static str,
        ids: Vec<String>,
    ) -> Result<Vec<(String, Option<T>)>, CallError> {
        let mut found = Vec::with_capacity(ids.len());
        let mut ids = ids.into_iter();
        loop {
            let some = ids.by_ref().take(PARALLEL).map(|id| self.object(method, kind, id));
            let some = try_join_all(some).await?;
            if some.is_empty() {
                return Ok(found);
            }
            found.extend(some);
        }
    }

    /// Reads one object; `None` where it is not there.
    async fn object<T: DeserializeOwned>(
        &self,
        method: &'static str,
        kind: &'static str,
        id: String,
    ) -> Result<(String, Option<T>), CallError> {
        let path = |dialect: Dialect| dialect.object_path(kind, &id);
        let found = match self.request(method, Method::GET, path, None).await {
            Ok(found) => Some(found),
            Err(CallError::Status { status: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        Ok((id, found))
    }

    /// Makes a call in the session, and once more in a new one where vCenter says that it has ended.
    async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        verb: Method,
        path: impl Fn(Dialect) -> String,
        body: Option<String>,
    ) -> Result<T, CallError> {
        let mut ended: Option<Arc<str>> = None;
        loop {
            let session = self.open(ended.as_ref()).await?;
            let headers = [("vmware-api-session-id", session.id.to_string())];
            let body = body.clone().map(|text| Body { content_type: "application/json", text });
            let (status, bytes) =
                self.send(method, verb.clone(), &path(session.dialect), &headers, body).await?;
            match status {
                200..=299 => return session.dialect.read(method, &bytes),
                401 if ended.is_none() => ended = Some(session.id),
                status => return Err(CallError::Status { method, status }),
            }
        }
    }

    /// The session; a new one where there is none or the one there is has `ended`.
    async fn open(&self, ended: Option<&Arc<str>>) -> Result<Opened, CallError> {
        const METHOD: &str = "create session";
        let mut session = self.session.lock().await;
        if let Some(opened) = &*session
            && ended != Some(&opened.id)
        {
            return Ok(opened.clone());
        }
        let known = match session.take() {
            Some(opened) => {
                // it may be alive, where vCenter only answers so
                self.end(&opened).await;
                Some(opened.dialect)
            }
            None => None,
        };
        let credentials = (self.credentials)().map_err(|reason| CallError::NoCredentials(reason.into()))?;
        let account = self.accounts.of(&credentials.user);
        let mut logins = account.logins().await;
        logins.check_for_rest(&credentials)?;
        let headers = [
            ("Authorization", basic(&credentials.user, credentials.password.expose_secret())),
            ("vmware-use-header-authn", "true".to_owned()),
        ];
        let mut dialect = known.unwrap_or(self.first);
        let mut is_second = false;
        loop {
            let (status, body) =
                self.send(METHOD, Method::POST, dialect.session_path(), &headers, None).await?;
            match status {
                200..=299 => {
                    let id: String = dialect.read(METHOD, &body)?;
                    logins.accept_for_rest(&credentials);
                    let opened = Opened { dialect, id: id.into() };
                    *session = Some(opened.clone());
                    return Ok(opened);
                }
                404 if !is_second => {
                    is_second = true;
                    dialect = dialect.other();
                }
                401 => return Err(logins.refuse_for_rest(&credentials)),
                status => return Err(CallError::Status { method: METHOD, status }),
            }
        }
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        if let Some(opened) = self.session.lock().await.take() {
            self.end(&opened).await;
        }
    }

    /// Ends a session, if vCenter lets itself be told.
    async fn end(&self, opened: &Opened) {
        let headers = [("vmware-api-session-id", opened.id.to_string())];
        let path = opened.dialect.session_path();
        let ended = self.send("delete session", Method::DELETE, path, &headers, None);
        if let Ok(Err(error)) = tokio::time::timeout(LOGOUT_DEADLINE, ended).await {
            tracing::debug!(%error, "cannot end the session");
        }
    }

    async fn send(
        &self,
        method: &'static str,
        verb: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Option<Body>,
    ) -> Result<(u16, bytes::BytesMut), CallError> {
        let answer = self.http.send(verb, path, headers, body, DEADLINE, LARGEST_ANSWER).await;
        let answer = answer.map_err(|error| match error {
            HttpError::Timeout => CallError::Timeout { method, after: DEADLINE },
            HttpError::Unreachable(reason) => CallError::Unreachable { method, reason },
            HttpError::TooLarge => CallError::Malformed { method, reason: "the answer is too large".into() },
        })?;
        Ok((answer.status, answer.body))
    }
}

/// The value of a header for HTTP's basic authentication.
fn basic(user: &str, password: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::from("Basic ");
    for three in format!("{user}:{password}").as_bytes().chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = (bits >> (18 - 6 * i)) & 63;
            encoded.push(if i <= three.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    encoded
}

impl fmt::Debug for TagClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagClient").field("http", &self.http).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;

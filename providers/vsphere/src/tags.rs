//! Reads and attaches tags, which only the Automation REST API has.
//!
//! There are two ways: to ask for the tags on given objects, or for the objects with a tag of the wanted
//! categories. The first takes one call, and one for the name of each tag and category on any of the objects.
//! The second takes a few more, but their number depends neither on the number of objects nor on the number
//! of tags of other categories.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::try_join_all;
use http::Method;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    accounts::Accounts,
    http::HttpClient,
    moref::MoRef,
    rest::{Dialect, RestSession},
    session::AccessSource,
    vim::{CallError, Transport},
    zones::{Tag, Tags},
};

/// With more objects than this, the objects with a tag of the wanted categories are asked for.
const FEW_OBJECTS: usize = 2000;

/// The same with more tags of unknown name than this on the objects: most are of other categories then.
const FEW_TAGS: usize = 32;

/// The number of tags in one call that asks for their objects.
const TAGS_PER_CALL: usize = 200;

/// How many names of tags are requested at the same time.
const PARALLEL: usize = 4;

/// How long names of tags are cached.
const NAMES_LAST: Duration = Duration::from_secs(3600);

/// Reads the tags of one vCenter.
pub(crate) struct TagClient {
    session: RestSession,
    /// The names of the wanted categories.
    wanted: Vec<String>,
    /// Whether the objects had too many tags of other categories.
    by_category: AtomicBool,
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
struct AttachedTo {
    tag_id: String,
    object_ids: Option<Vec<ObjectId>>,
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

#[derive(Debug, Deserialize)]
struct Outcome {
    success: bool,
    error_messages: Option<Vec<Message>>,
}

#[derive(Debug, Deserialize)]
struct Message {
    default_message: Option<String>,
}

impl TagClient {
    /// A client that logs in with its first request. `api_version` is that of the vCenter. `wanted` are the
    /// names of the categories whose tags are needed; tags of other categories may be returned or not.
    pub(crate) fn new(
        http: HttpClient,
        access: AccessSource,
        accounts: Arc<Accounts>,
        api_version: &str,
        wanted: Vec<String>,
    ) -> Self {
        let major = api_version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        let first = if major >= 9 { Dialect::Modern } else { Dialect::Legacy };
        Self {
            session: RestSession::new(http, access, accounts, first),
            wanted,
            by_category: AtomicBool::new(false),
            names: Mutex::default(),
        }
    }

    /// Also uses this SOAP session for REST if it was cloned.
    #[must_use]
    pub(crate) fn beside(mut self, soap: Arc<dyn Transport>) -> Self {
        self.session.lend(soap);
        self
    }

    /// The tags of these objects.
    ///
    /// # Errors
    /// The error of a call. A tag that was deleted meanwhile is skipped.
    pub(crate) async fn attached(&self, objects: &[MoRef]) -> Result<Tags, CallError> {
        self.forget_old_names();
        if objects.len() <= FEW_OBJECTS && !self.by_category.load(Ordering::Relaxed) {
            let attached = self.tags_on(objects).await?;
            let ids: BTreeSet<&String> = attached.iter().flat_map(|(_, ids)| ids).collect();
            if self.unnamed(&ids).len() <= FEW_TAGS {
                self.learn_names(&ids).await?;
                return Ok(self.named(&attached));
            }
            self.by_category.store(true, Ordering::Relaxed);
        }
        let attached = self.objects_with_tags(&objects.iter().collect()).await?;
        Ok(self.named(&attached))
    }

    /// The tags of all categories on these objects, which are few.
    ///
    /// # Errors
    /// As for [`attached`](Self::attached).
    pub(crate) async fn all_attached(&self, objects: &[MoRef]) -> Result<Tags, CallError> {
        self.forget_old_names();
        let attached = self.tags_on(objects).await?;
        self.learn_names(&attached.iter().flat_map(|(_, ids)| ids).collect()).await?;
        Ok(self.named(&attached))
    }

    fn forget_old_names(&self) {
        let mut names = self.names();
        if names.since.elapsed() >= NAMES_LAST {
            *names = Names::default();
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock()
    }

    fn named(&self, attached: &[(MoRef, Vec<String>)]) -> Tags {
        let names = self.names();
        let mut tags = Tags::new();
        for (object, ids) in attached {
            let known = ids.iter().filter_map(|id| names.tags.get(id.as_str()).cloned().flatten());
            tags.entry(object.clone()).or_default().extend(known);
        }
        for tags in tags.values_mut() {
            tags.sort();
        }
        tags
    }

    /// The ids of all tags on these objects.
    async fn tags_on(&self, objects: &[MoRef]) -> Result<Vec<(MoRef, Vec<String>)>, CallError> {
        const METHOD: &str = "list-attached-tags-on-objects";
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> =
            objects.iter().map(|object| json!({"id": object.id(), "type": object.kind()})).collect();
        let body = json!({ "object_ids": ids }).to_string();
        let question = |dialect: Dialect| (dialect.association_path(METHOD), Some(body.clone()));
        let found: Option<Vec<Attached>> = self.session.request(METHOD, Method::POST, question).await?;
        let with_tags = found.into_iter().flatten().filter_map(|one| {
            let tags = one.tag_ids.filter(|tags| !tags.is_empty())?;
            Some((MoRef::new(&one.object_id.kind, &one.object_id.id), tags))
        });
        Ok(with_tags.collect())
    }

    /// The objects among these that have tags of the wanted categories. An object may be listed several
    /// times.
    async fn objects_with_tags(
        &self,
        objects: &HashSet<&MoRef>,
    ) -> Result<Vec<(MoRef, Vec<String>)>, CallError> {
        const METHOD: &str = "list-attached-objects-on-tags";
        let mut ids = BTreeSet::new();
        for category in self.wanted_categories().await? {
            let question = |dialect: Dialect| dialect.tags_of_category(&category);
            match self
                .session
                .request::<Option<Vec<String>>>("list-tags-for-category", Method::POST, question)
                .await
            {
                Ok(found) => ids.extend(found.unwrap_or_default()),
                // the category was deleted; another one may have its name
                Err(CallError::Status { status: 404, .. }) => {
                    self.names().categories.remove(category.as_str());
                }
                Err(error) => return Err(error),
            }
        }
        self.learn_names(&ids.iter().collect()).await?;
        let ids: Vec<_> = ids.into_iter().collect();
        let mut attached = Vec::new();
        for some in ids.chunks(TAGS_PER_CALL) {
            let body = json!({ "tag_ids": some }).to_string();
            let question = |dialect: Dialect| (dialect.association_path(METHOD), Some(body.clone()));
            let found: Option<Vec<AttachedTo>> = self.session.request(METHOD, Method::POST, question).await?;
            for one in found.into_iter().flatten() {
                let on = one.object_ids.unwrap_or_default().into_iter();
                let on = on.map(|object| MoRef::new(&object.kind, &object.id));
                let on = on.filter(|object| objects.contains(object));
                attached.extend(on.map(|object| (object, vec![one.tag_id.clone()])));
            }
        }
        Ok(attached)
    }

    /// The IDs of the wanted categories that exist. All categories are searched once an hour.
    async fn wanted_categories(&self) -> Result<Vec<String>, CallError> {
        let known = || {
            let names = self.names();
            let wanted =
                names.categories.iter().filter(|(_, name)| self.wanted.iter().any(|w| *w == ***name));
            wanted.map(|(id, _)| id.to_string()).collect::<Vec<_>>()
        };
        let count = self.wanted.iter().collect::<HashSet<_>>().len();
        let found = known();
        if found.len() >= count {
            return Ok(found);
        }
        let question = |dialect: Dialect| (dialect.categories_path().to_owned(), None);
        let all: Option<Vec<String>> = self.session.request("list categories", Method::GET, question).await?;
        let mut unknown = all.unwrap_or_default();
        {
            let names = self.names();
            unknown.retain(|id| !names.categories.contains_key(id.as_str()));
        }
        for some in unknown.chunks(PARALLEL) {
            self.learn_categories(some.to_vec()).await?;
            if known().len() >= count {
                break;
            }
        }
        Ok(known())
    }

    /// The tags among these whose names are not known.
    fn unnamed(&self, ids: &BTreeSet<&String>) -> Vec<String> {
        let names = self.names();
        ids.iter().filter(|id| !names.tags.contains_key(id.as_str())).map(|&id| id.clone()).collect()
    }

    async fn learn_names(&self, ids: &BTreeSet<&String>) -> Result<(), CallError> {
        let tags = self.objects::<FoundTag>("get tag", "tag", self.unnamed(ids)).await?;
        let categories: Vec<String> = {
            let names = self.names();
            let ids: BTreeSet<&String> =
                tags.iter().filter_map(|(_, found)| found.as_ref()).map(|found| &found.category_id).collect();
            ids.into_iter().filter(|id| !names.categories.contains_key(id.as_str())).cloned().collect()
        };
        self.learn_categories(categories).await?;
        let mut names = self.names();
        for (id, found) in tags {
            let tag = found.and_then(|found| {
                let category = names.categories.get(found.category_id.as_str())?;
                Some(Tag { category: category.clone(), name: found.name.into() })
            });
            names.tags.insert(id.into(), tag);
        }
        Ok(())
    }

    async fn learn_categories(&self, ids: Vec<String>) -> Result<(), CallError> {
        let found = self.objects::<FoundCategory>("get category", "category", ids).await?;
        let known = found.into_iter().filter_map(|(id, found)| Some((id.into(), found?.name.into())));
        self.names().categories.extend(known);
        Ok(())
    }

    /// Reads objects of one kind by their IDs, several at a time.
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

    /// Reads one object; `None` if it does not exist.
    async fn object<T: DeserializeOwned>(
        &self,
        method: &'static str,
        kind: &'static str,
        id: String,
    ) -> Result<(String, Option<T>), CallError> {
        let question = |dialect: Dialect| (dialect.object_path(kind, &id), None);
        let found = match self.session.request(method, Method::GET, question).await {
            Ok(found) => Some(found),
            Err(CallError::Status { status: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        Ok((id, found))
    }

    /// Attaches tags, by their IDs, to an object. Those that are attached already stay. Returns vCenter's words about
    /// those that cannot be attached.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) async fn attach(&self, object: &MoRef, tags: &[String]) -> Result<Vec<String>, CallError> {
        const METHOD: &str = "attach-multiple-tags-to-object";
        let object = json!({"id": object.id(), "type": object.kind()});
        let body = json!({"object_id": object, "tag_ids": tags}).to_string();
        let question = |dialect: Dialect| (dialect.association_path(METHOD), Some(body.clone()));
        let outcome: Outcome = self.session.request(METHOD, Method::POST, question).await?;
        if outcome.success {
            return Ok(Vec::new());
        }
        let words = outcome.error_messages.unwrap_or_default().into_iter();
        let words: Vec<_> = words.filter_map(|one| one.default_message).collect();
        Ok(if words.is_empty() { vec!["no reason is given".to_owned()] } else { words })
    }

    /// The session, for what else REST alone has.
    pub(crate) fn rest(&self) -> &RestSession {
        &self.session
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        self.session.close().await;
    }
}

impl fmt::Debug for TagClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagClient").field("session", &self.session).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Writes, each guarded by the version that the decision was made for.

use std::{sync::Arc, time::Duration};

use cloudprovider::{FairPermit, FairPermits};
use cluster_api::defaults::Operation;
use controller_kit::{
    cache::{Cache, CachedObject},
    writes::{
        APPLY_PATCH, JSON_PATCH, MERGE_PATCH, WHOLE_OBJECT, WriteError, create_as, delete, patch_as,
        patch_by, within_deadline,
    },
};
use kube::{Api, Client, ResourceExt as _, api::ListParams, core::Selector};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    control::Then,
    merge_patch::difference,
    object::{Kind, KindWithStatus, Meta as _, Stored, key},
    place::{Guard, Place},
    status::{Change, Stage, Urgent, Waiting},
};

/// How many requests wait for an answer at the same time.
const MAX_REQUESTS: usize = 32;

/// How many objects one answer to a list has.
const PAGE: u32 = 500;

/// How long a cache may take to show a write. The next pass would decide on what was before it, and make a machine twice.
const SHOWN_WITHIN: Duration = Duration::from_secs(300);

/// Reads and writes single objects. Clones share the limit on requests, in which namespaces take turns.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    turns: FairPermits<Arc<str>>,
    waiting: Waiting,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Writes with this client.
    pub fn new(client: Client) -> Self {
        Self { client, turns: FairPermits::new(MAX_REQUESTS), waiting: Waiting::default() }
    }

    /// Writes each change of a status at once.
    pub(crate) fn without_delays(client: Client) -> Self {
        Self { waiting: Waiting::none(), ..Self::new(client) }
    }

    /// Waits until a request for an object of this namespace may be sent.
    async fn turn(&self, namespace: &str) -> Option<FairPermit<Arc<str>>> {
        // it is never closed
        self.turns.acquire(namespace.into()).await.ok()
    }

    /// Applies operations of JSON Patch to the object with this UID, and gives it as it is then. It may have any version: what the
    /// decision depends on is among the operations, each a `test`.
    ///
    /// # Errors
    /// [`WriteError::Stale`] if a `test` fails.
    pub async fn patch_at_by_operations<T: DeserializeOwned>(
        &self,
        place: &Place,
        uid: &str,
        mut operations: Vec<Value>,
    ) -> Result<T, WriteError> {
        operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": uid}));
        let _turn = self.turn(&place.namespace).await;
        patch_as(&self.client, &place.path()?, JSON_PATCH, &operations.into(), WHOLE_OBJECT).await
    }

    /// Sends a merge patch of metadata and spec, and gives the object as it is then.
    ///
    /// # Errors
    /// [`WriteError::Stale`] if the object has another version, [`WriteError::Gone`] if it is gone or has another UID.
    pub async fn patch_at<T: DeserializeOwned>(
        &self,
        place: &Place,
        guard: Guard<'_>,
        body: Value,
    ) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        patch_as(&self.client, &place.path()?, MERGE_PATCH, &guard.add_to(body), WHOLE_OBJECT).await
    }

    /// The same for the status.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn patch_status_at<T: DeserializeOwned>(
        &self,
        place: &Place,
        guard: Guard<'_>,
        body: Value,
    ) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        let path = format!("{}/status", place.path()?);
        patch_as(&self.client, &path, MERGE_PATCH, &guard.add_to(body), WHOLE_OBJECT).await
    }

    /// The same merge patch in the name of a field manager.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn patch_by<T: DeserializeOwned>(
        &self,
        place: &Place,
        guard: Guard<'_>,
        manager: &str,
        body: Value,
    ) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        patch_by(&self.client, &place.path()?, MERGE_PATCH, manager, &guard.add_to(body)).await
    }

    /// Creates an object by server-side apply, in the name of a field manager, and gives it as it is then.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn apply_at<T: DeserializeOwned>(
        &self,
        place: &Place,
        manager: &str,
        body: &Value,
    ) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        patch_by(&self.client, &place.path()?, APPLY_PATCH, manager, body).await
    }

    /// Creates an object and gives it as it is then.
    ///
    /// # Errors
    /// [`WriteError::Stale`] if there is one of this name.
    pub async fn create_at<T: DeserializeOwned>(&self, place: &Place, body: &Value) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        create_as(&self.client, &place.all()?, body).await
    }

    /// Deletes exactly this object.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if it is gone.
    pub async fn delete_at(&self, place: &Place, guard: Guard<'_>) -> Result<(), WriteError> {
        let _turn = self.turn(&place.namespace).await;
        let mut preconditions = json!({"uid": guard.uid});
        if let Some(version) = guard.version {
            preconditions["resourceVersion"] = version.into();
        }
        let body = json!({"propagationPolicy": "Background", "preconditions": preconditions});
        delete(&self.client, &place.path()?, &body).await
    }

    /// The object as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if there is none.
    pub async fn read_at<T: DeserializeOwned>(&self, place: &Place) -> Result<T, WriteError> {
        let _turn = self.turn(&place.namespace).await;
        let request = http::Request::get(place.path()?)
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        within_deadline(self.client.request(request)).await
    }

    /// The names of the first objects of a kind with this value of a label, as the API server has them now.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn names_of<K: Kind>(
        &self,
        namespace: &str,
        (label, value): (&str, &str),
        most: u32,
    ) -> Result<Vec<String>, WriteError> {
        let _turn = self.turn(namespace).await;
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let parameters = ListParams::default().labels(&format!("{label}={value}")).limit(most);
        let listed = within_deadline(api.list_metadata(&parameters)).await?;
        Ok(listed.items.into_iter().filter_map(|object| object.metadata.name).collect())
    }

    /// The names and versions of the objects of a kind that a selector selects and that have an annotation, as the API server has them now.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn annotated<K: Kind>(
        &self,
        namespace: &str,
        selector: &Selector,
        annotation: &str,
    ) -> Result<Vec<(String, String)>, WriteError> {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let mut parameters = ListParams::default().labels_from(selector).limit(PAGE);
        let mut found = Vec::new();
        loop {
            let _turn = self.turn(namespace).await;
            let page = within_deadline(api.list_metadata(&parameters)).await?;
            let annotated =
                page.items.into_iter().filter(|object| object.annotations().contains_key(annotation));
            found.extend(
                annotated.filter_map(|object| object.metadata.name.zip(object.metadata.resource_version)),
            );
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Patches metadata and spec of an object, and waits until its cache shows that.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn patch<K: Kind>(
        &self,
        store: &Cache<Stored<K>>,
        object: &K,
        body: Value,
    ) -> Result<Stored<K>, WriteError> {
        let written: K = self.patch_at(&Place::of(object), Guard::of(object), body).await?;
        shown(store, written).await
    }

    /// Applies operations of JSON Patch to exactly this object, and waits until its cache shows that.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn patch_by_operations<K: Kind>(
        &self,
        store: &Cache<Stored<K>>,
        object: &K,
        operations: &[Operation],
    ) -> Result<Stored<K>, WriteError> {
        let guard = Guard::of(object);
        let mut body =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": guard.version})];
        for operation in operations {
            body.push(to_json(operation)?);
        }
        let written: K = self.patch_at_by_operations(&Place::of(object), guard.uid, body).await?;
        shown(store, written).await
    }

    /// Writes what is different in a status, and waits until its cache shows that. `None`: nothing is.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn patch_status<K: KindWithStatus>(
        &self,
        store: &Cache<Stored<K>>,
        object: &K,
        status: &K::Status,
    ) -> Result<Option<Stored<K>>, WriteError> {
        let before = to_json(&object.status().cloned().unwrap_or_default())?;
        let Some(difference) = difference(&before, &to_json(status)?) else { return Ok(None) };
        let body = json!({"status": difference});
        let written: K = self.patch_status_at(&Place::of(object), Guard::of(object), body).await?;
        shown(store, written).await.map(Some)
    }

    /// The same, but a change that is not `urgent` waits a second for more of the kind, and one of messages alone ten seconds. So a set of
    /// many Machines is not written once for each of them. The pass has to come back then, also one that fails.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub(crate) async fn patch_status_soon<K: KindWithStatus>(
        &self,
        store: &Cache<Stored<K>>,
        object: &K,
        status: &K::Status,
        urgent: Urgent,
    ) -> Result<Then, WriteError> {
        let stage = match object.status() {
            _ if object.is_deleting() => Stage::Ends,
            None => Stage::Begins,
            Some(_) => Stage::Stays,
        };
        let before = to_json(&object.status().cloned().unwrap_or_default())?;
        let of = format!("{} {}", K::kind(&()), key(object.namespace_or_empty(), object.name_or_empty()));
        let Some(difference) = difference(&before, &to_json(status)?) else {
            self.waiting.settled(&of);
            return Ok(Then::WhenChanged);
        };
        let change = Change { before: &before, patch: &difference, stage, urgent };
        if let Err(left) = self.waiting.is_due(&of, change) {
            return Ok(Then::After(left));
        }
        let body = json!({"status": difference});
        let written: K = self.patch_status_at(&Place::of(object), Guard::of(object), body).await?;
        shown(store, written).await?;
        Ok(Then::WhenChanged)
    }

    /// Creates an object, and waits until its cache shows it.
    ///
    /// # Errors
    /// As [`create_at`](Self::create_at).
    pub async fn create<K: Kind>(
        &self,
        store: &Cache<Stored<K>>,
        object: &K,
    ) -> Result<Stored<K>, WriteError> {
        let created: K = self.create_at(&Place::of(object), &body_of(object)?).await?;
        let key = key(created.namespace_or_empty(), created.name_or_empty());
        within(store.until_exists(&key)).await?;
        Ok(Stored::new(created))
    }

    /// Creates an object by server-side apply, in the name of a field manager, and waits until its cache shows it.
    ///
    /// # Errors
    /// As [`apply_at`](Self::apply_at).
    pub async fn apply<K: Kind>(
        &self,
        store: &Cache<Stored<K>>,
        manager: &str,
        object: &K,
    ) -> Result<Stored<K>, WriteError> {
        let created: K = self.apply_at(&Place::of(object), manager, &body_of(object)?).await?;
        let key = key(created.namespace_or_empty(), created.name_or_empty());
        within(store.until_exists(&key)).await?;
        Ok(Stored::new(created))
    }

    /// Removes the last finalizer of an object, with which it is gone. One that is gone already is no error.
    ///
    /// # Errors
    /// As [`patch_at`](Self::patch_at).
    pub async fn release<K: Kind>(&self, object: &K, patch: Value) -> Result<(), WriteError> {
        match self.patch_at::<Value>(&Place::of(object), Guard::of(object), patch).await {
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object, and waits until its cache shows that.
    ///
    /// # Errors
    /// As [`delete_at`](Self::delete_at), but one that is gone is no error.
    pub async fn delete<K: Kind>(&self, store: &Cache<Stored<K>>, object: &K) -> Result<(), WriteError> {
        let guard = Guard::of_any_version(object);
        match self.delete_at(&Place::of(object), guard).await {
            Ok(()) | Err(WriteError::Gone) => {}
            Err(error) => return Err(error),
        }
        let key = key(object.namespace_or_empty(), object.name_or_empty());
        let is_gone =
            |shown: &Stored<K>| shown.is_deleting() || shown.uid_or_empty() != object.uid_or_empty();
        within(store.until(&key, |shown| shown.is_none_or(is_gone))).await
    }
}

/// What creates an object.
fn body_of<K: Kind>(object: &K) -> Result<Value, WriteError> {
    Ok(json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": to_json(object.meta())?,
        "spec": to_json(object.spec())?,
    }))
}

/// Waits until a cache shows what was written.
///
/// # Errors
/// If its watch does not show that for minutes.
pub async fn shown<K: Kind>(store: &Cache<Stored<K>>, written: K) -> Result<Stored<K>, WriteError> {
    let written = Stored::new(written);
    shows(store, &written.key(), written.resource_version()).await?;
    Ok(written)
}

/// Waits until a cache shows this version of an object or a later one.
///
/// # Errors
/// If its watch does not show that for minutes.
pub async fn shows<T: CachedObject>(store: &Cache<T>, key: &str, version: &str) -> Result<(), WriteError> {
    within(store.until_shown(key, version)).await
}

/// Waits for a cache.
async fn within<T>(shown: impl Future<Output = T>) -> Result<(), WriteError> {
    match timeout(SHOWN_WITHIN, shown).await {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(WriteError::Failed(format!("the watch does not show the write within {SHOWN_WITHIN:?}")))
        }
    }
}

/// JSON of a part of an object.
///
/// # Errors
/// If it cannot be JSON, as a map with keys that are no text.
pub fn to_json<T: Serialize + ?Sized>(part: &T) -> Result<Value, WriteError> {
    serde_json::to_value(part).map_err(|error| WriteError::Failed(error.to_string()))
}

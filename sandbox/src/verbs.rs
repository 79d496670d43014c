//! Reads and writes of objects: the effect of each verb on the store.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    kinds::services,
    object::{self, deleting, has_finalizers, meta},
    patch::Patch,
    request::Target,
    resources::ResourceKind,
    selector::Selector,
    status::{ApiError, ApiResult, FieldError},
    store::{Entry, Inner, Key, Store, Version, serialise},
    validation::validate,
};

/// The response to a write.
#[derive(Debug)]
pub(crate) enum Written {
    Object(StatusCode, Entry),
    /// The object is gone: a `metav1.Status` Success with its details.
    Deleted(Value),
}

/// The context of a verb, besides the store.
pub(crate) struct Verb<'a> {
    pub(crate) store: &'a Store,
    pub(crate) target: &'a Target,
    /// The kind in whose form the objects are stored, usually the target's own.
    pub(crate) stored: Arc<ResourceKind>,
}

impl Verb<'_> {
    pub(crate) fn get(&self) -> ApiResult<Arc<Version>> {
        self.current(&self.store.lock()).map(|entry| entry.version)
    }

    fn current(&self, inner: &Inner) -> ApiResult<Entry> {
        inner
            .get(&self.stored.storage(), &self.target.key())
            .cloned()
            .ok_or_else(|| ApiError::not_found(&self.target.kind, &self.target.name))
    }

    pub(crate) fn create(&self, body: Value) -> ApiResult<Written> {
        let object = self.read(body)?;
        self.insert(&mut self.store.lock(), object).map(|entry| Written::Object(StatusCode::CREATED, entry))
    }

    /// Reads the body of a create or an update; 400 if a field has the wrong type.
    fn read(&self, body: Value) -> ApiResult<Value> {
        let kind = &*self.target.kind;
        let mut object = object::to_storage(kind, body)?;
        object::check_types(kind, &mut object).map_err(|why| {
            ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: {why}",
                kind.kind, kind.version
            ))
        })?;
        Ok(object)
    }

    /// Reads the result of a patch; 422 if a field has the wrong type.
    fn read_patched(&self, body: Value) -> ApiResult<Value> {
        if !body.is_object() {
            return Err(ApiError::patch_rejected());
        }
        let kind = &*self.target.kind;
        let mut object = object::to_storage(kind, body)?;
        object::check_types(kind, &mut object).map_err(|why| {
            // As upstream, without the object's name
            ApiError::invalid_patch(&FieldError::invalid("patch", &object, why))
        })?;
        Ok(object)
    }

    /// Prepares and stores a new object.
    fn insert(&self, inner: &mut Inner, mut object: Value) -> ApiResult<Entry> {
        let kind = &*self.target.kind;
        if !meta(&object, "resourceVersion").is_empty() {
            // A plain error upstream, so 500 without a reason
            return Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.scope(&mut object)?;
        if meta(&object, "name").is_empty() {
            let base = meta(&object, "generateName").to_owned();
            if base.is_empty() {
                let error = FieldError::required("metadata.name", "name or generateName is required");
                return Err(ApiError::invalid(kind, "", &[error]));
            }
            object["metadata"]["name"] = format!("{base}{}", object::suffix()).into();
        }
        let key: Key = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
        if kind.namespaced && inner.get("/namespaces", &(String::new(), key.0.clone())).is_none() {
            let namespaces = ResourceKind::new("", "v1", "Namespace", "namespaces");
            return Err(ApiError::not_found(&namespaces, &key.0));
        }
        if let Value::Object(metadata) = &mut object["metadata"] {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
                metadata.remove(field);
            }
            metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
            metadata.insert("creationTimestamp".into(), crate::time::now().into());
            if kind.rules.generation {
                metadata.insert("generation".into(), 1.into());
            }
        }
        if kind.status
            && !kind.rules.status_on_create
            && let Value::Object(map) = &mut object
        {
            map.remove("status");
        }
        object::normalise(&self.stored, &mut object);
        object::defaults(&self.stored, &mut object);
        if services::is_service(&self.stored) {
            services::allocate(&mut inner.allocations, &mut object, None);
        }
        if inner.get(&self.stored.storage(), &key).is_some() {
            return Err(ApiError::already_exists(kind, &key.1));
        }
        validate(kind, &object, None)?;
        Ok(self.store(inner, key, object))
    }

    /// Checks a body's namespace against the request's, and fills it in.
    fn scope(&self, object: &mut Value) -> ApiResult<()> {
        let wanted = self.target.namespace.as_deref().unwrap_or_default();
        let got = meta(object, "namespace");
        if !got.is_empty() && got != wanted {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !wanted.is_empty() {
            object["metadata"]["namespace"] = wanted.into();
        }
        Ok(())
    }

    /// Stores a version, or only returns it in a dry run.
    fn store(&self, inner: &mut Inner, key: Key, object: Value) -> Entry {
        if self.target.query.dry_run {
            return preview(&self.stored, inner.revision, object);
        }
        inner.put(&self.stored, key, object)
    }

    pub(crate) fn update(&self, body: Value) -> ApiResult<Written> {
        let kind = &*self.target.kind;
        let mut object = self.read(body)?;
        let name = meta(&object, "name");
        if name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.target.name
            )));
        }
        self.same_name(name)?;
        self.scope(&mut object)?;
        let mut inner = self.store.lock();
        let current = match self.current(&inner) {
            Ok(current) => current,
            Err(_) if kind.rules.create_on_update && self.target.subresource.is_empty() => {
                return self
                    .insert(&mut inner, object)
                    .map(|entry| Written::Object(StatusCode::CREATED, entry));
            }
            Err(e) => return Err(e),
        };
        if meta(&object, "resourceVersion").is_empty() && !kind.rules.unconditional_update {
            let error =
                FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            // As upstream, the message has the resource and not the kind
            let mut resource = kind.clone();
            resource.kind.clone_from(&kind.plural);
            return Err(ApiError::invalid(&resource, &self.target.name, &[error]));
        }
        self.replace(&mut inner, &current, object).map(|entry| Written::Object(StatusCode::OK, entry))
    }

    fn same_name(&self, name: &str) -> ApiResult<()> {
        if name == self.target.name {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            self.target.name
        )))
    }

    pub(crate) fn patch(&self, patch: &Patch) -> ApiResult<Written> {
        let kind = &*self.target.kind;
        if matches!(patch, Patch::Apply(_)) && self.target.query.field_manager.is_empty() {
            let options = ResourceKind::new("meta.k8s.io", "v1", "PatchOptions", "PatchOptions");
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid(&options, "", &[error]));
        }
        let mut inner = self.store.lock();
        let current = match self.current(&inner) {
            Ok(current) => current,
            Err(_) if patch.creates() && self.target.subresource.is_empty() => {
                let mut body = json!({});
                patch.apply(kind, &mut body)?;
                let mut object = self.read_patched(body)?;
                if meta(&object, "name").is_empty() {
                    object["metadata"]["name"] = self.target.name.clone().into();
                }
                self.same_name(meta(&object, "name"))?;
                return self
                    .insert(&mut inner, object)
                    .map(|entry| Written::Object(StatusCode::CREATED, entry));
            }
            Err(e) => return Err(e),
        };
        let mut body = object::to_served(kind, &current.value);
        patch.apply(kind, &mut body)?;
        let mut object = self.read_patched(body)?;
        self.same_name(meta(&object, "name"))?;
        self.scope(&mut object)?;
        self.replace(&mut inner, &current, object).map(|entry| Written::Object(StatusCode::OK, entry))
    }

    /// Replaces `current` by a new version. Checks preconditions, immutable metadata, the isolation of the
    /// status, generation and validation. An unchanged object is not written.
    fn replace(&self, inner: &mut Inner, current: &Entry, mut new: Value) -> ApiResult<Entry> {
        let kind = &*self.target.kind;
        let name = &self.target.name;
        let old = &*current.value;
        let (uid, version) = (meta(&new, "uid"), meta(&new, "resourceVersion"));
        if !uid.is_empty() && uid != meta(old, "uid") && self.target.verb == "patch" {
            let error = FieldError::invalid("metadata.uid", &uid.into(), "field is immutable");
            return Err(ApiError::invalid(kind, name, &[error]));
        }
        if !uid.is_empty() && uid != meta(old, "uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta(old, "uid")
            );
            return Err(ApiError::conflict(kind, name, &why));
        }
        if !version.is_empty() && version != meta(old, "resourceVersion") {
            if version.parse::<u64>().is_err() {
                return Err(ApiError::bad_revision("", version));
            }
            return Err(ApiError::modified(kind, name));
        }
        if self.target.subresource == "status" {
            let metadata = if kind.rules.status_writes_metadata {
                new["metadata"].take()
            } else {
                old["metadata"].clone()
            };
            let status = new["status"].take();
            new = old.clone();
            new["metadata"] = metadata;
            new["status"] = status;
        } else if kind.status {
            new["status"] = old["status"].clone();
        }
        // Fields that only the server writes
        for field in
            ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
        {
            new["metadata"][field] = old["metadata"][field].clone();
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        object::normalise(&self.stored, &mut new);
        if services::is_service(&self.stored) {
            object::defaults(&self.stored, &mut new);
            if self.target.subresource.is_empty() {
                services::allocate(&mut inner.allocations, &mut new, Some(old));
                services::drop_by_type(&mut new, old);
            }
        }
        validate(kind, &new, Some(old))?;
        if new == *old {
            return Ok(current.clone());
        }
        if kind.rules.generation && desired(&new) != desired(old) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            new["metadata"]["generation"] = (generation + 1).into();
        }
        if deleting(&new) && !has_finalizers(&new) && !self.target.query.dry_run {
            return Ok(inner.remove(&self.stored, &self.target.key(), new));
        }
        Ok(self.store(inner, self.target.key(), new))
    }

    pub(crate) fn delete(&self, options: &Value) -> ApiResult<Written> {
        let mut inner = self.store.lock();
        let current = self.current(&inner)?;
        let kind = &*self.target.kind;
        let old = &*current.value;
        let wanted =
            |field: &str| options.pointer(&format!("/preconditions/{field}")).and_then(Value::as_str);
        for (field, word, perhaps) in
            [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
        {
            if let Some(wanted) = wanted(field)
                && wanted != meta(old, field)
            {
                let why = format!(
                    "the {word} in the precondition ({wanted}) does not match the {word} in record ({}). The \
                     object might have been {perhaps}",
                    meta(old, field)
                );
                // As upstream, the message has the kind and not the resource
                let mut kind = kind.clone();
                kind.plural.clone_from(&kind.kind);
                return Err(ApiError::conflict(&kind, &self.target.name, &why));
            }
        }
        let dry_run = self.target.query.dry_run
            || options["dryRun"].as_array().is_some_and(|all| all.iter().any(|v| v == "All"));
        let key = self.target.key();
        if has_finalizers(old) {
            if deleting(old) {
                return Ok(Written::Object(StatusCode::OK, current));
            }
            let mut waiting = old.clone();
            waiting["metadata"]["deletionTimestamp"] = crate::time::now().into();
            waiting["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = old["metadata"]["generation"].as_i64() {
                waiting["metadata"]["generation"] = (generation + 1).into();
            }
            let entry = if dry_run {
                preview(&self.stored, inner.revision, waiting)
            } else {
                inner.put(&self.stored, key, waiting)
            };
            return Ok(Written::Object(StatusCode::OK, entry));
        }
        let entry = if dry_run { current } else { inner.remove(&self.stored, &key, old.clone()) };
        if self.stored.storage() == "/namespaces" && !dry_run {
            inner.empty_namespace(&self.target.name);
        }
        if kind.rules.delete_returns_object {
            return Ok(Written::Object(StatusCode::OK, entry));
        }
        let mut details = json!({
            "name": self.target.name, "kind": kind.plural, "uid": meta(&entry.value, "uid"),
        });
        if !kind.group.is_empty() {
            details["group"] = kind.group.clone().into();
        }
        Ok(Written::Deleted(details))
    }

    /// Deletes the matching objects one by one, as the API server does, and returns them.
    pub(crate) fn delete_collection(&self, options: &Value) -> ApiResult<(u64, Vec<Arc<Version>>)> {
        let query = &self.target.query;
        let selector = Selector::parse(
            &self.target.kind,
            self.target.namespace.as_deref(),
            &query.label_selector,
            &query.field_selector,
        )?;
        let matching: Vec<_> = {
            let mut inner = self.store.lock();
            let objects = &inner.bucket(&self.stored.storage()).objects;
            objects
                .iter()
                .filter(|(_, entry)| selector.matches(&entry.version.selectable))
                .map(|(key, entry)| (key.clone(), entry.version.clone()))
                .collect()
        };
        for (key, _) in &matching {
            let mut target = self.target.clone();
            target.namespace = (!key.0.is_empty()).then(|| key.0.clone());
            target.name.clone_from(&key.1);
            let one = Verb { store: self.store, target: &target, stored: self.stored.clone() };
            match one.delete(options) {
                Err(e) if e.code != StatusCode::NOT_FOUND => return Err(e),
                _ => {}
            }
        }
        let revision = self.store.lock().revision;
        Ok((revision, matching.into_iter().map(|(_, version)| version).collect()))
    }
}

/// The fields that `metadata.generation` depends on.
fn desired(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field != "metadata" && *field != "status").collect()
}

/// The response to a dry run: the object as it would be, not stored.
fn preview(kind: &ResourceKind, revision: u64, object: Value) -> Entry {
    let version = Version {
        revision,
        json: serialise(kind, &object),
        selectable: crate::selector::Selectable::of(kind, &object),
    };
    Entry { value: Arc::new(object), version: Arc::new(version) }
}

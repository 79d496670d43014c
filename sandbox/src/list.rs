//! Lists: selectors, pages, and the meaning of resourceVersion.

use std::sync::Arc;

use http::StatusCode;

use crate::{
    request::Target,
    resources::ResourceKind,
    selector::Selector,
    status::{ApiError, ApiResult, FieldError},
    store::{Snapshot, Store, Version},
};

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) versions: Vec<Arc<Version>>,
    pub(crate) continue_token: String,
    /// `None` if a selector makes the number unknown.
    pub(crate) remaining: Option<usize>,
}

/// 504 for a resourceVersion that this server has not reached yet.
pub(crate) fn too_large(wanted: u64, current: u64) -> ApiError {
    ApiError {
        details: Some(serde_json::json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        })),
        ..ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {wanted}, current: {current}"),
        )
    }
}

/// 422 for list or watch parameters that are not allowed together.
pub(crate) fn invalid_options(errors: &[FieldError]) -> ApiError {
    let options = ResourceKind::new("meta.k8s.io", "v1", "ListOptions", "ListOptions");
    ApiError::invalid(&options, "", errors)
}

/// Parses a resourceVersion parameter. Empty and `0` mean any version.
pub(crate) fn revision(text: Option<&str>) -> ApiResult<u64> {
    let text = text.unwrap_or("0");
    text.parse()
        .map_err(|_| ApiError::bad_revision(&format!("resourceVersion: Invalid value: {text:?}: "), text))
}

pub(crate) fn list(store: &Store, target: &Target, stored: &ResourceKind) -> ApiResult<Page> {
    let query = &target.query;
    let selector = Selector::parse(
        &target.kind,
        target.namespace.as_deref(),
        &query.label_selector,
        &query.field_selector,
    )?;
    if !query.continue_token.is_empty() {
        return next_page(store, target, &selector);
    }
    if query.resource_version_match.is_some() && query.resource_version.is_none() {
        let error = FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        return Err(invalid_options(&[error]));
    }
    let wanted = revision(query.resource_version.as_deref())
        .map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message)))?;
    let mut inner = store.lock();
    let revision = inner.revision;
    if wanted > revision {
        return Err(too_large(wanted, revision));
    }
    let bucket = inner.bucket(&stored.storage());
    let exact = query.resource_version_match.as_deref() == Some("Exact");
    let (revision, versions) =
        if exact { (wanted, bucket.at(wanted)) } else { (revision, Some(bucket.now())) };
    let mut versions = versions.ok_or_else(|| {
        ApiError::expired(format!("The resourceVersion for the provided list is too old: {wanted}"))
    })?;
    versions.retain(|version| selector.matches(&version.selectable));
    if query.limit == 0 || versions.len() <= query.limit {
        return Ok(Page { revision, versions, continue_token: String::new(), remaining: None });
    }
    let snapshot = Snapshot { revision, versions: Arc::new(versions) };
    let number = inner.keep_snapshot(snapshot.clone());
    drop(inner);
    Ok(page(&snapshot, number, 0, query.limit, selector.is_empty()))
}

fn page(snapshot: &Snapshot, number: u64, start: usize, limit: usize, tell_remaining: bool) -> Page {
    let all = &snapshot.versions;
    let end = if limit == 0 { all.len() } else { all.len().min(start.saturating_add(limit)) };
    let left = all.len() - end;
    Page {
        revision: snapshot.revision,
        versions: all.get(start..end).unwrap_or_default().to_vec(),
        continue_token: if left == 0 { String::new() } else { format!("{number}.{end}") },
        remaining: (left > 0 && tell_remaining).then_some(left),
    }
}

fn next_page(store: &Store, target: &Target, selector: &Selector) -> ApiResult<Page> {
    let token = &target.query.continue_token;
    let (number, start) = token
        .split_once('.')
        .and_then(|(number, start)| Some((number.parse().ok()?, start.parse::<usize>().ok()?)))
        .ok_or_else(|| ApiError::bad_request("continue key is not valid"))?;
    let snapshot = store.lock().snapshot(number).filter(|s| start <= s.versions.len()).ok_or_else(|| {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a \
             new list without the continue parameter.",
        )
    })?;
    Ok(page(&snapshot, number, start, target.query.limit, selector.is_empty()))
}

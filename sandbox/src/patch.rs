//! The four patch formats of the API.

use http::HeaderMap;
use serde_json::Value;

use crate::{
    resources::ResourceKind,
    status::{ApiError, ApiResult},
};

mod json;
mod merge;
mod strategic;

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Vec<Value>),
    Merge(Value),
    Strategic(Value),
    /// Server-side apply without field ownership: merges like a strategic patch and never conflicts.
    Apply(Value),
}

impl Patch {
    /// Reads the body by its content type.
    ///
    /// 415 for types that are not patches, and for strategic patches of kinds without Go types; 400 for a
    /// body that cannot be read.
    pub(crate) fn read(kind: &ResourceKind, headers: &HeaderMap, body: &[u8]) -> ApiResult<Self> {
        let content_type = headers.get(http::header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => {
                serde_json::from_slice(body).map(Self::Json).map_err(|e| unreadable(&e))
            }
            "application/merge-patch+json" => json_object(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if kind.rules.strategic => {
                json_object(body).map(Self::Strategic)
            }
            // YAML contains JSON
            "application/apply-patch+yaml" => {
                let text = str::from_utf8(body).map_err(|e| unreadable(&e))?;
                let value: Value = serde_saphyr::from_str(text)
                    .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
                if value.is_object() { Ok(Self::Apply(value)) } else { Err(not_an_object()) }
            }
            other => Err(ApiError::unsupported_media_type(other)),
        }
    }

    /// Whether the object is created if it does not exist.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, Self::Apply(_))
    }

    /// Applies the patch to `object`, which has kind and apiVersion.
    pub(crate) fn apply(&self, kind: &ResourceKind, object: &mut Value) -> ApiResult<()> {
        match self {
            Self::Json(operations) => json::apply(object, operations),
            Self::Strategic(patch) => strategic::merge(kind, object, patch),
            Self::Apply(patch) if kind.rules.strategic => strategic::merge(kind, object, patch),
            Self::Merge(patch) | Self::Apply(patch) => {
                merge::merge(object, patch);
                Ok(())
            }
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("error decoding patch: {error}"))
}

fn not_an_object() -> ApiError {
    ApiError::bad_request("error decoding patch: expected an object")
}

fn json_object(body: &[u8]) -> ApiResult<Value> {
    let value: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
    if value.is_object() { Ok(value) } else { Err(not_an_object()) }
}

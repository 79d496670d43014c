//! Errors in the API server's form: `metav1.Status`.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::resources::ResourceKind;

/// A refused request, reported to the client as a `metav1.Status`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// The value of the `Retry-After` header in seconds.
    pub(crate) retry_after: Option<u64>,
}

/// The result of a request.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// One field that breaks a rule. An `Invalid` error may list several.
#[derive(Debug, Clone)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    reason: &'static str,
    message: String,
}

impl FieldError {
    /// A value that does not fit its field.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {}", detail.as_ref()),
        }
    }

    /// A change or a value that is not allowed.
    pub(crate) fn forbidden(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {}", detail.as_ref()),
        }
    }

    /// A field that is required.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A list entry with a duplicate key.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {value}: {detail}"),
        }
    }

    /// A value that is not in the enumeration.
    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {list}"),
        }
    }
}

/// `metav1.StatusDetails` of a named object.
fn details(kind: &ResourceKind, name: &str) -> Map<String, Value> {
    let mut map = Map::new();
    if !name.is_empty() {
        map.insert("name".into(), name.into());
    }
    if !kind.group.is_empty() {
        map.insert("group".into(), kind.group.clone().into());
    }
    map.insert("kind".into(), kind.plural.clone().into());
    map
}

impl ApiError {
    /// An error without details.
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
    }

    fn of(code: StatusCode, reason: &'static str, message: String, kind: &ResourceKind, name: &str) -> Self {
        Self { details: Some(Value::Object(details(kind, name))), ..Self::new(code, reason, message) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A resourceVersion that is not a number: a plain error upstream, so 500 without a reason.
    pub(crate) fn bad_revision(field: &str, text: &str) -> Self {
        let message = format!("{field}strconv.ParseUint: parsing {text:?}: invalid syntax");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn not_found(kind: &ResourceKind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.group_resource());
        Self::of(StatusCode::NOT_FOUND, "NotFound", message, kind, name)
    }

    /// A path that this server does not serve.
    pub(crate) fn no_such_path() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
        }
    }

    pub(crate) fn already_exists(kind: &ResourceKind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.group_resource());
        Self::of(StatusCode::CONFLICT, "AlreadyExists", message, kind, name)
    }

    pub(crate) fn conflict(kind: &ResourceKind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.group_resource());
        Self::of(StatusCode::CONFLICT, "Conflict", message, kind, name)
    }

    /// The request's resourceVersion is not the stored one.
    pub(crate) fn modified(kind: &ResourceKind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        }
    }

    pub(crate) fn unsupported_media_type(got: &str) -> Self {
        tracing::debug!(got, "unsupported media type");
        Self {
            details: Some(json!({})),
            ..Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "415: Unsupported Media Type",
            )
        }
    }

    /// A resourceVersion or continue token that is older than the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// One or more fields break a rule.
    pub(crate) fn invalid(kind: &ResourceKind, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = details(kind, name);
        details.insert("kind".into(), kind.kind.clone().into());
        let causes = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        details.insert("causes".into(), Value::Array(causes));
        Self {
            details: Some(Value::Object(details)),
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                format!("{} {name:?} is invalid: {text}", kind.group_kind()),
            )
        }
    }

    /// A patch whose result is not an object of the kind.
    pub(crate) fn invalid_patch(error: &FieldError) -> Self {
        Self {
            details: Some(json!({
                "causes": [{"reason": error.reason, "message": error.message, "field": error.field}],
            })),
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                format!(" \"\" is invalid: {}: {}", error.field, error.message),
            )
        }
    }

    /// A JSON patch that cannot be applied to this object: a `test` fails, a path is missing, or an operation
    /// is unknown. The API server does not tell which.
    pub(crate) fn patch_rejected() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
        }
    }

    /// The `metav1.Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        let mut details = self.details.clone();
        if let Some(seconds) = self.retry_after {
            let details = details.get_or_insert_with(|| json!({}));
            details["retryAfterSeconds"] = seconds.into();
        }
        if let Some(details) = details {
            status["details"] = details;
        }
        status
    }
}

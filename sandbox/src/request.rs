//! Parses a request: its method, path and query.

use std::{borrow::Cow, sync::Arc, time::Duration};

use http::{HeaderMap, Method, Uri, header};

use crate::{
    resources::{Registry, ResourceKind},
    status::{ApiError, ApiResult},
};

/// The requested form of the response, from the `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`
    Metadata,
    /// `as=Table`
    Table,
}

impl Form {
    /// Only JSON is supported. Clients that prefer protobuf accept JSON as well, and get it.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        for choice in accept.split(',').map(str::trim) {
            if !choice.starts_with("application/json") {
                continue;
            }
            if choice.contains("as=Table") && choice.contains("v=v1;") | choice.ends_with("v=v1") {
                return Self::Table;
            }
            if choice.contains("as=PartialObjectMetadata") {
                return Self::Metadata;
            }
            if !choice.contains("as=") {
                return Self::Object;
            }
        }
        Self::Object
    }
}

/// Query parameters of the resource endpoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pub(crate) watch: bool,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: Option<String>,
    pub(crate) resource_version_match: Option<String>,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    /// `includeObject` of tables: `None`, `Metadata` (the default) or `Object`.
    pub(crate) include_object: String,
}

impl Query {
    fn parse(query: &str) -> ApiResult<Self> {
        let mut parsed = Self::default();
        let truth = |value: &str| matches!(value, "true" | "1" | "t" | "T" | "True" | "TRUE");
        let whole = |name: &str, value: &str| -> ApiResult<u64> {
            value.parse().map_err(|_| ApiError::bad_request(format!("invalid {name}: {value:?}")))
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            match decode(name).as_ref() {
                "watch" => parsed.watch = value.is_empty() || truth(&value),
                "labelSelector" => parsed.label_selector = value.into_owned(),
                "fieldSelector" => parsed.field_selector = value.into_owned(),
                "limit" if !value.is_empty() => {
                    parsed.limit = usize::try_from(whole("limit", &value)?).unwrap_or(usize::MAX);
                }
                "continue" => parsed.continue_token = value.into_owned(),
                "resourceVersion" if !value.is_empty() => parsed.resource_version = Some(value.into_owned()),
                "resourceVersionMatch" if !value.is_empty() => {
                    parsed.resource_version_match = Some(value.into_owned());
                }
                "allowWatchBookmarks" => parsed.allow_watch_bookmarks = truth(&value),
                "sendInitialEvents" if !value.is_empty() => parsed.send_initial_events = Some(truth(&value)),
                "timeoutSeconds" if !value.is_empty() => {
                    let seconds = whole("timeoutSeconds", &value)?;
                    parsed.timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                "dryRun" => parsed.dry_run = value == "All",
                "fieldManager" => parsed.field_manager = value.into_owned(),
                "includeObject" => parsed.include_object = value.into_owned(),
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Decodes percent encoding and `+`. Invalid UTF-8 is replaced.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => match tail.get(..2).and_then(hex) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &tail[2..];
                }
                None => bytes.push(b'%'),
            },
            other => bytes.push(*other),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// A request for objects.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub(crate) verb: &'static str,
    pub(crate) kind: Arc<ResourceKind>,
    /// `None` if cluster-scoped or for all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// Empty, or `status`.
    pub(crate) subresource: String,
    pub(crate) query: Query,
    pub(crate) form: Form,
}

impl Target {
    /// Parses a path below `/api` or `/apis`. `Ok(None)` if it is not the path of a resource (discovery,
    /// health).
    pub(crate) fn parse(
        registry: &Registry,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> ApiResult<Option<Self>> {
        let decoded: Vec<_> = uri.path().split('/').filter(|s| !s.is_empty()).map(decode).collect();
        let segments: Vec<&str> = decoded.iter().map(AsRef::as_ref).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Ok(None),
        };
        let (namespace, rest) = match rest {
            [] => return Ok(None),
            // A namespace and its subresources, as opposed to resources inside a namespace
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, inside @ ..] => (Some(*namespace), inside),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return Err(ApiError::no_such_path()),
        };
        let kind = registry.find(group, version, plural).ok_or_else(ApiError::no_such_path)?;
        let scope_fits =
            if kind.namespaced { namespace.is_some() || name.is_empty() } else { namespace.is_none() };
        let subresource_fits = subresource.is_empty() || (subresource == "status" && kind.status);
        if !scope_fits || !subresource_fits {
            return Err(ApiError::no_such_path());
        }
        let query = Query::parse(uri.query().unwrap_or_default())?;
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET", true) if query.watch => "watch",
            ("GET", true) => "list",
            // The old way to watch a single object; new clients use a field selector
            ("GET", false) if query.watch && subresource.is_empty() => "watch",
            ("GET", false) => "get",
            ("POST", true) if !kind.namespaced || namespace.is_some() => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            ("DELETE", false) if subresource.is_empty() => "delete",
            ("DELETE", true) if !kind.namespaced || namespace.is_some() => "deletecollection",
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok(Some(Self {
            verb,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            form: Form::accepted(headers),
            query,
            kind,
        }))
    }

    /// The storage key of the named object.
    pub(crate) fn key(&self) -> (String, String) {
        (self.namespace.clone().unwrap_or_default(), self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, uri: &str) -> ApiResult<Option<Target>> {
        Target::parse(&Registry::built_in(), method, &uri.parse().unwrap(), &HeaderMap::new())
    }

    #[test]
    fn paths() {
        for (method, uri, verb, namespace, name) in [
            (Method::GET, "/api/v1/nodes?watch=1", "watch", None, ""),
            (Method::GET, "/api/v1/namespaces/x", "get", None, "x"),
            (Method::GET, "/api/v1/namespaces/x/status", "get", None, "x"),
            (Method::GET, "/api/v1/namespaces/x/pods", "list", Some("x"), ""),
            (Method::DELETE, "/api/v1/namespaces/x/pods/p", "delete", Some("x"), "p"),
            (Method::POST, "/apis/coordination.k8s.io/v1/namespaces/x/leases", "create", Some("x"), ""),
        ] {
            let target = parse(&method, uri).unwrap().unwrap();
            assert_eq!(
                (target.verb, target.namespace.as_deref(), target.name.as_str()),
                (verb, namespace, name)
            );
        }
        assert!(parse(&Method::GET, "/api/v1").unwrap().is_none());
        assert!(parse(&Method::GET, "/api/v1/widgets").is_err());
        assert!(parse(&Method::GET, "/api/v1/nodes/n/proxy").is_err());
        assert!(parse(&Method::GET, "/api/v1/namespaces/x/nodes").is_err());
        assert!(parse(&Method::POST, "/api/v1/pods").is_err());
    }

    #[test]
    fn percent_encoding() {
        assert_eq!(decode("a%3Db%2Cc+d%zz%"), "a=b,c d%zz%");
    }
}

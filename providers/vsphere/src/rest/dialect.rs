//! The two dialects of the Automation REST API: their paths, and the forms of their responses.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use crate::vim::CallError;

/// Path and query, and the body.
pub(crate) type Question = (String, Option<String>);

/// A dialect of the Automation REST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Legacy,
    Modern,
}

impl Dialect {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Modern,
            Self::Modern => Self::Legacy,
        }
    }

    pub(crate) fn session_path(self) -> &'static str {
        match self {
            Self::Legacy => "/rest/com/vmware/cis/session",
            Self::Modern => "/api/session",
        }
    }

    pub(crate) fn object_path(self, kind: &str, id: &str) -> String {
        match self {
            Self::Legacy => format!("/rest/com/vmware/cis/tagging/{kind}/id:{id}"),
            Self::Modern => format!("/api/cis/tagging/{kind}/{id}"),
        }
    }

    pub(crate) fn association_path(self, action: &str) -> String {
        match self {
            Self::Legacy => format!("/rest/com/vmware/cis/tagging/tag-association?~action={action}"),
            Self::Modern => format!("/api/cis/tagging/tag-association?action={action}"),
        }
    }

    /// The path of the cluster modules, or of what is `below` them, such as `/<ID>`.
    pub(crate) fn modules_path(self, below: &str) -> String {
        match self {
            Self::Legacy => format!("/rest/vcenter/cluster/modules{below}"),
            Self::Modern => format!("/api/vcenter/cluster/modules{below}"),
        }
    }

    pub(crate) fn categories_path(self) -> &'static str {
        match self {
            Self::Legacy => "/rest/com/vmware/cis/tagging/category",
            Self::Modern => "/api/cis/tagging/category",
        }
    }

    /// The request for the tags of a category.
    pub(crate) fn tags_of_category(self, id: &str) -> Question {
        const ACTION: &str = "list-tags-for-category";
        match self {
            Self::Legacy => (format!("/rest/com/vmware/cis/tagging/tag/id:{id}?~action={ACTION}"), None),
            Self::Modern => {
                let body = json!({ "category_id": id }).to_string();
                (format!("/api/cis/tagging/tag?action={ACTION}"), Some(body))
            }
        }
    }

    /// Reads the result in a response. The older dialect wraps it. An empty list may be null, and so is a response without a body.
    pub(crate) fn read<T: DeserializeOwned>(self, method: &'static str, body: &[u8]) -> Result<T, CallError> {
        #[derive(Deserialize)]
        struct Wrapped<T> {
            value: T,
        }
        let result = match self {
            _ if body.is_empty() => serde_json::from_slice(b"null"),
            Self::Modern => serde_json::from_slice(body),
            Self::Legacy => serde_json::from_slice::<Wrapped<T>>(body).map(|wrapped| wrapped.value),
        };
        result.map_err(|error| CallError::Malformed {
            method,
            // serde's message may quote the body, which may contain a session ID
            reason: format!("the answer has another form, at column {}", error.column()).into(),
        })
    }
}

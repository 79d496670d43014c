//! The URL of the server.

use provider_kit::{Findings, Settings};
use reqwest::Url;

use super::words::ApiVersion;

/// The parts of the URL that the operator gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerUrl {
    /// Without the path of an API, and without a slash at its end.
    pub(super) root: String,
    /// The API that the path names.
    pub(super) api: Option<ApiVersion>,
    /// The project of Rancher 1.6 that the path names.
    pub(super) project: Option<String>,
}

/// Reads the URL. `/v1`, `/v2` and `/v2-beta` in it are the API of Rancher 1.6, as in the old manager; `/v3` is that
/// of Rancher 2.x.
pub(super) fn url(settings: &Settings, findings: &mut Findings) -> Option<ServerUrl> {
    let origin = settings.origin("url");
    let Some(text) = settings.text("url") else {
        if !settings.has("url") {
            findings.problem(origin, "is missing; give the URL of the Rancher server, here or in CATTLE_URL");
        }
        return None;
    };
    let url =
        Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = url else {
        findings.problem(origin, "must be a URL such as https://rancher.example.org");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        findings.problem(origin, "must not hold a user or a password; give accessKey and secretKey");
        return None;
    }
    if url.query().is_some() || url.fragment().is_some() {
        findings.warning(&origin, "has a part behind ? or #, which is ignored");
        url.set_query(None);
        url.set_fragment(None);
    }
    if url.scheme() == "http" {
        findings.warning(&origin, "is a URL without TLS: the API key is sent in the clear");
    }
    let path = url.path().to_owned();
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at = parts.iter().position(|part| matches!(*part, "v1" | "v2" | "v2-beta" | "v3"));
    let (root, rest) = parts.split_at(at.unwrap_or(parts.len()));
    let api = rest.first().map(|api| if *api == "v3" { ApiVersion::V3 } else { ApiVersion::V2Beta });
    let project = match rest.get(1..).unwrap_or_default() {
        [] | ["schemas"] => None,
        ["projects", id] | ["projects", id, "schemas"] if api == Some(ApiVersion::V2Beta) => {
            Some((*id).to_owned())
        }
        _ => {
            let what = "must end in the path of an API, such as /v3, /v2-beta or /v2-beta/projects/1a5, or have none";
            findings.problem(origin, what);
            return None;
        }
    };
    url.set_path(&root.join("/"));
    Some(ServerUrl { root: url.as_str().trim_end_matches('/').to_owned(), api, project })
}

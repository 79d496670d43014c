//! What `/v3` answers.

use serde_json::{Value, json};

use super::{Fault, NEXT_TOKEN, NEXT_VIEWER, POWERLESS, Server, TOKEN, VIEWER};
use crate::fake_server::Asked;

/// A request as far as it matters.
pub(super) struct Request {
    pub(super) asked: Asked,
    /// The token, whether it came as a bearer token or as user and password.
    pub(super) token: Option<String>,
}

/// What a user may see.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    /// Everything, as an administrator.
    All,
    /// Everything below `/v3`.
    View,
    Nothing,
}

/// The default and the most objects of a page.
const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 10_000;

/// The filters that the server knows.
const FILTERS: [&str; 4] = ["id", "clusterId", "name", "nodeName"];

/// Counts a request, and checks what every one needs.
pub(super) fn admit(server: &mut Server, request: &Request) -> Result<Rights, Fault> {
    let asked = &request.asked;
    let mut parts = asked.parts();
    // Objects count as their collection.
    parts.truncate(if parts.first() == Some(&"v3") { 2 } else { 6 });
    let watches = asked.value("watch") == Some("true");
    let what = parts.last().copied().unwrap_or_default();
    // They are another collection than those below `/v3`.
    let what = if parts.first() == Some(&"apis") && what == "nodes" { "nodes.management" } else { what };
    // Not a listing: it asks for the resource version.
    let asks_for_one = asked.value("limit") == Some("1");
    let what = match (watches, asks_for_one) {
        (true, _) => format!("watch {what}"),
        (false, true) => format!("one of {what}"),
        (false, false) => what.to_owned(),
    };
    let number = server.calls.entry(what).or_default();
    *number += 1;
    let number = *number;
    if let Some((_, _, id)) = server.leaves.take_if(|(path, at, _)| asked.path == *path && *at == number) {
        server.nodes.retain(|node| node["id"] != id);
        server.clusters.retain(|cluster| cluster["id"] != id);
    }
    if let Some((_, fault)) = server.fault.as_ref().filter(|(begin, _)| asked.path.starts_with(begin)) {
        return Err(fault.clone());
    }
    match request.token.as_deref() {
        Some(token) if server.expired.contains(token) => Err(Fault::unauthorized()),
        Some(TOKEN | NEXT_TOKEN) => Ok(Rights::All),
        Some(token) if server.promoted.contains(token) => Ok(Rights::All),
        Some(VIEWER | NEXT_VIEWER) => Ok(Rights::View),
        Some(POWERLESS) => Ok(Rights::Nothing),
        _ => Err(Fault::unauthorized()),
    }
}

/// The answer to a request that was admitted.
pub(super) fn answer(server: &Server, request: &Request, rights: Rights) -> Result<Value, Fault> {
    let parts = request.asked.parts();
    let objects = match parts.get(1) {
        Some(&"clusters") => &server.clusters,
        Some(&"nodes") => &server.nodes,
        _ => return Err(Fault::error(404, "NotFound")),
    };
    // Without rights the lists are empty, and there is no error.
    let seen = if rights == Rights::Nothing { &[] } else { objects.as_slice() };
    match parts.get(2) {
        None => list(server, &request.asked, seen),
        Some(id) => {
            let found = seen.iter().find(|object| object["id"] == **id);
            found.cloned().ok_or_else(|| Fault::error(404, "NotFound"))
        }
    }
}

/// A page of a collection. The marker is the ID of its first object.
fn list(server: &Server, request: &Asked, seen: &[Value]) -> Result<Value, Fault> {
    let value = |name| request.value(name);
    let fits = |object: &&Value| {
        // A filter that is not known is ignored.
        let known = request.query.iter().filter(|(name, _)| FILTERS.contains(&name.as_str()));
        known.into_iter().all(|(name, value)| object[name] == *value)
    };
    let mut all: Vec<_> = seen.iter().filter(fits).collect();
    if request.query.iter().any(|(name, _)| name.ends_with("_in")) {
        all.clear();
    }
    let limit =
        value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    // With a marker that is gone meanwhile the listing begins anew, without a word.
    let at = |marker| all.iter().position(|object| object["id"] == marker);
    let first = value("marker").and_then(at).unwrap_or_default();
    if let Some((page, fault)) = &server.bad_page
        && *page == first / limit + 1
        && request.path.ends_with("/nodes")
    {
        return Err(fault.clone());
    }
    let end = all.len().min(first + limit);
    let page_url = |at: usize| {
        let marker = all.get(at).and_then(|object| object["id"].as_str()).unwrap_or_default();
        json!(request.page_url(marker))
    };
    let mut pagination = json!({"limit": limit, "total": all.len()});
    if all.len() > limit {
        pagination["partial"] = json!(true);
        pagination["first"] = page_url(0);
        if first > 0 {
            pagination["previous"] = page_url(first.saturating_sub(limit));
        }
        if end < all.len() {
            pagination["next"] = page_url(end);
            pagination["last"] = page_url(all.len() - 1);
        }
    }
    let resource_type = request.path.rsplit('/').next().and_then(|plural| plural.strip_suffix('s'));
    Ok(json!({
        "type": "collection", "resourceType": resource_type, "links": {"self": format!("{}{}", request.origin, request.path)},
        "createTypes": {}, "actions": {}, "pagination": pagination, "filters": {}, "data": all[first..end],
    }))
}

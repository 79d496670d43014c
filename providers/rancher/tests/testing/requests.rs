//! One request, and its answer.

use http::Method;
use serde_json::{Value, json};

use super::{Cloud, Fault, objects::type_of};
use crate::fake_server::Asked;

/// A request as far as it matters.
pub(super) struct Request {
    pub(super) asked: Asked,
    /// User and password.
    pub(super) key: Option<(String, String)>,
    pub(super) body: Value,
}

/// The most objects of a page.
const MAX_LIMIT: usize = 10_000;

/// The part of the path behind `/v2-beta`, without a project.
pub(super) fn parts(asked: &Asked) -> Option<Vec<&str>> {
    let mut parts = asked.parts();
    if parts.first() != Some(&"v2-beta") {
        return None;
    }
    parts.remove(0);
    if parts.first() == Some(&"projects") && parts.len() > 2 {
        parts.drain(..2);
    }
    Some(parts)
}

/// Checks what every request needs.
pub(super) fn admit(cloud: &mut Cloud, request: &Request) -> Result<(), Fault> {
    let collection = parts(&request.asked).and_then(|parts| parts.first().map(|part| part.to_lowercase()));
    *cloud.calls.entry(collection.unwrap_or_default()).or_default() += 1;
    if let Some(fault) = &cloud.fault {
        return Err(fault.clone());
    }
    if let Some((method, of)) = cloud.crash_point {
        let path = parts(&request.asked).unwrap_or_default();
        if request.asked.method == method && path.first().is_some_and(|part| part.eq_ignore_ascii_case(of)) {
            return Err(Fault::error(500, "ServerError"));
        }
    }
    if request.key.as_ref() != Some(&cloud.key) {
        return Err(Fault::unauthorized());
    }
    Ok(())
}

/// The answer to a request that was admitted: its status and its body.
pub(super) fn answer(cloud: &mut Cloud, request: &Request) -> Result<(u16, Value), Fault> {
    let not_found = || Fault::error(404, "NotFound");
    let parts = parts(&request.asked).ok_or_else(not_found)?;
    let kind = parts.first().and_then(|part| type_of(part)).ok_or_else(not_found)?;
    match (&request.asked.method, &parts[1..], request.asked.value("action")) {
        (&Method::GET, [], _) => list(cloud, request, kind).map(|page| (200, page)),
        (&Method::POST, [], _) => cloud.post(kind, request.body.clone()).map(|object| (201, object)),
        (&Method::GET, [id, "ipaddresses"], _) => {
            let ips = &cloud.objects.get(&(kind, (*id).to_owned())).ok_or_else(not_found)?["ips_of_test"];
            let all = ips.as_array().into_iter().flatten();
            let all = all.map(|ip| json!({"address": ip, "state": "active"})).collect();
            Ok((200, page(request, "ipAddress", all)))
        }
        (&Method::GET, [id], _) => {
            let key = (kind, (*id).to_owned());
            if cloud.objects.contains_key(&key) { Ok((200, cloud.shown(&key))) } else { Err(not_found()) }
        }
        (&Method::PUT, [id], _) => cloud.put(kind, id, request.body.clone()).map(|object| (200, object)),
        (&Method::DELETE, [id], _) => cloud.delete(kind, id).map(|object| (200, object)),
        (&Method::POST, [id], Some(action)) => {
            cloud.act(kind, id, action, &request.body).map(|object| (202, object))
        }
        (&Method::POST, [_], None) => Err(Fault::error(405, "MethodNotAllow")),
        _ => Err(not_found()),
    }
}

/// A page of a collection.
fn list(cloud: &mut Cloud, request: &Request, kind: &'static str) -> Result<Value, Fault> {
    let (first, limit) = place(request);
    let number = first / limit.max(1) + 1;
    if let Some((_, fault)) = cloud.bad_page.as_ref().filter(|(bad, _)| kind == "host" && *bad == number) {
        return Err(fault.clone());
    }
    Ok(page(request, kind, cloud.listed(kind, &request.asked.query)))
}

/// The place of the first object of the page, which the marker names, and the number of objects.
fn place(request: &Request) -> (usize, usize) {
    let value = |name| request.asked.value(name);
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(1000).min(MAX_LIMIT);
    let first = value("marker").and_then(|marker| marker.strip_prefix('m')?.parse().ok()).unwrap_or(0);
    (first, limit)
}

/// The page of these objects that is asked for.
fn page(request: &Request, kind: &str, all: Vec<Value>) -> Value {
    let ((first, limit), total) = (place(request), all.len());
    let data: Vec<_> = all.into_iter().skip(first).take(limit).collect();
    let end = first + data.len();
    let mut pagination = json!({"limit": limit, "total": null, "partial": end < total || first > 0});
    if end < total {
        pagination["next"] = json!(request.asked.page_url(&format!("m{end}")));
    }
    json!({"type": "collection", "resourceType": kind, "data": data, "pagination": pagination})
}

//! Tables for `kubectl get`, with the columns that the API server prints for each kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::ResourceKind;

/// Name, type, priority (0 is always shown, 1 only with `-o wide`).
type Heading = (&'static str, &'static str, i32);

/// Shown in a column without a value.
const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";

/// `meta.k8s.io/v1` Table of these objects.
pub(crate) fn table(kind: &ResourceKind, objects: &[Value], metadata: &Value, include: &str) -> Value {
    let now = Timestamp::now();
    let headings: Vec<Value> = headings(kind)
        .into_iter()
        .map(|(name, column_type, priority)| {
            let format = if name == "Name" && priority == 0 { "name" } else { "" };
            json!({
                "name": name, "type": column_type, "format": format, "description": "", "priority": priority,
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let shown = match include {
                "None" => Value::Null,
                "Object" => object.clone(),
                _ => json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                }),
            };
            json!({"cells": cells(kind, object, now), "object": shown})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": headings,
        "rows": rows,
    })
}

fn headings(kind: &ResourceKind) -> Vec<(String, String, i32)> {
    const S: &str = "string";
    let fixed: &[Heading] = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "nodes") => &[
            ("Name", S, 0),
            ("Status", S, 0),
            ("Roles", S, 0),
            ("Age", S, 0),
            ("Version", S, 0),
            ("Internal-IP", S, 1),
            ("External-IP", S, 1),
            ("OS-Image", S, 1),
            ("Kernel-Version", S, 1),
            ("Container-Runtime", S, 1),
        ],
        ("", "namespaces") => &[("Name", S, 0), ("Status", S, 0), ("Age", S, 0)],
        (_, "events") => &[
            ("Last Seen", S, 0),
            ("Type", S, 0),
            ("Reason", S, 0),
            ("Object", S, 0),
            ("Subobject", S, 1),
            ("Source", S, 1),
            ("Message", S, 0),
            ("First Seen", S, 1),
            ("Count", S, 1),
            ("Name", S, 1),
        ],
        ("coordination.k8s.io", "leases") => &[("Name", S, 0), ("Holder", S, 0), ("Age", S, 0)],
        ("", "configmaps") => &[("Name", S, 0), ("Data", S, 0), ("Age", S, 0)],
        ("", "secrets") => &[("Name", S, 0), ("Type", S, 0), ("Data", "integer", 0), ("Age", S, 0)],
        ("", "services") => &[
            ("Name", S, 0),
            ("Type", S, 0),
            ("Cluster-IP", S, 0),
            ("External-IP", S, 0),
            ("Port(s)", S, 0),
            ("Age", S, 0),
            ("Selector", S, 1),
        ],
        ("", "pods") => &[("Name", S, 0), ("Status", S, 0), ("Age", S, 0), ("Node", S, 1)],
        _ => {
            let mut headings = vec![("Name".to_owned(), S.to_owned(), 0)];
            headings.extend(kind.columns.iter().map(|c| (c.name.clone(), c.kind.clone(), c.priority)));
            if kind.columns.is_empty() {
                headings.push(("Age".to_owned(), "date".to_owned(), 0));
            }
            return headings;
        }
    };
    fixed
        .iter()
        .map(|(name, column_type, priority)| ((*name).to_owned(), (*column_type).to_owned(), *priority))
        .collect()
}

/// The string at a pointer; empty if there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn or<'a>(value: &'a str, fallback: &'a str) -> &'a str {
    if value.is_empty() { fallback } else { value }
}

fn cells(kind: &ResourceKind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name: Value = text(object, "/metadata/name").into();
    let age: Value = age(text(object, "/metadata/creationTimestamp"), now).into();
    let size = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "nodes") => {
            let info = |field: &str| or(text(object, &format!("/status/nodeInfo/{field}")), UNKNOWN).into();
            let version = text(object, "/status/nodeInfo/kubeletVersion").into();
            vec![
                name,
                node_status(object).into(),
                node_roles(object).into(),
                age,
                version,
                node_address(object, "InternalIP").into(),
                node_address(object, "ExternalIP").into(),
                info("osImage"),
                info("kernelVersion"),
                info("containerRuntimeVersion"),
            ]
        }
        ("", "namespaces") => vec![name, text(object, "/status/phase").into(), age],
        (_, "events") => event_cells(object, now),
        ("coordination.k8s.io", "leases") => vec![name, text(object, "/spec/holderIdentity").into(), age],
        ("", "configmaps") => vec![name, (size("data") + size("binaryData")).to_string().into(), age],
        ("", "secrets") => vec![name, text(object, "/type").into(), size("data").into(), age],
        ("", "services") => vec![
            name,
            text(object, "/spec/type").into(),
            or(text(object, "/spec/clusterIP"), NONE).into(),
            service_external(object).into(),
            service_ports(object).into(),
            age,
            join_map(object.pointer("/spec/selector")).into(),
        ],
        ("", "pods") => vec![
            name,
            or(text(object, "/status/phase"), "Pending").into(),
            age,
            or(text(object, "/spec/nodeName"), NONE).into(),
        ],
        _ => {
            let mut cells = vec![name];
            for column in &kind.columns {
                let value = select(object, &column.path).cloned().unwrap_or(Value::Null);
                cells.push(match (&value, column.kind.as_str()) {
                    (Value::String(time), "date") => self::age(time, now).into(),
                    (Value::Object(_) | Value::Array(_), _) => value.to_string().into(),
                    _ => value,
                });
            }
            if kind.columns.is_empty() {
                cells.push(age);
            }
            cells
        }
    }
}

fn node_status(node: &Value) -> String {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| &c["status"]) {
        None => "Unknown",
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { NONE.to_owned() } else { roles.join(",") }
}

fn node_address<'a>(node: &'a Value, address_type: &str) -> &'a str {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let first = addresses.into_iter().flatten().find(|a| a["type"] == address_type);
    first.and_then(|a| a["address"].as_str()).unwrap_or(NONE)
}

fn event_cells(event: &Value, now: Timestamp) -> Vec<Value> {
    // Core and events.k8s.io/v1 have different names for the same fields
    let either = |core: &str, new: &str| or(text(event, core), text(event, new)).to_owned();
    let first_seen = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let last_seen = either("/lastTimestamp", "/deprecatedLastTimestamp");
    let time = text(event, "/eventTime");
    let series = text(event, "/series/lastObservedTime");
    let last_seen = or(series, or(&last_seen, or(time, &first_seen)));
    let involved =
        if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
    let target = format!("{}/{}", text(involved, "/kind").to_lowercase(), text(involved, "/name"));
    let component = either("/source/component", "/deprecatedSource/component");
    let component = or(&component, text(event, "/reportingComponent")).to_owned();
    let source = or(&component, text(event, "/reportingController")).to_owned();
    let host = either("/source/host", "/deprecatedSource/host");
    let source = if host.is_empty() { source } else { format!("{source}, {host}") };
    let count = ["/series/count", "/count", "/deprecatedCount"].iter().find_map(|p| event.pointer(p));
    vec![
        age(last_seen, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target.into(),
        text(involved, "/fieldPath").into(),
        source.into(),
        either("/message", "/note").trim().into(),
        age(or(&first_seen, time), now).into(),
        count.and_then(Value::as_i64).unwrap_or(1).to_string().into(),
        text(event, "/metadata/name").into(),
    ]
}

fn service_external(service: &Value) -> String {
    let listed = |pointer: &str| -> Vec<&str> {
        let items = service.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items
            .filter_map(|item| {
                item.as_str().or_else(|| item["ip"].as_str()).or_else(|| item["hostname"].as_str())
            })
            .collect()
    };
    let mut shown = Vec::new();
    match text(service, "/spec/type") {
        "ExternalName" => return text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            shown = listed("/status/loadBalancer/ingress");
            shown.extend(listed("/spec/externalIPs"));
            if shown.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => shown.extend(listed("/spec/externalIPs")),
    }
    if shown.is_empty() { NONE.to_owned() } else { shown.join(",") }
}

fn service_ports(service: &Value) -> String {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let shown: Vec<String> = ports
        .into_iter()
        .flatten()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().unwrap_or(0) {
                0 => format!("{}/{protocol}", port["port"]),
                node_port => format!("{}:{node_port}/{protocol}", port["port"]),
            }
        })
        .collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(",") }
}

fn join_map(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// Follows the `JSONPath` of a printer column: fields, `[n]` and `[?(@.field=="value")]`.
fn select<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (condition, after) = filter.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            at = at.as_array()?.iter().find(|item| item[field.trim()] == wanted)?;
            rest = after;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']')?;
            at = match index.parse::<usize>() {
                Ok(index) => at.get(index)?,
                Err(_) => at.get(index.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            let fields = rest.strip_prefix('.').unwrap_or(rest);
            // A backslash escapes a dot in a name
            let end = fields
                .char_indices()
                .find(|(i, c)| matches!(c, '.' | '[') && !fields[..*i].ends_with('\\'))
                .map_or(fields.len(), |(i, _)| i);
            if end == 0 {
                return None;
            }
            at = at.get(fields[..end].replace('\\', ""))?;
            rest = &fields[end..];
        }
    }
    Some(at)
}

/// An age in the short form of `kubectl`: two units where the smaller one matters.
fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else { return UNKNOWN.to_owned() };
    let seconds = now.as_second() - since.as_second();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        for (since, shown) in [
            ("2026-01-09T23:58:01Z", "119s"),
            ("2026-01-09T23:58:00Z", "2m"),
            ("2026-01-09T23:52:59Z", "7m1s"),
            ("2026-01-09T22:59:00Z", "61m"),
            ("2026-01-09T19:50:00Z", "4h10m"),
            ("2026-01-08T01:00:00Z", "47h"),
            ("2026-01-06T22:00:00Z", "3d2h"),
            ("2025-01-09T00:00:00Z", "366d"),
            ("2026-01-10T00:01:00Z", "<invalid>"),
            ("", "<unknown>"),
        ] {
            assert_eq!(age(since, now), shown, "{since}");
        }
    }

    #[test]
    fn printer_column_paths() {
        let object = json!({"spec": {"a.b": 1, "list": [{"x": 2}]}, "status": {"conditions": [
            {"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(select(&object, r".spec.a\.b"), Some(&json!(1)));
        assert_eq!(select(&object, ".spec.list[0].x"), Some(&json!(2)));
        assert_eq!(select(&object, r#".status.conditions[?(@.type=="Ready")].status"#), Some(&json!("True")));
        assert_eq!(select(&object, ".spec.none.x"), None);
        assert_eq!(select(&object, "..x["), None);
    }
}

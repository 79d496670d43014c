//! Lines about what differs between two definitions.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The version that both have.
const VERSION: &str = "v1beta2";

/// Keywords that say something to people only, or are compared in their own way.
const OWN_WAY: [&str; 5] = ["description", "properties", "required", "items", "x-kubernetes-validations"];

pub(crate) fn definitions(ours: &Value, theirs: &Value) -> Vec<String> {
    let kind = theirs["spec"]["names"]["kind"].as_str().unwrap_or_default();
    let mut lines = Vec::new();
    for name in ["kind", "plural", "singular", "shortNames", "categories"] {
        same(
            &format!("{kind}: {name}"),
            &ours["spec"]["names"][name],
            &theirs["spec"]["names"][name],
            &mut lines,
        );
    }
    for name in ["group", "scope"] {
        same(&format!("{kind}: {name}"), &ours["spec"][name], &theirs["spec"][name], &mut lines);
    }
    labels(kind, &ours["metadata"]["labels"], &theirs["metadata"]["labels"], &mut lines);
    for version in versions(theirs).filter(|version| version["name"] != VERSION) {
        lines.push(format!("{kind}: no version {}", version["name"].as_str().unwrap_or_default()));
    }
    let version_of = |definition| versions(definition).find(|version| version["name"] == VERSION);
    let (Some(ours), Some(theirs)) = (version_of(ours), version_of(theirs)) else {
        lines.push(format!("{kind}: no version {VERSION}"));
        return lines;
    };
    for name in ["served", "storage", "deprecated"] {
        same(&format!("{kind}: {name}"), &ours[name], &theirs[name], &mut lines);
    }
    for name in ["status", "scale"] {
        same(
            &format!("{kind}: {name}"),
            &ours["subresources"][name],
            &theirs["subresources"][name],
            &mut lines,
        );
    }
    columns(kind, ours, theirs, &mut lines);
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    schemas(kind, &schema(ours), &schema(theirs), &mut lines);
    lines
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

fn same(what: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    // 1 and 1.0 are the same limit
    let are_equal = ours == theirs || (ours.is_number() && ours.as_f64() == theirs.as_f64());
    if !are_equal {
        lines.push(format!("{what} is {ours}, not {theirs}"));
    }
}

fn labels(kind: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    let all = |labels: &Value| -> BTreeSet<String> {
        let labels = labels.as_object().into_iter().flatten();
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect()
    };
    let (ours, theirs) = (all(ours), all(theirs));
    lines.extend(ours.difference(&theirs).map(|label| format!("{kind}: added label {label}")));
    lines.extend(theirs.difference(&ours).map(|label| format!("{kind}: no label {label}")));
}

fn columns(kind: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    let all = |version: &Value| -> Vec<Value> {
        let mut columns = version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default();
        for column in columns.iter_mut().filter_map(Value::as_object_mut) {
            column.remove("description");
        }
        columns
    };
    let (ours, theirs) = (all(ours), all(theirs));
    if ours != theirs {
        lines.push(format!("{kind}: columns are {ours:?}, not {theirs:?}"));
    }
}

fn schemas(path: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
        same(path, ours, theirs, lines);
        return;
    };
    let keywords: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for keyword in keywords {
        if OWN_WAY.contains(&keyword.as_str()) {
            continue;
        }
        match (ours.get(keyword), theirs.get(keyword)) {
            (Some(ours), Some(theirs)) if keyword == "additionalProperties" => {
                schemas(&format!("{path}{{}}"), ours, theirs, lines);
            }
            (Some(ours), Some(theirs)) => same(&format!("{path}: {keyword}"), ours, theirs, lines),
            (Some(ours), None) => lines.push(format!("{path}: added {keyword} {ours}")),
            (None, Some(theirs)) => lines.push(format!("{path}: no {keyword} {theirs}")),
            (None, None) => {}
        }
    }
    required(path, ours, theirs, lines);
    rules(path, ours, theirs, lines);
    fields(path, ours, theirs, lines);
    match (ours.get("items"), theirs.get("items")) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => schemas(&format!("{path}[]"), ours, theirs, lines),
        _ => lines.push(format!("{path}: one of both has items")),
    }
}

fn fields(path: &str, ours: &Map<String, Value>, theirs: &Map<String, Value>, lines: &mut Vec<String>) {
    let none = Map::new();
    let all = |schema: &Map<String, Value>| {
        schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_else(|| none.clone())
    };
    let (ours, theirs) = (all(ours), all(theirs));
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for name in names {
        match (ours.get(name), theirs.get(name)) {
            (Some(ours), Some(theirs)) => schemas(&format!("{path}.{name}"), ours, theirs, lines),
            (Some(_), None) => lines.push(format!("{path}: added field {name}")),
            (None, Some(_)) => lines.push(format!("{path}: no field {name}")),
            (None, None) => {}
        }
    }
}

fn required(path: &str, ours: &Map<String, Value>, theirs: &Map<String, Value>, lines: &mut Vec<String>) {
    let all = |schema: &Map<String, Value>| -> BTreeSet<String> {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        required.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let (ours, theirs) = (all(ours), all(theirs));
    lines.extend(ours.difference(&theirs).map(|name| format!("{path}: {name} is required")));
    lines.extend(theirs.difference(&ours).map(|name| format!("{path}: {name} is not required")));
}

/// Rules are compared by their expressions; ours are shown by their messages.
fn rules(path: &str, ours: &Map<String, Value>, theirs: &Map<String, Value>, lines: &mut Vec<String>) {
    let all = |schema: &Map<String, Value>| -> Vec<Value> {
        schema.get("x-kubernetes-validations").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let (ours, theirs) = (all(ours), all(theirs));
    let has = |rules: &[Value], one: &Value| rules.iter().any(|rule| rule["rule"] == one["rule"]);
    for rule in ours.iter().filter(|rule| !has(&theirs, rule)) {
        lines.push(format!("{path}: rule {}", rule["message"].as_str().unwrap_or_default()));
    }
    for rule in theirs.iter().filter(|rule| !has(&ours, rule)) {
        lines.push(format!("{path}: no rule {}", rule["rule"].as_str().unwrap_or_default()));
    }
}

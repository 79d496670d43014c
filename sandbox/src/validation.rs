//! The API server's validation rules that are relevant for Nodes, taints, labels, names, Services and IP addresses.

use serde_json::{Value, json};

use crate::{
    kinds::{ip_addresses, services},
    resources::ResourceKind,
    status::{ApiError, ApiResult, FieldError},
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
     an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used \
     for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn dns_subdomain(text: &str) -> bool {
    text.split('.').all(dns_label)
}

fn qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// What is wrong with a label, annotation or taint key.
fn key_faults(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut faults = Vec::new();
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            faults.push("prefix part must be non-empty".to_owned());
        } else if !dns_subdomain(prefix) {
            faults.push(format!("prefix part {SUBDOMAIN}"));
        }
    }
    if name.contains('/') {
        return vec![format!(
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', with an optional DNS \
             subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !qualified_part(name) {
        faults.push(KEY.to_owned());
    }
    faults
}

fn value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !qualified_part(value) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

fn validate_name(kind: &ResourceKind, name: &str, errors: &mut Vec<FieldError>) {
    let value = Value::from(name);
    let mut fail = |detail: &str| errors.push(FieldError::invalid("metadata.name", &value, detail));
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => {
            if name.len() > 63 {
                fail("must be no more than 63 bytes");
            }
            if name.contains('.') {
                fail("must not contain dots");
            } else if !dns_label(name) {
                fail(LABEL);
            }
        }
        ("", "services") => {
            if name.len() > 63 {
                fail("must be no more than 63 bytes");
            }
            if !dns_label(name) || name.as_bytes().first().is_some_and(u8::is_ascii_digit) {
                fail(SERVICE_LABEL);
            }
        }
        ("networking.k8s.io", "ipaddresses") => {
            if let Some(fault) = ip_addresses::name_fault(name) {
                fail(&fault);
            }
        }
        _ => {
            if name.len() > 253 {
                fail("must be no more than 253 bytes");
            }
            if !dns_subdomain(name) {
                fail(SUBDOMAIN);
            }
        }
    }
}

fn validate_metadata(kind: &ResourceKind, object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    validate_name(kind, metadata["name"].as_str().unwrap_or_default(), errors);
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for fault in key_faults(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.as_str().into(), fault));
        }
        for fault in value_faults(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, fault));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Upstream checks annotation keys in lower case: prefixes in upper case are old and allowed
        for fault in key_faults(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), fault));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::invalid(
            "metadata.annotations",
            &json!(""),
            format!("may not be more than {ANNOTATIONS_LIMIT} bytes"),
        ));
    }
    for (at, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        for fault in key_faults(text) {
            errors.push(FieldError::invalid(format!("metadata.finalizers[{at}]"), finalizer, fault));
        }
        if kind.rules.strategic
            && !text.contains('/')
            && !matches!(text, "kubernetes" | "foregroundDeletion" | "orphan")
        {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{at}]"),
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn validate_taints(node: &Value, errors: &mut Vec<FieldError>) {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let mut seen = Vec::new();
    for (at, taint) in taints.into_iter().flatten().enumerate() {
        let path = format!("metadata.taints[{at}]");
        let key = taint["key"].as_str().unwrap_or_default();
        let value = taint["value"].as_str().unwrap_or_default();
        let effect = taint["effect"].as_str().unwrap_or_default();
        for fault in key_faults(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), &key.into(), fault));
        }
        let faults = value_faults(value);
        if !faults.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.value"), &value.into(), faults.join(";")));
        }
        match effect {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
            other => errors.push(FieldError::not_supported(
                format!("{path}.effect"),
                &other.into(),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            )),
        }
        if seen.contains(&(key, effect)) {
            errors.push(FieldError::duplicate(path, taint, "taints must be unique by key and effect pair"));
        }
        seen.push((key, effect));
    }
}

/// Checks an object before it is stored; `before` is the stored version of an update.
///
/// Returns 422 Invalid with all faults.
pub(crate) fn validate(kind: &ResourceKind, object: &Value, before: Option<&Value>) -> ApiResult<()> {
    let mut errors = Vec::new();
    validate_metadata(kind, object, &mut errors);
    let finalizers = |v: &Value| v.pointer("/metadata/finalizers").and_then(Value::as_array).cloned();
    if let Some(before) = before {
        let deleting = before.pointer("/metadata/deletionTimestamp").is_some();
        let old = finalizers(before).unwrap_or_default();
        let new: Vec<_> =
            finalizers(object).unwrap_or_default().into_iter().filter(|f| !old.contains(f)).collect();
        if deleting && !new.is_empty() {
            let names = new.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{names}}}"
                ),
            ));
        }
    }
    if kind.group.is_empty() && kind.plural == "nodes" {
        validate_taints(object, &mut errors);
        if let Some(before) = before {
            let id =
                |v: &Value| v.pointer("/spec/providerID").and_then(Value::as_str).unwrap_or("").to_owned();
            if !id(before).is_empty() && id(before) != id(object) {
                let what = if id(object).is_empty() { "cleared" } else { "modified" };
                let fault = format!("field cannot be {what} once set");
                errors.push(FieldError::invalid("spec.providerID", &Value::Null, &fault));
            }
        }
    }
    if services::is_service(kind) {
        services::validate(object, before, &mut errors);
    }
    if (kind.group.as_str(), kind.plural.as_str()) == ("networking.k8s.io", "ipaddresses") {
        ip_addresses::validate(object, before, &mut errors);
    }
    if kind.kind == "Event" && before.is_none() {
        let involved = object.pointer("/involvedObject/namespace").unwrap_or(&Value::Null);
        let involved = involved.as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        // Events about cluster-scoped objects belong in these two namespaces
        let fits = if involved.is_empty() {
            matches!(namespace, "default" | "kube-system")
        } else {
            involved == namespace
        };
        if !fits {
            errors.push(FieldError::invalid(
                "involvedObject.namespace",
                &involved.into(),
                "does not match event.namespace",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Err(ApiError::invalid(kind, name, &errors))
}

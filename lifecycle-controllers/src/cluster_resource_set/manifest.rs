//! The objects in the values of a resource.

use std::{cell::Cell, rc::Rc};

use serde_json::Value;

use super::resources::Content;

/// The largest resource, in bytes of all its values, which the API server takes. JSON needs up to 90 times as much in memory.
const LARGEST: usize = 1024 * 1024;
/// So many objects a resource may have.
const MOST_OBJECTS: usize = 1_000;
/// So many scalars, lists and mappings the YAML of all values of a resource may have, with all that aliases stand for.
const MOST_NODES: usize = 250_000;
/// So many bytes all their scalars may have, with all that aliases stand for.
const MOST_SCALAR_BYTES: usize = 8 * LARGEST;
/// So many documents one value may have. Empty ones count.
const MOST_DOCUMENTS: usize = 2 * MOST_OBJECTS;

/// So many faults of a resource are named.
const MOST_FAULTS: usize = 10;

/// What the YAML of the values that are still to be read may have.
#[derive(Clone, Copy)]
struct Left {
    nodes: usize,
    scalar_bytes: usize,
}

/// An object that is to be in a workload cluster.
#[derive(Clone, PartialEq)]
pub(super) struct Manifest {
    /// Where it is in the resource, for people: nothing of its content.
    pub(super) place: String,
    /// `apiVersion`, kind and name, for people. It is content, so nobody sees that of a Secret.
    pub(super) title: String,
    /// `apiVersion`
    pub(super) api_version: String,
    /// The kind.
    pub(super) kind: String,
    /// `metadata.namespace`, not empty.
    pub(super) namespace: Option<String>,
    /// `metadata.name`. `None`: the API server makes one up from `metadata.generateName`.
    pub(super) name: Option<String>,
    /// All of it.
    pub(super) object: Value,
}

impl Manifest {
    pub(super) fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition"
    }
}

/// All objects, those of one value in the order of creation, values in the order of their keys.
///
/// # Errors
/// What is wrong, each fault with the key and the place, and nothing of the value. At most [`MOST_FAULTS`] are looked for.
pub(super) fn manifests(content: &Content) -> Result<Vec<Manifest>, Vec<String>> {
    let bytes: usize = content.values.values().map(Vec::len).sum();
    if bytes > LARGEST {
        return Err(vec![format!("it has more than {LARGEST} bytes")]);
    }
    let (mut all, mut faults, mut count) = (Vec::new(), Vec::new(), 0_usize);
    let mut left = Left { nodes: MOST_NODES, scalar_bytes: MOST_SCALAR_BYTES };
    for (key, value) in &content.values {
        let read = match std::str::from_utf8(value) {
            Ok(text) => documents(text, &mut left).map_err(|why| format!("data.{key} {why}")),
            Err(_) => Err(format!("data.{key} is not UTF-8")),
        };
        let documents = read.unwrap_or_else(|why| {
            faults.push(why);
            Vec::new()
        });
        let mut of_value = Vec::new();
        for (index, object) in documents.into_iter().flat_map(objects).enumerate() {
            count += 1;
            if count > MOST_OBJECTS {
                faults.push(format!("it has more than {MOST_OBJECTS} objects"));
                return Err(faults);
            }
            match manifest(format!("data.{key}, object {}", index + 1), object) {
                Ok(manifest) => of_value.push(manifest),
                Err(why) => faults.push(why),
            }
            if faults.len() >= MOST_FAULTS {
                return Err(faults);
            }
        }
        of_value.sort_by_key(|manifest| order(&manifest.kind));
        all.append(&mut of_value);
    }
    if faults.is_empty() { Ok(all) } else { Err(faults) }
}

/// The documents of a text, taken from what is left.
///
/// # Errors
/// What is wrong with the text, and where.
fn documents(text: &str, left: &mut Left) -> Result<Vec<Value>, String> {
    // Not every JSON is YAML.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(vec![value]);
    }
    // What Go's reader of YAML takes, which upstream has. The library's own words may quote the text.
    let options = serde_saphyr::options! {
        with_snippet: false,
        emit_comments: false,
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        budget: serde_saphyr::budget! {
            max_nodes: left.nodes,
            max_events: 4 * MOST_NODES,
            max_documents: MOST_DOCUMENTS,
            max_total_scalar_bytes: left.scalar_bytes,
            max_recorded_anchor_bytes: MOST_SCALAR_BYTES,
        },
    };
    let (after, is_over) = (Rc::new(Cell::new(*left)), Rc::new(Cell::new(false)));
    let options = {
        let (after, is_over) = (Rc::clone(&after), Rc::clone(&is_over));
        options.with_budget_report(move |report| {
            let before = after.get();
            after.set(Left {
                nodes: before.nodes.saturating_sub(report.nodes),
                scalar_bytes: before.scalar_bytes.saturating_sub(report.total_scalar_bytes),
            });
            is_over.set(report.breached.is_some());
        })
    };
    let read = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    *left = after.get();
    read.map_err(|error| {
        let what = if is_over.get() {
            "makes the YAML of the resource too large or too deep, with all that its aliases stand for"
        } else {
            "is neither YAML nor JSON"
        };
        let place =
            error.location().map(|place| format!(" (line {}, column {})", place.line(), place.column()));
        format!("{what}{}", place.unwrap_or_default())
    })
}

/// The objects of a document, which may be a list of them.
fn objects(document: Value) -> Vec<Value> {
    match document {
        Value::Null => Vec::new(),
        Value::Array(objects) => objects,
        Value::Object(mut list)
            if list.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
                && list.get("items").is_some_and(Value::is_array) =>
        {
            match list.remove("items") {
                Some(Value::Array(objects)) => objects,
                _ => Vec::new(),
            }
        }
        object => vec![object],
    }
}

fn manifest(place: String, mut object: Value) -> Result<Manifest, String> {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let missing = |field: &str| format!("{place} has no {field}");
    let Some(fields) = object.as_object_mut() else { return Err(format!("{place} is no mapping")) };
    let api_version = text(fields.get("apiVersion")).ok_or_else(|| missing("apiVersion"))?;
    let kind = text(fields.get("kind")).ok_or_else(|| missing("kind"))?;
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return Err(missing("metadata")) };
    // What the API server gives to objects. A file that came from `kubectl get` has it.
    for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "selfLink", "generation"] {
        metadata.remove(field);
    }
    let name = text(metadata.get("name"));
    if name.is_none() && text(metadata.get("generateName")).is_none() {
        return Err(missing("metadata.name"));
    }
    if name.as_deref().is_some_and(|name| !is_path_segment(name)) {
        return Err(format!("{place}: metadata.name cannot be a name"));
    }
    let namespace = text(metadata.get("namespace"));
    let shown = name.as_deref().unwrap_or("(generated name)");
    let title = match &namespace {
        Some(namespace) => format!("{api_version} {kind} {namespace}/{shown}"),
        None => format!("{api_version} {kind} {shown}"),
    };
    Ok(Manifest { place, title, api_version, kind, namespace, name, object })
}

/// Whether a name can stand in a path. Kinds such as those of RBAC have no stricter rule.
fn is_path_segment(name: &str) -> bool {
    name.len() <= 253 && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// The order of creation: what others need comes first.
fn order(kind: &str) -> usize {
    const FIRST: [&str; 12] = [
        "Namespace",
        "CustomResourceDefinition",
        "StorageClass",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Secret",
        "ConfigMap",
        "ServiceAccount",
        "LimitRange",
        "Pod",
        "ReplicaSet",
        "Endpoint",
    ];
    FIRST.iter().position(|first| *first == kind).unwrap_or(FIRST.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Vec<Manifest>, String> {
        let values = values.iter().map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec())).collect();
        manifests(&Content { values }).map_err(|faults| faults.join("; "))
    }

    fn titles(values: &[(&str, &str)]) -> Vec<String> {
        read(values).expect("objects").into_iter().map(|manifest| manifest.title).collect()
    }

    fn object(kind: &str, name: &str) -> String {
        format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n")
    }

    #[test]
    fn objects_come_in_the_order_of_creation_within_a_value() {
        let b = [object("Service", "s"), object("ConfigMap", "c"), object("Namespace", "ns")].join("---\n");
        let a = object("Deployment", "d");
        assert_eq!(
            titles(&[("b", &b), ("a", &a)]),
            ["v1 Deployment d", "v1 Namespace ns", "v1 ConfigMap c", "v1 Service s"]
        );
    }

    #[test]
    fn lists_and_json_and_empty_documents_are_read() {
        let one =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "b-"}});
        let both = ["v1 ConfigMap n/a", "v1 ConfigMap (generated name)"];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [one, other]});
        for text in [
            json!([one, other]).to_string(),
            list.to_string(),
            format!("\n---\n# none\n---\n{one}\n---\n{other}\n---\n"),
        ] {
            assert_eq!(titles(&[("x", &text)]), both, "{text}");
        }
        let text = format!("- {one}\n- {other}\n");
        assert_eq!(titles(&[("x", &text)]), both);
        assert_eq!(
            titles(&[("x", "\t{\"apiVersion\":\t\"v1\", \"kind\": \"A\", \"metadata\": {\"name\": \"a\"}}")]),
            ["v1 A a"]
        );
        for empty in ["", "---\n", "# nothing\n", "null", "[]"] {
            assert_eq!(titles(&[("x", empty)]), [""; 0], "{empty}");
        }
    }

    #[test]
    fn scalars_are_read_as_upstream_does() {
        let text = "apiVersion: v1\nkind: A\nmetadata: {name: a, uid: x, resourceVersion: '7'}\nspec:\n  mode: 0644\n  quoted: '0644'\n  flag: true\n  text: |\n    ---\n     a\n  same: &x {k: 1}\n  again: *x\n  twice: 1\n  twice: 2\n  on: yes\n  8080: port\n";
        let object = &read(&[("x", text)]).expect("objects")[0].object;
        assert_eq!(object["metadata"], json!({"name": "a"}));
        assert_eq!(
            object["spec"],
            json!({"mode": 420, "quoted": "0644", "flag": true, "text": "---\n a\n", "same": {"k": 1}, "again": {"k": 1}, "twice": 2, "on": true, "8080": "port"})
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_the_text() {
        let secret = "hunter2";
        for (text, expected) in [
            (format!("a: [{secret}"), "data.x is neither YAML nor JSON"),
            (format!("{secret}: {secret}: {secret}"), "data.x is neither YAML nor JSON"),
            (format!("- {secret}"), "data.x, object 1 is no mapping"),
            (secret.to_owned(), "data.x, object 1 is no mapping"),
            (format!("{}---\nkind: {secret}", object("A", "a")), "data.x, object 2 has no apiVersion"),
            (format!("apiVersion: v1\nx: {secret}"), "data.x, object 1 has no kind"),
            (format!("apiVersion: v1\nkind: {secret}"), "data.x, object 1 has no metadata"),
            (
                format!("apiVersion: v1\nkind: {secret}\nmetadata: {{}}"),
                "data.x, object 1 has no metadata.name",
            ),
            (object("A", &format!("../{secret}")), "data.x, object 1: metadata.name cannot be a name"),
            (object("A", ".."), "data.x, object 1: metadata.name cannot be a name"),
        ] {
            let why = read(&[("x", &text)]).err().unwrap_or_default();
            assert!(why.starts_with(expected) && !why.contains(secret), "{text}: {why}");
        }
        let content = Content { values: [("x".to_owned(), vec![0xff, 0xfe])].into() };
        assert_eq!(manifests(&content).err(), Some(vec!["data.x is not UTF-8".to_owned()]));
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let two =
            format!("- 1\n- {{kind: A}}\n- {}", json!({"apiVersion": "v1", "kind": "A", "metadata": {}}));
        let faults = read(&[("x", &two), ("y", "a: ["), ("z", &object("A", "a"))]).err().unwrap_or_default();
        let faults: Vec<_> =
            faults.split("; ").map(|one| one.split(" (").next().unwrap_or_default()).collect();
        assert_eq!(
            faults,
            [
                "data.x, object 1 is no mapping",
                "data.x, object 2 has no apiVersion",
                "data.x, object 3 has no metadata.name",
                "data.y is neither YAML nor JSON",
            ]
        );
        let many = read(&[("x", &"- 1\n".repeat(20))]).err().unwrap_or_default();
        assert_eq!(many.split("; ").count(), MOST_FAULTS);
    }

    #[test]
    fn hostile_values_cost_a_bounded_amount() {
        let many = vec![object("A", "a"); MOST_OBJECTS + 1].join("---\n");
        assert!(read(&[("x", &many)]).is_err_and(|why| why.contains("more than 1000 objects")));
        let large = "#".repeat(LARGEST + 1);
        assert!(read(&[("x", &large)]).is_err_and(|why| why.contains("bytes")));
        let deep = "[".repeat(100_000);
        assert!(read(&[("x", &deep)]).is_err());
        let deep = format!("a: {}1{}", "{a: ".repeat(10_000), "}".repeat(10_000));
        assert!(read(&[("x", &deep)]).is_err());
        let is_over = |why: &str, key: &str| why.starts_with(&format!("data.{key} makes the YAML"));
        // Ten times ten times ten...
        let laughs = laughs(9);
        assert!(read(&[("x", &laughs)]).is_err_and(|why| is_over(&why, "x")));
        // One large text many times.
        let copies = format!("a: &a {}\nb: [{}]\n", "x".repeat(900_000), vec!["*a"; 100].join(", "));
        assert!(read(&[("x", &copies)]).is_err_and(|why| is_over(&why, "x")));
    }

    /// YAML of some 500 bytes with 10 to the power of `levels` scalars.
    fn laughs(levels: usize) -> String {
        let level = |level: usize| match level {
            0 => "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
            _ => format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")),
        };
        (0..levels).map(level).collect()
    }

    #[test]
    fn all_values_together_cost_a_bounded_amount() {
        // Some 125,000 nodes in each.
        let one = format!("{}{}", object("A", "a"), laughs(5));
        assert_eq!(read(&[("a", &one)]).expect("an object").len(), 1);
        assert_eq!(
            read(&[("a", &one), ("b", &one), ("c", &one), ("d", &one)])
                .err()
                .as_deref()
                .map(|why| &why[..22]),
            Some("data.c makes the YAML ")
        );
        // 6 MB in each.
        let copies =
            format!("{}t: &t {}\nu: [{}]\n", object("A", "a"), "x".repeat(60_000), vec!["*t"; 99].join(", "));
        assert!(read(&[("a", &copies)]).is_ok());
        assert!(
            read(&[("a", &copies), ("b", &copies)])
                .is_err_and(|why| why.starts_with("data.b makes the YAML"))
        );
    }
}

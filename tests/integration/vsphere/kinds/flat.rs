//! A definition as a list of facts, which can be compared one by one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Keywords that are for people, or that are facts of their own.
const NO_FACTS: [&str; 5] = ["description", "properties", "items", "additionalProperties", "required"];

/// What a definition says about itself and about each field in `version`, without the words for people.
pub(super) fn facts(crd: &Value, version: &str) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: &Value| facts.insert(name.to_owned(), value.to_string());
    add("name", &crd["metadata"]["name"]);
    add("scope", &crd["spec"]["scope"]);
    for name in ["kind", "listKind", "plural", "singular", "shortNames", "categories"] {
        add(name, &crd["spec"]["names"][name]);
    }
    let versions = crd["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(found) = versions.iter().find(|one| one["name"] == version) {
        add("served and stored", &json!([found["served"], found["storage"]]));
        add("subresources", &found["subresources"]);
        let columns = found["additionalPrinterColumns"].as_array().into_iter().flatten();
        let columns = columns
            .map(|column| json!([column["name"], column["type"], column["jsonPath"], column["priority"]]));
        add("columns", &columns.collect());
        fields(&found["schema"]["openAPIV3Schema"], "", false, &mut facts);
    }
    facts
}

fn fields(schema: &Value, path: &str, is_required: bool, facts: &mut BTreeMap<String, String>) {
    let keywords = schema.as_object().into_iter().flatten();
    let mut said: Vec<String> = keywords
        .filter(|(keyword, _)| !NO_FACTS.contains(&keyword.as_str()))
        .map(|(keyword, value)| match value.as_f64() {
            // 0 and 0.0 are the same limit.
            Some(number) => format!("{keyword}={number}"),
            None => format!("{keyword}={value}"),
        })
        .collect();
    if is_required {
        said.push("required".to_owned());
    }
    said.sort_unstable();
    facts.insert(path.to_owned(), said.join(" "));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().into_iter().flatten();
        let is_required = required.into_iter().any(|one| one == name);
        fields(field, &format!("{path}.{name}"), is_required, facts);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), false, facts);
    }
    if schema["additionalProperties"].is_object() {
        fields(&schema["additionalProperties"], &format!("{path}{{}}"), false, facts);
    }
}

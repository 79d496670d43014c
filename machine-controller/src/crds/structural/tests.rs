use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

use super::*;

/// The schema of a type, as a provider's types come here.
fn given<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn made<T: JsonSchema>() -> Value {
    let mut problems = Vec::new();
    let made = structural("X spec", &given::<T>(), &mut problems);
    assert_eq!(problems, <[String; 0]>::default());
    made.into()
}

/// A field of a type: its schema.
fn field<T: JsonSchema>(name: &str) -> Value {
    made::<T>()["properties"][name].clone()
}

fn problems(schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    structural("X spec", schema, &mut problems);
    problems
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is used")]
struct Plain {
    name: String,
    nickname: Option<String>,
    cpus: u32,
    port: u16,
    memory: u64,
    offset: i32,
    #[schemars(range(min = 1, max = 9))]
    level: Option<u8>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    share: f64,
    #[serde(default)]
    list: Vec<String>,
    #[serde(default = "yes")]
    is_on: bool,
    set: BTreeSet<String>,
    map: BTreeMap<String, u16>,
    anything: Value,
    any_map: BTreeMap<String, Value>,
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self != ''"}]))]
    checked: String,
    nothing: (),
}

fn yes() -> bool {
    true
}

#[test]
fn fields_have_one_type_and_known_formats() {
    let schema = made::<Plain>();
    assert_eq!(schema["type"], "object");
    assert!(schema.get("additionalProperties").is_none() && schema.get("title").is_none());
    for (name, expected) in [
        ("name", json!({"type": "string"})),
        ("nickname", json!({"type": "string"})),
        ("cpus", json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": 4_294_967_295_u32})),
        ("port", json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535})),
        ("memory", json!({"type": "integer", "format": "int64", "minimum": 0})),
        ("offset", json!({"type": "integer", "format": "int32"})),
        ("level", json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 9})),
        ("share", json!({"type": "number", "format": "double", "minimum": 0, "exclusiveMinimum": true})),
        ("list", json!({"type": "array", "items": {"type": "string"}})),
        ("isOn", json!({"type": "boolean", "default": true})),
        ("set", json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"})),
        (
            "map",
            json!({"type": "object", "additionalProperties":
                {"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535}}),
        ),
        ("anything", json!({"x-kubernetes-preserve-unknown-fields": true})),
        ("anyMap", json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        ("checked", json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]})),
        ("nothing", json!({"type": "object"})),
    ] {
        assert_eq!(schema["properties"][name], expected, "{name}");
    }
    let required = schema["required"].as_array().expect("required");
    assert!(required.contains(&json!("name")));
    assert!(!["nickname", "level", "list", "isOn"].iter().any(|name| required.contains(&json!(name))));
}

/// How a machine is switched off.
#[derive(Deserialize, Serialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
enum PowerOff {
    /// At once.
    #[default]
    Hard,
    /// By the guest.
    TrySoft,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
enum Source {
    /// From an address.
    Url { address: String },
    /// From a volume.
    Volume(String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "type")]
#[expect(dead_code, reason = "only the schema is used")]
enum Interface {
    Network { network: String },
    Bridge { bridge: String, vlan: Option<u16> },
    None,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is used")]
enum Much {
    Number(i64),
    Text(String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
struct Choices {
    #[serde(default)]
    power_off: PowerOff,
    maybe_power_off: Option<PowerOff>,
    source: Source,
    maybe_source: Option<Source>,
    interface: Interface,
    much: Much,
}

#[test]
fn words_become_one_enum_that_says_what_each_means() {
    let about = "How a machine is switched off.\n- hard: At once.\n- trySoft: By the guest.";
    let words = json!({"type": "string", "enum": ["hard", "trySoft"], "description": about});
    assert_eq!(field::<Choices>("maybePowerOff"), words);
    let mut with_default = words;
    with_default["default"] = json!("hard");
    assert_eq!(field::<Choices>("powerOff"), with_default);
}

#[test]
fn variants_with_fields_have_them_side_by_side() {
    let url = json!({
        "type": "object", "description": "From an address.", "required": ["address"],
        "properties": {"address": {"type": "string"}},
    });
    let source = json!({
        "type": "object",
        "properties": {"url": url, "volume": {"type": "string", "description": "From a volume."}},
        "oneOf": [{"required": ["url"]}, {"required": ["volume"]}],
    });
    assert_eq!(field::<Choices>("source"), source);
    assert_eq!(field::<Choices>("maybeSource"), source);
}

#[test]
fn a_tag_says_which_fields_must_be_there() {
    let is = |word: &str| json!({"type": {"enum": [word]}});
    let interface = json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["network", "bridge", "none"]},
            "network": {"type": "string"},
            "bridge": {"type": "string"},
            "vlan": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535},
        },
        "oneOf": [
            {"properties": is("network"), "required": ["network"]},
            {"properties": is("bridge"), "required": ["bridge"]},
            {"properties": is("none")},
        ],
    });
    assert_eq!(field::<Choices>("interface"), interface);
}

#[test]
fn a_number_or_a_text() {
    assert_eq!(field::<Choices>("much"), json!({"x-kubernetes-int-or-string": true}));
    let quantity = json!({
        "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+$",
    });
    let mut none = Vec::new();
    assert_eq!(Value::from(structural("X spec", &quantity, &mut none)), quantity);
    let nothing = json!({"anyOf": [{"enum": [null]}]});
    let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(Value::from(structural("X spec", &nothing, &mut none)), anything);
    assert_eq!(none, <[String; 0]>::default());
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Tree {
    children: Vec<Self>,
}

#[test]
fn what_a_crd_cannot_say_is_named_with_its_path() {
    let in_field =
        |schema: Value| json!({"type": "object", "properties": {"a": {"type": "array", "items": schema}}});
    for (schema, words) in [
        (given::<Tree>(), "X spec.children[]: a type that contains itself cannot be in a CRD"),
        (in_field(json!({"patternProperties": {}})), "X spec.a[]: \"patternProperties\" cannot be in a CRD"),
        (
            in_field(json!({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]})),
            "X spec.a[]: a tuple cannot be in a CRD, whose lists have items of one type",
        ),
        (
            in_field(json!({"oneOf": [{"type": "string", "enum": ["a"]}, {"type": "object"}]})),
            "X spec.a[]: a choice between different types cannot be in a CRD",
        ),
        (
            in_field(json!({"type": ["string", "integer"]})),
            "X spec.a[]: more than one type cannot be in a CRD",
        ),
        (
            in_field(json!({"type": "object", "properties": {"b": {"type": "string"}},
                "additionalProperties": {"type": "string"}})),
            "X spec.a[]: a map beside named fields cannot be in a CRD",
        ),
        (
            in_field(json!({"type": "array", "uniqueItems": true, "items": {"type": "object"}})),
            "X spec.a[]: a set in a CRD has texts, numbers or booleans only",
        ),
        (
            in_field(json!({"oneOf": [
                {"type": "object", "properties": {"b": {"type": "string"}}},
                {"type": "object", "properties": {"b": {"type": "integer"}}},
            ]})),
            "X spec.a[].b: a field of two variants with different types cannot be in a CRD",
        ),
        (json!("text"), "X spec: \"text\" is not the schema of anything"),
    ] {
        assert_eq!(problems(&schema), [words]);
    }
}

use cloudprovider::{DynMachines, testing::FakeCloud};
use serde_json::json;

use super::*;

fn only(schema: &Value) -> Field {
    let [field] = &fields("spec.a", schema)[..] else { panic!("one field") };
    field.clone()
}

#[test]
fn a_field_says_what_its_schema_says() {
    let field = only(&json!({
        "type": "string", "enum": ["qcow2", "raw"], "default": "qcow2",
        "description": "The disk's\nformat. Default: `qcow2`. It stays.\n- qcow2: Grows.\n- raw: The bytes.",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot change"}],
    }));
    let expected = Field {
        path: "spec.a".to_owned(),
        kind: "string".to_owned(),
        is_required: false,
        default: "`qcow2`".to_owned(),
        limits: vec!["`qcow2`, `raw`".to_owned()],
        rules: vec!["cannot change".to_owned()],
        meaning: "The disk's format. It stays.\n`qcow2`: Grows.\n`raw`: The bytes.".to_owned(),
    };
    assert_eq!(field, expected);
}

#[test]
fn a_default_may_be_words() {
    for (about, meaning, default) in [
        ("The pool. Default: that of the\nroot disk.", "The pool.", "that of the root disk"),
        ("Default: all. Names.", "Names.", "all"),
        ("The pool.", "The pool.", ""),
    ] {
        let field = only(&json!({"type": "string", "description": about}));
        assert_eq!((&*field.meaning, &*field.default), (meaning, default));
    }
}

#[test]
fn limits_are_in_words() {
    for (schema, limits) in [
        (json!({"type": "integer", "minimum": 1.0, "maximum": 1024.0}), "1 to 1024"),
        (json!({"type": "string", "minLength": 17, "maxLength": 17}), "17 characters"),
        (json!({"type": "string", "maxLength": 9, "pattern": "^/"}), "at most 9 characters; `^/`"),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 2}}),
            "at least 1 items; each at least 2 characters",
        ),
    ] {
        assert_eq!(only(&schema).limits.join("; "), limits);
    }
}

#[test]
fn paths_go_through_lists_and_maps() {
    let schema = json!({"type": "object", "required": ["disks"], "properties": {
        "disks": {"type": "array", "items": {
            "type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}, "pool": {"type": "string"}},
        }},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }});
    let all: Vec<_> = fields("spec", &schema)
        .into_iter()
        .map(|field| format!("{} {} {}", field.path, field.kind, field.is_required))
        .collect();
    let expected = [
        "spec object false",
        "spec.disks list of objects true",
        "spec.disks[].pool string false",
        "spec.disks[].size integer true",
        "spec.labels map of strings false",
    ];
    assert_eq!(all, expected);
}

#[test]
fn every_field_of_the_definitions_is_on_the_page() {
    let provider = FakeCloud::new().with_machines().provider();
    let machines = provider.machines().expect("machines");
    let (kinds, schemas) = (DynMachines::kinds(machines), DynMachines::schemas(machines));
    let definitions = Definitions::new("fake", &kinds, &schemas).expect("definitions");
    let page = reference("fake", &definitions);
    for crd in definitions.crds() {
        let schema = schema(crd);
        assert!(page.contains(&format!("\n## {}\n", crd.spec.names.kind)), "{page}");
        for part in ["spec", "status"] {
            for field in fields(part, &schema["properties"][part]) {
                let is_on_page = page.contains(&format!("| `{}` |", field.path));
                let is_explained = field.path == part || field.path.starts_with("spec.template.spec.");
                assert!(is_on_page || is_explained, "{} is missing", field.path);
            }
        }
    }
    assert!(page.contains("[FakeMachine](#fakemachine) without `providerID`"), "{page}");
    assert!(page.contains("Columns of `kubectl get`: `CLUSTER`"), "{page}");
}

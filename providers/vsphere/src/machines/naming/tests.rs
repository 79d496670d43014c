use cloudprovider::{
    ErrorKind,
    machines::{ClusterContext, Mark},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A name such as those of a `MachineDeployment`.
const LONG: &str = "quick-start-d34gt4-md-0-wqc85-8nxwc-gfd5v";

/// The example of Cluster API Provider vSphere: 20 characters at most.
const AT_MOST_20: &str = "{{ if le (len .machine.name) 20 }}{{ .machine.name }}{{else}}\
                          {{ trimSuffix \"-\" (trunc 14 .machine.name) }}-{{ trunc -5 .machine.name }}{{end}}";

fn linux(template: &str, machine: &str) -> String {
    name(Some(template), System::Other, "own", machine).unwrap_or_else(|error| panic!("{template}: {error}"))
}

fn refused(template: &str) -> String {
    let error = name(Some(template), System::Other, "own", "worker-1").expect_err(template);
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{template}");
    let words = error.report();
    words.strip_prefix("spec.naming.template: ").expect("the field").to_owned()
}

#[test]
fn names_are_those_of_cluster_api_provider_vsphere() {
    for (template, machine, expected) in [
        ("{{ .machine.name }}", LONG, LONG),
        // cut at 63 characters
        (
            "{{ .machine.name }}-{{ .machine.name }}",
            LONG,
            "quick-start-d34gt4-md-0-wqc85-8nxwc-gfd5v-quick-start-d34gt4-md",
        ),
        (AT_MOST_20, "quick-md-8nxwc-gfd5v", "quick-md-8nxwc-gfd5v"),
        (AT_MOST_20, LONG, "quick-start-d3-gfd5v"),
        (AT_MOST_20, "quick-start-d-34gt4-md-0-wqc85-8nxwc-gfd5v", "quick-start-d-gfd5v"),
        ("vm-{{ trunc -5 .machine.name }}", LONG, "vm-gfd5v"),
    ] {
        assert_eq!(linux(template, machine), expected, "{template}");
    }
}

#[test]
fn templates_are_read_as_go_reads_them() {
    for (template, expected) in [
        ("a", "a"),
        ("{{.machine.name}}", "worker-1"),
        ("{{$.machine.name}}", "worker-1"),
        ("{{ .machine.name | trunc 6 }}", "worker"),
        ("{{ .machine.name | trunc 7 | trimSuffix \"-\" }}", "worker"),
        ("{{ trimSuffix `-1` .machine.name }}", "worker"),
        ("{{ (trunc 2 (trimSuffix (trunc 1 \"1-\") .machine.name)) }}", "wo"),
        ("{{trunc 3 (.machine.name)|trunc 2}}", "wo"),
        ("{{ trunc 99 .machine.name }}{{ trunc -99 .machine.name }}", "worker-1worker-1"),
        ("x{{ trunc 0 .machine.name }}", "x"),
        ("{{ trunc +3 .machine.name }}", "wor"),
        ("{{ \"}}\" | trunc 0 }}a", "a"),
        ("{{ `}}\"` | trunc 0 }}a", "a"),
        ("{{ \"\\\"}}\\\\\" | trunc 0 }}a", "a"),
        // white space
        ("a \n {{- .machine.name -}} \t b", "aworker-1b"),
        ("a {{- /* why */ -}} b", "ab"),
        ("a{{/* {{ why }} */}}b", "ab"),
        ("{{\n.machine.name\n}}", "worker-1"),
        ("a{{-3}}", "a-3"),
        ("a{{- 3 -}} {{- \"b\" -}} ", "a3b"),
        // conditions
        ("{{if true}}a{{else}}b{{end}}", "a"),
        ("{{if \"\"}}a{{else}}b{{end}}", "b"),
        ("{{if 0}}a{{else if eq .machine.name \"worker-1\"}}b{{else}}c{{end}}", "b"),
        ("{{if and .machine.name (not false)}}{{if or 0 false}}a{{end}}b{{end}}", "b"),
        ("{{if gt (len .machine.name) 7}}a{{end}}{{if lt 1 2}}b{{end}}{{if ne 1 2}}c{{end}}", "abc"),
        ("{{if ge 2 2}}a{{end}}{{if eq 3 1 2 3}}b{{end}}{{if le \"a\" \"b\"}}c{{end}}", "abc"),
        // what is not decisive is not looked at
        ("{{if or true (trunc \"\" 1)}}a{{end}}{{if false}}{{ .other }}{{end}}", "a"),
        ("{{ and 1 \"\" 2 }}a{{ or \"\" \"b\" }}", "ab"),
        // functions of Go
        ("{{ len .machine.name }}", "8"),
        ("{{ slice .machine.name 1 3 }}{{ slice .machine.name 7 }}{{ slice \"z\" }}", "or1z"),
        ("{{ print \"a\" 1 \"b\" }}{{ printf \"%s-%d%v\" .machine.name 3 4 }}", "a1bworker-1-34"),
        ("{{ .machine.name | printf \"%s-%s\" \"a\" }}", "a-worker-1"),
        ("{{ .machine.name }}.example", "worker-1.example"),
    ] {
        assert_eq!(linux(template, "worker-1"), expected, "{template}");
    }
}

#[test]
fn what_is_wrong_with_a_template_is_said() {
    for (template, words) in [
        ("{{ .machine.name", "{{ has no }}"),
        ("{{ \"a }}", "a quoted text has no end"),
        ("{{ `a }}", "a quoted text has no end"),
        ("{{ \"a\nb\" }}", "a quoted text has no end"),
        ("{{ }}", "a value is missing"),
        ("{{ .machine.name | }}", "a value is missing"),
        ("{{ | trunc 1 }}", "a value is missing"),
        ("{{ () }}", "a value is missing"),
        ("{{ (trunc 1 .machine.name }}", "a ( has no )"),
        ("{{ trunc 1 .machine.name) }}", "a ) belongs to no ("),
        ("{{ upper .machine.name }}", "there is no function \"upper\"; there are trimSuffix, trunc, len"),
        ("{{ .Machine.name }}", ".Machine.name; the only one is .machine.name"),
        ("{{ .machine }}", "there is no text .machine; the only one is .machine.name"),
        ("{{ . }}", "there is no text .;"),
        ("{{ .machine.name.x }}", "there is no text .machine.name.x;"),
        ("{{ $x := 1 }}", "variables are not supported"),
        ("{{ $x }}", "variables are not supported"),
        ("{{ .machine.name 1 }}", "only a function takes arguments"),
        ("{{ 1 | .machine.name }}", "a function is missing after |"),
        ("{{ trunc .machine.name 1 }}", "trunc: \"worker-1\" is a text, and a number is needed"),
        ("{{ trunc 1 2 }}", "trunc: 2 is a number, and a text is needed"),
        ("{{ trunc 1 }}", "trunc: it is not called with 1 arguments"),
        ("{{ trunc 1 .machine.name 2 }}", "trunc: it is not called with 3 arguments"),
        ("{{ trimSuffix \"-\" trunc 1 .machine.name }}", "trunc: it is not called with 0 arguments"),
        ("{{ eq 1 \"1\" }}", "eq: a number and a text cannot be compared"),
        ("{{ lt true false }}", "lt: true or false and true or false cannot be compared"),
        ("{{ eq 1 }}", "eq: it is not called with 1 arguments"),
        ("{{ and }}", "and: it is not called with 0 arguments"),
        ("{{ slice .machine.name 3 1 }}", "slice: \"worker-1\" has no characters from 3 to 1"),
        ("{{ slice .machine.name -1 }}", "slice: \"worker-1\" has no characters from -1 to 8"),
        ("{{ printf \"%x\" 1 }}", "verbs other than %s, %d, %v and %%"),
        ("{{ printf \"%s\" }}", "more verbs than there are values"),
        ("{{ printf \"a\" 1 }}", "fewer verbs than there are values"),
        ("{{ printf \"%d\" \"a\" }}", "printf: \"a\" is a text, and a number is needed"),
        ("{{ 5x }}", "5x is no whole number"),
        ("{{ 1.5 }}", "1.5 is no whole number"),
        ("{{ - }}", "- is no whole number"),
        ("{{ 99999999999999999999 }}", "is no whole number"),
        ("{{ trunc 5\"a\" }}", "a space is missing"),
        ("{{ \"\\u0041\" }}", "\\u in a quoted text is not supported"),
        ("{{ 'a' }}", "'\\'' has no meaning here"),
        ("{{ /* a */ }}", "'/' has no meaning here"),
        ("{{/* a }}", "a comment has no end"),
        ("{{/* a */ }}", "a comment ends with */}} or */ -}}"),
        ("{{ with .machine }}{{ .name }}{{ end }}", "\"with\" is not supported; use if, else and end"),
        ("{{ range .machine }}{{ end }}", "\"range\" is not supported"),
        ("{{ if true }}a", "{{if}} has no {{end}}"),
        ("{{ if }}a{{ end }}", "a value is missing"),
        ("a{{ end }}", "{{end}} belongs to no {{if}}"),
        ("a{{ else }}", "{{else}} belongs to no {{if}}"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "{{else}} belongs to no {{if}}"),
        ("{{ if 1 }}{{ else with 1 }}{{ end }}", "after {{else only if"),
        ("{{ if 1 }}{{ end 1 }}", "nothing stands after {{end"),
        ("\u{e4}", "not ASCII"),
        // names that are none
        ("-{{ .machine.name }}", "\"-worker-1\" is no name: it has lower-case letters"),
        ("{{ .machine.name }}\n", "\"worker-1\\n\" is no name"),
        ("{{ trunc 7 .machine.name }}", "\"worker-\" is no name"),
        ("A", "\"A\" is no name"),
        ("a..b", "\"a..b\" is no name"),
        ("{{ trunc 0 .machine.name }}", "\"\" is no name"),
    ] {
        let found = refused(template);
        assert!(found.contains(words), "{template}: {found}");
    }
}

#[test]
fn a_template_is_bounded() {
    assert!(refused(&"a".repeat(5000)).contains("more than 4096 characters"));
    let deep = |depth: usize| format!("{{{{ {}.machine.name{} }}}}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(linux(&deep(16), "worker-1"), "worker-1");
    assert!(refused(&deep(17)).contains("more than 16 parentheses"));
    let nested = |depth: usize| format!("{}a{}", "{{if 1}}".repeat(depth), "{{end}}".repeat(depth));
    assert_eq!(linux(&nested(16), "worker-1"), "a");
    assert!(refused(&nested(17)).contains("more than 16 conditions"));
}

#[test]
fn windows_has_short_names() {
    let of = |template: Option<&str>, machine: &str| name(template, System::Windows, machine, machine);
    let own = "{{ .machine.name }}";
    for (template, machine, expected) in [
        (None, "worker-1", "worker-1"),
        (None, "exactly-15-char", "exactly-15-char"),
        (None, LONG, "quick-sta-gfd5v"),
        (None, "my-worker-abcdef-12345", "my-worker-12345"),
        (Some(own), LONG, "quick-sta-gfd5v"),
        // a dash at the end of the first part goes
        (Some(own), "clusters-md-0-xyz12", "clusters-xyz12"),
        (Some("win-{{ .machine.name }}"), LONG, "win-quick-gfd5v"),
        // what is shorter than the part that is kept
        (Some("vm-{{ trunc -5 .machine.name }}"), LONG, "vm-gfd5v"),
        (Some("w{{ trunc 3 .machine.name }}"), "worker-1", "wwor"),
    ] {
        let found = of(template, machine).unwrap_or_else(|error| panic!("{machine}: {error}"));
        assert_eq!(found, expected, "{template:?} {machine}");
    }
    let error = of(Some("windows-{{ .machine.name }}"), "worker-1").expect_err("too long");
    assert!(
        error.report().starts_with("spec.naming.template: \"windows-worker-1\" has more than 15 characters"),
        "{error}"
    );
    let error = of(None, "aaaaaaaa.bbbbbbbbb").expect_err("no name");
    assert!(error.report().starts_with("metadata.name: \"aaaaaaaa.-bbbbb\" is no name"), "{error}");
}

#[test]
fn without_a_template_the_name_is_that_of_the_object() {
    let request = |spec: serde_json::Value| {
        let spec = serde_json::from_value(spec).expect("a spec");
        let mark = Mark::machine("u-1", "default", "prod", "worker-1");
        MachineRequest::new(mark, spec, ClusterContext::new(())).with_machine_name("machine-1")
    };
    let spec = |more: serde_json::Value| {
        let mut spec = json!({"template": "t", "network": {"devices": []}});
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        request(spec)
    };
    for (more, expected) in [
        (json!({}), "worker-1"),
        (json!({"naming": {}}), "worker-1"),
        (json!({"naming": {"template": ""}}), "worker-1"),
        (json!({"os": "Linux"}), "worker-1"),
        (json!({"naming": {"template": "{{ .machine.name }}"}}), "machine-1"),
        (json!({"naming": {"template": "x-{{ .machine.name }}"}, "os": "Windows"}), "x-machine-1"),
    ] {
        assert_eq!(vm_name(&spec(more.clone())).expect("a name"), expected, "{more}");
    }
    let wrong = spec(json!({"naming": {"template": "{{"}}));
    vm_name(&wrong).expect_err("no template");
    assert_eq!(vm_name_or_own(&wrong), "worker-1");
}

proptest! {
    #[test]
    fn nothing_panics(template in "(?s).{0,80}", machine in "[a-z0-9.-]{0,80}") {
        for system in [System::Windows, System::Other] {
            let _ = name(Some(&template), system, &machine, &machine);
            let _ = name(None, system, &machine, &machine);
        }
    }

    #[test]
    fn nothing_panics_in_an_action(
        parts in proptest::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "{{-", "-}}", " ", "if", "else", "end", "(", ")", "|", "trunc", "trimSuffix", "slice", "printf",
                "\"%s\"", "`-", "`", "\"", "\\", "-5", "3", ".machine.name", "$", ".", "/*", "*/", "eq", "and", "len", "a",
            ]),
            0..30,
        ),
        machine in "[a-z0-9-]{0,20}",
    ) {
        let template = parts.concat();
        for system in [System::Windows, System::Other] {
            if let Ok(name) = name(Some(&template), system, "own", &machine) {
                prop_assert!(name.len() <= MAX_NAME && is_name(&name), "{name}");
            }
        }
    }
}

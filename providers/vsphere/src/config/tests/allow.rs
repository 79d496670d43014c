//! The list of what objects may name.

use super::*;

fn with(list: &str) -> String {
    format!("{MINIMAL}machines:\n  allow: {list}\n")
}

#[test]
fn nothing_is_listed_unless_it_is_written() {
    assert!(parse(MINIMAL).machines.allow.is_empty());
    assert!(parse(&with("[]")).machines.allow.is_empty());
    assert!(parse(&with("")).machines.allow.is_empty());
}

#[test]
fn an_entry_is_read_beside_the_other_keys() {
    let text = format!(
        "{MINIMAL}machines:\n  nodeAntiAffinity: true\n  allow:\n  - namespaces: [team-a, 007]\n    vcenters: [a]\n    \
         templates: [/dc1/vm/templates/*, 'VirtualMachine:vm-42']\n    machinesAsTemplates: true\n    networks: ['*']\n    \
         vmxKeys: [RemoteDisplay.*]\n"
    );
    let config = parse(&text);
    assert_eq!(config.warnings(), []);
    assert!(config.machines.node_anti_affinity);
    let [entry] = &config.machines.allow[..] else { panic!("{config:?}") };
    assert_eq!(entry.namespaces, ["team-a", "007"]);
    assert_eq!(entry.vcenters, ["a"]);
    assert_eq!((entry.templates.len(), entry.networks.len()), (2, 1));
    assert!(entry.machines_as_templates && entry.vmx_keys[0].matches("remotedisplay.vnc.enabled"));
}

#[test]
fn faults_name_the_key_and_what_would_be_right() {
    for (list, expected) in [
        ("all", "machines.allow: is a text, must be a list of mappings"),
        ("[all]", "machines.allow[0]: is a text, must be a mapping of keys to lists"),
        (
            "[{namespaces: []}]",
            "machines.allow[0].namespaces: is empty; list at least one, or leave the key out if the entry is for every namespace",
        ),
        ("[{namespaces: ['*']}]", "machines.allow[0].namespaces[0]: \"*\" is not the name of a namespace"),
        ("[{namespaces: [a/b]}]", "machines.allow[0].namespaces[0]: \"a/b\" is not the name of a namespace"),
        ("[{namespaces: a}]", "machines.allow[0].namespaces: is a text, must be a list"),
        (
            "[{vcenters: [b]}]",
            "machines.allow[0].vcenters[0]: \"b\" is no vCenter of this configuration; it has a",
        ),
        (
            "[{templates: []}]",
            "machines.allow[0].templates: is empty; list at least one, or leave the key out",
        ),
        ("[{template: ['*']}]", "machines.allow[0]: has an unknown key; did you mean templates?"),
        ("[{machinesAsTemplates: often}]", "machines.allow[0].machinesAsTemplates: must be true or false"),
    ] {
        assert_eq!(problems(&with(list)), [expected], "{list}");
    }
    for pattern in
        ["templates", "dc1/vm/*", "/dc1//x", "/", "/dc1/**/x", "/dc1/a**", ":", "Folder:", "Folder:a/b", "**"]
    {
        let found = problems(&with(&format!("[{{templates: ['{pattern}']}}]")));
        assert!(
            found[0].contains("must be a whole inventory path such as /dc1/vm/templates/*"),
            "{pattern}: {found:?}"
        );
    }
    for word in ["a*b", "**"] {
        let found = problems(&with(&format!("[{{vmxKeys: ['{word}']}}]")));
        assert!(found[0].contains("must be a word, the beginning of words"), "{word}: {found:?}");
    }
}

#[test]
fn what_is_open_for_all_is_told() {
    let told = warnings(&with("[{templates: ['*'], networks: ['/dc/network/*'], vmxKeys: ['*']}]"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("machines.allow[0]: is open: ") && told[0].contains("templates, vmxKeys;"),
        "{told:?}"
    );
    assert_eq!(
        warnings(&with("[{namespaces: [a], templates: ['*']}, {networks: ['/dc/network/*']}]")),
        [""; 0]
    );
}

#[test]
fn ini_has_no_place_for_it() {
    let found = problems("[VirtualCenter \"vc1\"]\nuser = u\npassword = p\n[Machines]\nallow = x\n");
    assert_eq!(
        found,
        ["[Machines] allow: can be given in the YAML format only; write the file in that format"]
    );
}

//! Warnings, which do not prevent the start.

use super::*;

#[test]
fn what_has_no_effect_is_warned_of() {
    for (text, part) in [
        ("globl: {}", "\"globl\" is not known and ignored; did you mean global?"),
        ("colour: red", "\"colour\" is not known and ignored; known here: global, vcenter,"),
        (
            "global: {insecure-flag: true}",
            "global: \"insecure-flag\" is not known and ignored; did you mean insecureFlag?",
        ),
        ("global: {insecureFlag: true, insecureFlag: false}", "global: has the same key twice"),
        ("labels: {zone: a}", "labels: names one of zone and region"),
        ("global: {secretName: s}", "global.secretName: has no effect without the Secret's namespace"),
    ] {
        let found = warnings(&format!("{MINIMAL}{text}\n"));
        assert!(found.len() == 1 && found[0].starts_with(part), "{text}: {found:?}");
    }
    for harmless in
        ["apiVersion: v1", "kind: x", "metadata: {name: x}", "global:", "nodes: {}", "vcenters-x: ~"]
    {
        let found = warnings(&format!("{MINIMAL}{harmless}\n"));
        assert_eq!(found.len(), usize::from(harmless.starts_with("vcenters")), "{harmless}: {found:?}");
    }
    let ini = "[Global]\nuser = u\npassword = a#b\nsecret = s\n[VirtualCenter \"vc1\"]\n[Global \"x\"]\nuser = y\n[Disk]\n";
    let found = warnings(ini);
    for part in [
        "[Global] password: ends at a comment sign",
        "[Global]: an unknown name, not shown",
        "[Global]: takes no name in quotes",
        "\"Disk\" is of the in-tree provider and ignored",
    ] {
        assert!(found.iter().any(|warning| warning.starts_with(part)), "{part} in {found:#?}");
    }
    assert_eq!(parse(ini).vcenters[0].credentials.inline.as_ref().expect("inline").0, "u");
}

#[test]
fn a_value_in_the_place_of_a_key_is_not_shown() {
    for text in [
        "hunter2: x",
        "global: {passwordhunter2: }",
        "global: {'password=hunter2': x}",
        "vcenter: {b: {hunter2: ~}}",
    ] {
        let text = format!("{text}\n{}", if text.starts_with("vcenter") { "" } else { MINIMAL });
        let outcome = Config::parse(&text, &Environment::default());
        let told = match &outcome {
            Ok(config) => format!("{:?}", config.warnings()),
            Err(error) => error.report(),
        };
        assert!(!told.contains("hunter2"), "{text}: {told}");
    }
}

#[test]
fn sections_of_the_other_format_are_known() {
    let ini = "[VirtualCenter \"vc1\"]\nuser = u\npassword = p\n";
    for (text, part) in [
        (format!("{MINIMAL}Global: {{}}\n"), "did you mean global?"),
        (format!("{MINIMAL}VirtualCenter: {{}}\n"), "did you mean vcenter?"),
        (format!("{MINIMAL}virtual-center: {{}}\n"), "did you mean vcenter?"),
        (format!("{MINIMAL}VCenter: {{}}\n"), "did you mean vcenter?"),
        (format!("{ini}[vcenter]\n"), "did you mean VirtualCenter?"),
        (format!("{ini}[Workspace]\n"), "is of the in-tree provider"),
        (format!("{MINIMAL}secretName: s\n"), "belongs below global:"),
        (format!("{MINIMAL}\"glob\u{a0}al\": {{}}\n"), "no-break space"),
        (format!("{MINIMAL}colour: red\n"), "known here: global"),
    ] {
        let found = warnings(&text);
        assert!(found.len() == 1 && found[0].contains(part), "{text}: {found:?}");
    }
}

//! Tests of the INI dialect. Each expectation is what gcfg v1.2.3 does.

use proptest::prelude::*;

use super::*;

/// The sections as `name "subsection": name=value, name`.
fn read(text: &str) -> Vec<String> {
    let document = parse(text).unwrap_or_else(|faults| panic!("{text:?}: {faults:?}"));
    document
        .sections
        .iter()
        .map(|section| {
            let variables: Vec<_> = section
                .variables
                .iter()
                .map(|variable| match &variable.value {
                    Some(value) => format!("{}={value}", variable.name),
                    None => variable.name.clone(),
                })
                .collect();
            let subsection = section.subsection.as_ref().map_or(String::new(), |name| format!(" {name:?}"));
            format!("{}{subsection}: {}", section.name, variables.join(", "))
        })
        .collect()
}

fn value(text: &str) -> String {
    let document =
        parse(&format!("[s]\nv ={text}\n")).unwrap_or_else(|faults| panic!("{text:?}: {faults:?}"));
    document.sections[0].variables[0].value.clone().expect("a value")
}

fn fault(text: &str) -> &'static str {
    match parse(text) {
        Ok(document) => panic!("{text:?} is read as {document:?}"),
        Err(faults) => faults[0].message,
    }
}

#[test]
fn sections_and_variables() {
    let text = "\u{feff}; comment\n[Global]  # behind\nuser = u\n insecure-flag\nport=443;c\n\n\
                [VirtualCenter \"1.2.3.4\"]\r\n\tdatacenters = a, b \r\n[ Labels\t]\n[Global]\nempty =\nempty2 = # c\n";
    assert_eq!(
        read(text),
        [
            "Global: user=u, insecure-flag, port=443",
            "VirtualCenter \"1.2.3.4\": datacenters=a, b",
            "Labels: ",
            "Global: empty=, empty2=",
        ]
    );
    assert_eq!(read(""), [""; 0]);
    assert_eq!(read("[s \"fd00::1\"]\nname"), ["s \"fd00::1\": name"]);
    assert_eq!(read(r#"[s "a\"b\\c"]"#), [r#"s "a\"b\\c": "#]);
    assert_eq!(read("[é-1]\nä2-=1"), ["é-1: ä2-=1"]);
}

#[test]
fn values() {
    for (text, expected) in [
        ("  a b  ", "a b"),
        (" a\t; c", "a"),
        ("a#b", "a"),
        ("\"a#b;c\"", "a#b;c"),
        (r#" "  a " "#, "  a "),
        (r#"a "b  c" d "#, "a b  c d"),
        ("\"\"", ""),
        (r#""\"\\\n\t""#, "\"\\\n\t"),
        (r#"a\"b"#, "a\"b"),
        (r#"\"a\""#, "\"a\""),
        ("a \\\n  b", "a   b"),
        ("a\\\r\nb", "ab"),
        ("\\\nb", "b"),
        ("a\\\n", "a"),
        ("a\\\n# c", "a"),
        ("a=b", "a=b"),
        ("a]b[", "a]b["),
        ("\u{a0}a\u{a0}", "\u{a0}a\u{a0}"),
        ("\"a\rb\"", "ab"),
        (r#""a"x"b""#, "axb"),
        (" 'a' ", "'a'"),
    ] {
        assert_eq!(value(text), expected, "{text:?}");
    }
}

#[test]
fn values_that_a_comment_sign_may_have_cut() {
    for (text, cut) in [
        ("a#b", Cut::Tight),
        ("a;b", Cut::Tight),
        ("a# b", Cut::Tight),
        ("\"a\"#b", Cut::Tight),
        ("a #b", Cut::Spaced),
        ("#b", Cut::Spaced),
        (";b\r", Cut::Spaced),
        ("a # b", Cut::No),
        ("a ## b", Cut::No),
        ("a #", Cut::No),
        ("# b", Cut::No),
        ("a", Cut::No),
        ("\"a#b\"", Cut::No),
    ] {
        let document = parse(&format!("[s]\nv = {text}")).expect("valid");
        assert_eq!(document.sections[0].variables[0].cut, cut, "{text}");
    }
}

#[test]
fn faults_say_what_would_be_right() {
    for (text, part) in [
        ("a = b", "before any [section]"),
        ("[s", "lacks the ]"),
        ("[]", "no name of a section"),
        ("[1.2.3.4]", "no name of a section"),
        ("[s 1.2.3.4]", "not in double quotes"),
        ("[s.sub]", "not in double quotes"),
        ("[s \"a\" x]", "lacks the ]"),
        ("[s \"\"]", "empty name"),
        ("[s \"a]\n", "not closed"),
        ("[s \"a", "not closed"),
        (r#"[s "a\n"]"#, "escape"),
        ("[s] a = b", "a line of their own"),
        ("[s\n]", "lacks the ]"),
        ("[s]\na: b", "write name = value"),
        ("[s]\nsecret_name = b", "have - instead"),
        ("[s]\na b", "no ="),
        ("[s]\n\u{a0}a = b", "begins with a no-break space"),
        ("[s]\na\u{a0}= b", "a no-break space"),
        ("[s \u{201c}a\u{201d}]", "typographic quotes"),
        ("[s]\n= b", "neither"),
        ("[s]\n\"a\" = b", "neither"),
        ("[s]\n1a = b", "neither"),
        ("[s]\n-a = b", "neither"),
        ("[s]\na = \"b", "not closed"),
        ("[s]\na = \"b\nc\"", "not closed"),
        ("[s]\na = \"b\\\nc\"", "escape in quotes"),
        (
            r#"[s]
a = "\r""#,
            "escape in quotes",
        ),
        ("[s]\na = b\\c", "each backslash twice"),
        ("[s]\na = b\\", "each backslash twice"),
        ("[s]\na = b\\\\", "each backslash twice"),
        ("[s]\na = b\0", "NUL"),
        ("[s]\na # \0", "NUL"),
    ] {
        let message = fault(text);
        assert!(message.contains(part), "{text:?}: {message}");
    }
}

#[test]
fn every_faulty_line_is_told_with_its_number() {
    let faults = parse("[a\nx = 1\n[b]\ny: 2\nz = 3\\4\n\nw = \"\n[c] c\n").expect_err("faulty");
    let lines: Vec<_> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 4, 5, 7, 8]);
}

/// A value in quotes, as gcfg reads it.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c => text.push(c),
        }
    }
    text + "\""
}

proptest! {
    #[test]
    fn nothing_panics(text in "(?s).{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn nothing_panics_near_the_format(text in "[\\[\\]\"\\\\=;# \n\r\tab-]{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn quoted_values_come_back(
        names in prop::collection::vec("[a-z][a-z0-9-]{0,8}", 1..5),
        value in "[^\0\r]{0,40}",
        subsection in "[^\0\n\r]{1,20}",
    ) {
        let header = subsection.replace('\\', "\\\\").replace('"', "\\\"");
        let mut lines = vec![format!("[s \"{header}\"]")];
        for name in &names {
            lines.push(format!("{name} = {} # comment", quoted(&value)));
        }
        let document = parse(&lines.join("\n")).expect("valid");
        prop_assert_eq!(document.sections.len(), 1);
        prop_assert_eq!(document.sections[0].subsection.as_deref(), Some(subsection.as_str()));
        let read: Vec<_> = document.sections[0].variables.iter().map(|v| v.name.clone()).collect();
        prop_assert_eq!(read, names);
        for variable in &document.sections[0].variables {
            prop_assert_eq!(variable.value.as_deref(), Some(value.as_str()));
        }
    }

    #[test]
    fn lines_are_independent(
        good in "[a-z]{1,5} = [a-z ]{0,5}",
        bad in prop::sample::select(vec!["a: b", "a = \"", "= x", "a = b\\c", "x y"]),
    ) {
        let faults = parse(&format!("[s]\n{good}\n{bad}\n{good}\n")).expect_err("faulty");
        prop_assert_eq!(faults.len(), 1);
        prop_assert_eq!(faults[0].line, 3);
    }
}

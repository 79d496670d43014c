//! Tests of the YAML reader.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Node {
    Node::parse(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"))
}

#[test]
fn scalars_keep_their_text() {
    for text in
        ["007", "1e5", "0x1F", "1.10", ".inf", "yes", "2026-01-01", "1_000", "+5", "12345678901234567890"]
    {
        assert_eq!(parse(&format!("a: {text}")).get("a").and_then(Node::text), Some(text));
    }
    for text in ["", "~", "null", "NULL"] {
        assert_eq!(parse(&format!("a: {text}")).get("a"), Some(&Node::Null), "{text:?}");
    }
    assert_eq!(parse("a: 'null'").get("a").and_then(Node::text), Some("null"));
    assert_eq!(parse("a: |\n  b\n  c\n").get("a").and_then(Node::text), Some("b\nc\n"));
    assert_eq!(parse(""), Node::Null);
    assert_eq!(parse("# nothing\n---\n"), Node::Null);
}

#[test]
fn tags_decide_what_a_scalar_is() {
    let value = |text: &str| parse(&format!("a: {text}")).get("a").cloned().expect("a");
    for (text, expected) in [
        ("!!binary aHVudGVyMg==", "hunter2"),
        ("!!binary 'aHVudGVyMg=='", "hunter2"),
        ("!!binary |\n  aHVu\n  dGVyMg==\n", "hunter2"),
        ("!!binary aHVudGVyMgo=", "hunter2\n"),
        ("!<tag:yaml.org,2002:binary> YQ==", "a"),
        ("!!str null", "null"),
        ("!!str 5", "5"),
        ("!!int '5'", "5"),
        ("!own x", "x"),
    ] {
        assert_eq!(value(text).text(), Some(expected), "{text}");
    }
    for text in ["!hunter2", "&hunter2", "!!str", "!!null x"] {
        assert_eq!(value(text), Node::Null, "{text}");
    }
    for text in ["!!binary hunter2", "!!binary aHVudGVyMg", "!!binary /w==", "!!binary aHVu dGVyMg=="] {
        let fault = Node::parse(&format!("a: {text}")).expect_err(text).to_string();
        assert!(fault.starts_with("is !!binary, and ") && !fault.contains("aHV"), "{fault}");
    }
}

#[test]
fn values_that_a_comment_sign_may_have_cut() {
    for (text, expected) in [
        ("ab #cd", true),
        ("ab\t#cd # e", true),
        ("ü #cd", true),
        ("ab # cd", false),
        ("ab #", false),
        ("ab ## cd", false),
        ("ab#cd", false),
        ("'ab #cd'", false),
        ("'ab' #cd", false),
        ("ab", false),
    ] {
        for text in [format!("a: {text}"), format!("x: 1\r\na: {text}\r\nz: 2\r\n")] {
            let tree = parse(&text);
            let is_cut = matches!(tree.get("a"), Some(Node::Scalar { is_cut: true, .. }));
            assert_eq!(is_cut, expected, "{text:?}");
        }
    }
}

#[test]
fn further_documents_are_seen() {
    for (text, expected) in [
        ("a: 1\n", false),
        ("---\na: 1\n---\n", false),
        ("a: 1\n...\n", false),
        ("a: 1\n---\nb: 2\n", true),
        ("a: 1\n---\n}}}: [\n", true),
    ] {
        assert_eq!(Node::parse_first(text).expect(text).1, expected, "{text:?}");
    }
}

#[test]
fn anchors_merges_and_duplicates() {
    let tree = parse("base: &b {x: 1, y: 2}\na: {<<: *b, y: 3}\nl: [*b, z]\nx: 1\nx: 2\n");
    let after = parse("b: &b {x: 1, y: 2}\nc: &c {x: 3, z: 4}\na: {x: 9, <<: [*b, *c], y: 5}\n");
    let of = |key| after.get("a").and_then(|a| a.get(key)).and_then(Node::text);
    assert_eq!([of("x"), of("y"), of("z")], [Some("1"), Some("5"), Some("4")], "as Go's library reads it");
    assert!(matches!(after.get("a"), Some(Node::Mapping(entries)) if entries.len() == 3));
    assert!(Node::parse("a: {<<: x}").is_err());
    let of_a = |key| tree.get("a").and_then(|a| a.get(key)).and_then(Node::text);
    assert_eq!((of_a("x"), of_a("y"), of_a("<<")), (Some("1"), Some("3"), None));
    assert_eq!(tree.get("x").and_then(Node::text), Some("2"));
    assert!(matches!(tree.get("l"), Some(Node::List(items)) if items.len() == 2));
    assert_eq!(parse("a: 1\n---\nb: 2\n").get("b"), None);
}

#[test]
fn bombs_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb = [bomb, format!("a{i}: &a{i} [{refs}]\n")].concat();
    }
    assert!(Node::parse(&bomb).is_err());
    assert!(Node::parse(&"[".repeat(10_000)).is_err());
    assert!(Node::parse(&format!("{}{}", "[".repeat(80), "]".repeat(80))).is_err());
}

#[test]
fn faults_tell_the_place_and_nothing_of_the_text() {
    for (text, expected) in [
        ("a:\n\tb: 1\n", "not valid YAML: a tab; indent with spaces (line 2, column 2)"),
        ("a: {hunter2: c\n", "not valid YAML: a bracket is not closed (line 1, column 4)"),
        ("{[a]: b}", "has a key that is a list or a mapping (line 1, column 4)"),
    ] {
        assert_eq!(Node::parse(text).expect_err(text).to_string(), expected);
    }
    for text in ["a: hunter2: x", "a: *hunter2", "a: 'hunter2", "a: \"\\qhunter2\"", "a: @hunter2"] {
        let fault = Node::parse(text).expect_err(text).to_string();
        assert!(!fault.contains("hunter2"), "{fault}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in "(?s).{0,200}") {
        let _ = Node::parse(&text).map(|node| node.count());
        let _ = Node::strict(&text);
    }

    #[test]
    fn nothing_panics_near_the_format(text in "[a-c:{}\\[\\],&*<\n '\"-]{0,80}") {
        let _ = Node::parse(&text);
    }
}

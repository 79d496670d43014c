use serde_json::{Value, json};

use super::document;

#[test]
fn collections_and_scalars() {
    let value = json!({
        "empty": {}, "list": [], "null": null, "number": -1, "yes": true,
        "nested": {"b": [1, ["x", "y"], {"k": {"l": "m"}, "j": []}], "a": {"z": "1"}},
    });
    let expected = "empty: {}\nlist: []\nnested:\n  a:\n    z: \"1\"\n  b:\n  - 1\n  - - x\n    - \"y\"\n  - j: []\n    \
                    k:\n      l: m\n\"null\": null\nnumber: -1\n\"yes\": true\n";
    assert_eq!(document(&value), expected);
}

#[test]
fn line_breaks_of_yaml_1_1_are_escaped() {
    let value = json!(["a\u{85}b", "a\u{2028}b\n", "\u{2029}", "a\rb"]);
    assert_eq!(document(&value), "- \"a\\Nb\"\n- \"a\\Lb\\n\"\n- \"\\P\"\n- \"a\\rb\"\n");
}

/// What is written is read back, whatever it is.
#[test]
fn any_text_is_read_back() {
    let mut random = fastrand::Rng::with_seed(7);
    let alphabet: Vec<char> =
        "ab01 \n\t-:#'\"\\{}[]?!&*|>%@`,~.\u{e9}\u{2028}\u{85}\u{1b}\u{feff}\u{1f600}=<".chars().collect();
    for _ in 0..20_000 {
        let length = random.usize(0..12);
        let mut text =
            || -> String { (0..length).map(|_| alphabet[random.usize(..alphabet.len())]).collect() };
        let (key, value) = (format!("k{}", text()), text());
        let written = document(&json!({"list": [value], key.clone(): {"inner": value}}));
        let read: Value =
            serde_saphyr::from_str(&written).unwrap_or_else(|error| panic!("{written:?}: {error}"));
        assert_eq!(read["list"][0], json!(value), "{written:?}");
        assert_eq!(read[&key]["inner"], json!(value), "{written:?}");
    }
}

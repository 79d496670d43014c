//! The reference in the documentation, generated from the table of keys.

use provider_kit::{Key, Kind, Section, Shape};

use super::keys::{SCHEMA, VCENTER};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/providers/vsphere/reference.md");
const BEGIN: &str =
    "<!-- begin of what the code writes: UPDATE_DOCS=1 cargo test -p cloudprovider-vsphere reference -->\n";
const END: &str = "<!-- end of what the code writes -->\n";

fn reference() -> String {
    let section = |section: &Section| {
        let is_named = section.shape == Shape::Named;
        let name = if is_named { ".<name>" } else { "" };
        let quoted = if is_named { " \"<name>\"" } else { "" };
        let title = format!("\n### `{}{name}` / `[{}{quoted}]`\n\n", section.yaml, section.ini);
        let note = if section.is_unused { "Read and checked; nothing of NSX-T is done.\n\n" } else { "" };
        let head = "| YAML | INI | Environment | Value | Default | Meaning |\n|---|---|---|---|---|---|\n";
        let keys = section.keys.iter().filter(|key| key.kind != Kind::Tree);
        let rows: Vec<_> = keys.map(|key| row(section, key)).collect();
        [&title, note, head, &rows.concat()].concat()
    };
    SCHEMA.sections.iter().filter(|section| section.shape != Shape::Tree).map(section).collect()
}

fn row(section: &Section, key: &Key) -> String {
    let env = match (key.env, section.yaml) {
        ("", _) => String::new(),
        (env, VCENTER) => format!("`VCENTER_<id>_{env}`"),
        (env, _) => format!("`{env}`"),
    };
    format!(
        "| `{}` | `{}` | {env} | {} | {} | {} |\n",
        key.name,
        key.ini,
        key.kind.describe(),
        key.default,
        key.meaning
    )
}

#[test]
fn the_reference_in_the_documentation_is_up_to_date() {
    let docs = std::fs::read_to_string(DOCS).expect("docs/providers/vsphere/reference.md");
    let begin = docs.find(BEGIN).expect("the begin mark") + BEGIN.len();
    let end = docs.find(END).expect("the end mark");
    let expected = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(DOCS, format!("{}{expected}{}", &docs[..begin], &docs[end..])).expect("written");
    } else {
        assert!(
            docs[begin..end] == expected,
            "run UPDATE_DOCS=1 cargo test -p cloudprovider-vsphere reference"
        );
    }
}

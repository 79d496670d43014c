//! Messages about unknown keys and sections.

use cloudprovider::TextOddity;

use super::{keys::Section, settings::Format};

/// Sections of the in-tree provider's `vsphere.conf`, which many files still contain.
const IN_TREE: [&str; 3] = ["Workspace", "Disk", "Network"];

/// The message about a section that this format does not have.
pub(crate) fn unknown_section(name: &str, format: Format) -> String {
    if squeezed(name) == squeezed(address_pools::Config::KEY) {
        return match format {
            Format::Yaml => {
                format!("{name:?} is not known and ignored; did you mean {}?", address_pools::Config::KEY)
            }
            Format::Ini => {
                "address pools can be given in the YAML format only; write the file in that format".to_owned()
            }
        };
    }
    let name_of = |section: Section| match format {
        Format::Yaml => section.yaml(),
        Format::Ini => section.ini(),
    };
    let name_elsewhere = |section: Section| match format {
        Format::Yaml => section.ini(),
        Format::Ini => section.yaml(),
    };
    if has_hidden_character(name) {
        return unknown(name, &Section::ALL.map(name_of));
    }
    if let Some(section) =
        Section::ALL.into_iter().find(|section| squeezed(name_elsewhere(*section)) == squeezed(name))
    {
        return format!("{name:?} is not known and ignored; did you mean {}?", name_of(section));
    }
    if format == Format::Ini && IN_TREE.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return format!("{name:?} is of the in-tree provider and ignored; nothing takes its place");
    }
    let is_key = |key: &&super::keys::Key| key.name == name;
    if format == Format::Yaml
        && let Some(key) = Section::Global.keys().find(is_key)
    {
        return format!(
            "{:?} is ignored at the beginning of a line; it belongs below global: or below the name of a vCenter, indented",
            key.name
        );
    }
    let pools = (format == Format::Yaml).then_some(address_pools::Config::KEY);
    let known: Vec<_> = Section::ALL.map(name_of).into_iter().chain(pools).collect();
    unknown(name, &known)
}

/// The message about an unknown name: the name, if it is safe to show, and the most similar known one.
///
/// An unknown name may be a misplaced value (`passwordhunter2`), so it is shown only if it looks like a key.
pub(crate) fn unknown(name: &str, known: &[&'static str]) -> String {
    let list = known.join(", ");
    if has_hidden_character(name) {
        return format!(
            "a name that begins with or holds a no-break space or an invisible character is ignored; type the line anew, \
             with ordinary blanks; known here: {list}"
        );
    }
    let nearest = nearest(name, known);
    match nearest {
        Some(nearest) if is_plain(name) => {
            format!("{name:?} is not known and ignored; did you mean {nearest}?")
        }
        None if is_plain(name) && !holds_a_value(name) => {
            format!("{name:?} is not known and ignored; known here: {list}")
        }
        _ => format!("an unknown name, not shown since it may hold a value, is ignored; known here: {list}"),
    }
}

/// Whether a name contains invisible characters, as copied text may.
fn has_hidden_character(name: &str) -> bool {
    matches!(TextOddity::of(name), Some(TextOddity::NoBreakSpace | TextOddity::Invisible))
}

/// The most similar known name, if any is similar enough.
pub(crate) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let name = squeezed(name);
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&name, &squeezed(known)), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(4))
        .map(|(_, known)| known)
}

/// A name without the differences between the formats: `secret_name`, `secret-name` and `secretName` are one
/// name.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).take(80).flat_map(char::to_lowercase).collect()
}

/// Whether a name has only characters of keys and is no longer than a key.
fn is_plain(name: &str) -> bool {
    name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Whether a name may be a key with its value attached.
fn holds_a_value(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.bytes().any(|b| b.is_ascii_digit())
        || ["pass", "pwd", "user", "auth", "secret", "token", "key"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["user", "password", "secretName", "insecureFlag"];

    #[test]
    fn near_names_are_told() {
        for (name, expected) in [
            ("insecure-flag", Some("insecureFlag")),
            ("secret_name", Some("secretName")),
            ("pasword", Some("password")),
            ("PASSWORD", Some("password")),
            ("zone", None),
        ] {
            assert_eq!(nearest(name, &KNOWN), expected, "{name}");
        }
    }

    #[test]
    fn sections_of_the_other_format_are_known() {
        for (name, format, part) in [
            ("Global", Format::Yaml, "did you mean global?"),
            ("VirtualCenter", Format::Yaml, "did you mean vcenter?"),
            ("virtual-center", Format::Yaml, "did you mean vcenter?"),
            ("VCenter", Format::Yaml, "did you mean vcenter?"),
            ("vcenter", Format::Ini, "did you mean VirtualCenter?"),
            ("Workspace", Format::Ini, "is of the in-tree provider"),
            ("secretName", Format::Yaml, "belongs below global:"),
            ("glob\u{a0}al", Format::Yaml, "no-break space"),
            ("colour", Format::Yaml, "known here: global"),
        ] {
            let told = unknown_section(name, format);
            assert!(told.contains(part), "{name}: {told}");
        }
    }

    #[test]
    fn what_may_be_a_value_is_not_shown() {
        for name in ["passwordhunter2", "hunter2", "user=x", "a name of words", &"x".repeat(41)] {
            assert!(!unknown(name, &KNOWN).contains(name), "{name}");
        }
        assert!(unknown("inseureFlag", &KNOWN).contains("inseureFlag"));
        assert!(unknown("colour", &KNOWN).contains("colour"));
    }
}

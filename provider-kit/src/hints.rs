//! Messages about unknown names.
//!
//! An unknown name may be a misplaced value (`passwordhunter2`), so it is shown only if it looks like a key.

use cloudprovider::TextOddity;

/// The most similar known name, if any is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = squeezed(name);
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&name, &squeezed(known)), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(4))
        .map(|(_, known)| known)
}

/// Whether a name contains invisible characters, as copied text may.
pub fn has_hidden_character(name: &str) -> bool {
    matches!(TextOddity::of(name), Some(TextOddity::NoBreakSpace | TextOddity::Invisible))
}

/// Whether an unknown name may be shown. `is_near` says that it resembles a known one.
pub fn is_shown(name: &str, is_near: bool) -> bool {
    is_plain(name) && (is_near || !holds_a_value(name))
}

/// The message about a name that is ignored.
pub(crate) fn ignored(name: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    if has_hidden_character(name) {
        return format!(
            "a name that begins with or holds a no-break space or an invisible character is ignored; type the line anew, \
             with ordinary blanks; known here: {list}"
        );
    }
    match nearest(name, known.iter().copied()) {
        Some(nearest) if is_plain(name) => {
            format!("{name:?} is not known and ignored; did you mean {nearest}?")
        }
        None if is_shown(name, false) => format!("{name:?} is not known and ignored; known here: {list}"),
        _ => format!("an unknown name, not shown since it may hold a value, is ignored; known here: {list}"),
    }
}

/// The end of a message about a name that is refused.
pub(crate) fn refused(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// A name without the differences between the formats: `secret_name`, `secret-name` and `secretName` are one
/// name.
pub(crate) fn squeezed(name: &str) -> String {
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
    fn near_names_are_found() {
        for (name, expected) in [
            ("insecure-flag", Some("insecureFlag")),
            ("secret_name", Some("secretName")),
            ("pasword", Some("password")),
            ("PASSWORD", Some("password")),
            ("zone", None),
        ] {
            assert_eq!(nearest(name, KNOWN), expected, "{name}");
        }
    }

    #[test]
    fn what_may_be_a_value_is_not_shown() {
        for name in ["passwordhunter2", "hunter2", "user=x", "a name of words", &"x".repeat(41)] {
            assert!(!ignored(name, &KNOWN).contains(name), "{name}");
            assert!(!is_shown(name, false), "{name}");
        }
        assert!(ignored("inseureFlag", &KNOWN).contains("inseureFlag"));
        assert!(ignored("colour", &KNOWN).contains("colour"));
    }
}

//! Words about keys that nobody knows.

/// What is told of an unknown name: the name, if it can be shown, and the nearest known one.
///
/// A name may be a value that slipped out of its place (`passwordhunter2`), so it is shown only if it looks like a key.
pub(crate) fn unknown(name: &str, known: &[&'static str]) -> String {
    let list = known.join(", ");
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

/// The known name that differs least, if it does not differ much.
pub(crate) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let name = squeezed(name);
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&name, &squeezed(known)), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(4))
        .map(|(_, known)| known)
}

/// Without what tells the formats apart: `secret_name`, `secret-name` and `secretName` are one name.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).take(80).flat_map(char::to_lowercase).collect()
}

/// Whether a name has no more than the characters and the length of a key.
fn is_plain(name: &str) -> bool {
    name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Whether a name may be a key with its value stuck to it.
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
    fn what_may_be_a_value_is_not_shown() {
        for name in ["passwordhunter2", "hunter2", "user=x", "a name of words", &"x".repeat(41)] {
            assert!(!unknown(name, &KNOWN).contains(name), "{name}");
        }
        assert!(unknown("inseureFlag", &KNOWN).contains("inseureFlag"));
        assert!(unknown("colour", &KNOWN).contains("colour"));
    }
}

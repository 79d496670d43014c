//! What can be a label of a Kubernetes object.

/// Why `key` cannot be the key of a label. `None`: it can.
pub(crate) fn key_fault(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix {
        let parts_fit = prefix.split('.').all(|part| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        });
        if prefix.len() > 253 || !parts_fit {
            return Some("the part of its key before the / is not a DNS subdomain");
        }
    }
    (name.is_empty() || value_fault(name).is_some()).then_some("its key is not a valid label key")
}

/// Why `value` cannot be the value of a label. `None`: it can. A value has at most 63 letters, digits, `-`, `_` and `.`, and
/// begins and ends with a letter or digit. It may be empty.
pub(crate) fn value_fault(value: &str) -> Option<&'static str> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if value.len() > 63 {
        Some("longer than 63 characters")
    } else if !value.chars().all(inner) {
        Some("it holds something else than letters, digits, '-', '_' and '.'")
    } else if value.starts_with(['-', '_', '.']) || value.ends_with(['-', '_', '.']) {
        Some("it does not begin and end with a letter or digit")
    } else {
        None
    }
}

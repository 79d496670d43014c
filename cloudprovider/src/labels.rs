//! Rules for valid labels of Kubernetes objects.

use basics::dns::is_subdomain;

/// Why `key` cannot be the key of a label, if so.
pub fn label_key_fault(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Some("the part of its key before the / is not a DNS subdomain");
    }
    (name.is_empty() || label_value_fault(name).is_some()).then_some("its key is not a valid label key")
}

/// Why `value` cannot be the value of a label, if so. A value has at most 63 letters, digits, `-`, `_` and
/// `.`, and begins and ends with a letter or digit. It may be empty.
pub fn label_value_fault(value: &str) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long_prefix = format!("{}.example.org/a", "a".repeat(64));
        for good in ["a", "example.org/a", "a.b-c/D_e.f", &long_prefix] {
            assert_eq!(label_key_fault(good), None, "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in ["", "/a", "a/", "A/b", "a b", "a/b/c", "-a/b", "a..b/c", &too_long] {
            assert!(label_key_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn values() {
        for good in ["", "a", "rack-1", "eu_north.1", "A", &"x".repeat(63)] {
            assert_eq!(label_value_fault(good), None, "{good}");
        }
        for bad in ["-a", "a-", "_", "a b", "ä", "a/b", &"x".repeat(64)] {
            assert!(label_value_fault(bad).is_some(), "{bad}");
        }
    }
}

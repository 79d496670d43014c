//! DNS names as in RFC 1123 and Kubernetes: in lower case.

/// Whether `text` is a label: up to 63 lower-case letters, digits and hyphens, without a hyphen at either
/// end.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether `text` is a subdomain: labels joined by dots, with 253 characters in total. As in Kubernetes, a
/// label of a subdomain may be longer than 63 characters.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "0", "a-b", "kube-system", &"a".repeat(63)] {
            assert!(is_label(good) && is_subdomain(good), "{good}");
        }
        for bad in ["", "-", "-a", "a-", "A", "a_b", "a b", "\u{e4}", "a\n"] {
            assert!(!is_label(bad) && !is_subdomain(bad), "{bad:?}");
        }
        assert!(!is_label("a.b") && !is_label(&"a".repeat(64)));
    }

    #[test]
    fn subdomains() {
        let longest = format!("{}.{}.{}", "a".repeat(100), "b".repeat(100), "c".repeat(51));
        for good in ["a.b", "example.org", "1.2-3.x", &"a".repeat(253), &longest] {
            assert!(is_subdomain(good), "{good}");
        }
        for bad in [".", "a.", ".a", "a..b", "a.-b", "a-.b", &"a".repeat(254)] {
            assert!(!is_subdomain(bad), "{bad}");
        }
    }
}

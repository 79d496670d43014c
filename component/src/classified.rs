//! Removes secrets from the command line.

/// Replaces a secret. This is upstream's word.
const CLASSIFIED: &str = "CLASSIFIED";

/// Removes the user, password and query from a URL.
pub(crate) fn without_secrets(flag: &str, text: &str) -> String {
    if flag != "master" && !text.contains("://") {
        return text.to_owned();
    }
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let separator = if text.contains("://") { "://" } else { "" };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => (format!("{CLASSIFIED}@"), rest),
        None => (String::new(), rest),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, format!("?{CLASSIFIED}")),
        None => (rest, String::new()),
    };
    format!("{scheme}{separator}{user}{rest}{query}")
}

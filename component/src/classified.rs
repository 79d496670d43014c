//! Removes secrets from the command line.

/// Replaces a secret. This is upstream's word.
const CLASSIFIED: &str = "CLASSIFIED";

/// An argument without its secrets. `before` is the argument before it.
pub(crate) fn argument_without_secrets(before: &str, argument: &str) -> String {
    let flag_of = |word: &str| word.trim_start_matches('-').to_owned();
    match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => {
            format!("{flag}={}", without_secrets(&flag_of(flag), value))
        }
        _ => without_secrets(&flag_of(before), argument),
    }
}

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

//! Paths that every client may use: `--authorization-always-allow-paths`.

use std::collections::HashSet;

/// Checks the values of `--authorization-always-allow-paths`.
///
/// # Errors
/// A faulty value, in upstream's words, with the flag.
pub fn check_always_allow_paths(paths: &[String]) -> Result<(), String> {
    PathRules::new(paths).map(drop)
}

/// Whether every client may read `path` with these values of the flag.
pub fn is_always_allowed(paths: &[String], path: &str) -> bool {
    PathRules::new(paths).is_ok_and(|rules| rules.contain(path))
}

/// Exact paths and prefixes. A leading slash is optional, as in upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct PathRules {
    exact: HashSet<String>,
    prefixes: Vec<String>,
}

impl PathRules {
    /// Parses the rules: a path, or a prefix that ends with `*`.
    ///
    /// # Errors
    /// A `*` that is not at the end, in upstream's words.
    pub(super) fn new(rules: &[String]) -> Result<Self, String> {
        let mut read = Self::default();
        for rule in rules {
            let path = rule.strip_prefix('/').unwrap_or(rule);
            match path.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => read.prefixes.push(prefix.to_owned()),
                None if !path.contains('*') => {
                    read.exact.insert(path.to_owned());
                }
                _ => {
                    return Err(format!(
                        "only trailing * allowed in {path:?} (--authorization-always-allow-paths)"
                    ));
                }
            }
        }
        Ok(read)
    }

    pub(super) fn contain(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.contains(path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_and_beginnings() {
        for (rules, path, expected) in [
            (vec![], "/healthz", false),
            (vec!["/healthz"], "/healthz", true),
            (vec!["healthz"], "/healthz", true),
            (vec!["/healthz"], "/healthz/", false),
            (vec!["/healthz"], "/healthz/ping", false),
            (vec!["/healthz"], "/health", false),
            (vec!["/healthz/*"], "/healthz/ping", true),
            (vec!["/healthz/*"], "/healthz/", true),
            (vec!["/healthz/*"], "/healthz", false),
            (vec!["/healthz*"], "/healthzy", true),
            (vec!["*"], "/anything", true),
            (vec!["/*"], "/", true),
            (vec!["/"], "/", true),
            (vec![""], "/", true),
            (vec!["/"], "/healthz", false),
        ] {
            let rules: Vec<String> = rules.into_iter().map(str::to_owned).collect();
            assert_eq!(PathRules::new(&rules).expect("rules").contain(path), expected, "{rules:?} {path}");
        }
        for wrong in ["/a*b", "**", "*/a", "/a*/*"] {
            let error = PathRules::new(&[wrong.to_owned()]).expect_err(wrong);
            assert!(error.starts_with("only trailing * allowed in "), "{error}");
        }
    }
}

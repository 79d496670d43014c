//! Regular expressions for names of labels and annotations.

use regex_lite::Regex;

/// Regular expressions. As in Cluster API, one that matches a part of a name is enough; `^` and `$` are its ends.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<Regex>);

impl Patterns {
    /// Reads the values of a flag. `flag` is the name in the messages.
    ///
    /// # Errors
    /// Each value that is not a regular expression.
    pub fn parse(flag: &str, values: &[String]) -> Result<Self, Vec<String>> {
        let (mut patterns, mut faults) = (Vec::new(), Vec::new());
        for value in values {
            match Regex::new(value) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => {
                    faults.push(format!("{flag}: {value:?} is not a regular expression: {error}"));
                }
            }
        }
        if faults.is_empty() { Ok(Self(patterns)) } else { Err(faults) }
    }

    /// Whether one of them matches this name.
    pub fn match_name(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Patterns, Vec<String>> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        Patterns::parse("--flag", &values)
    }

    #[test]
    fn one_that_matches_is_enough() {
        let patterns = parse(&["^team\\.example\\.com/", "zone"]).expect("good");
        for (name, matches) in [
            ("team.example.com/a", true),
            ("myzone/b", true),
            ("other.team.example.com/a", false),
            ("", false),
        ] {
            assert_eq!(patterns.match_name(name), matches, "{name}");
        }
        assert!(!parse(&[]).expect("good").match_name("a"));
    }

    #[test]
    fn each_fault_is_named() {
        let faults = parse(&["(", "a", "["]).expect_err("two are bad");
        assert_eq!(faults.len(), 2);
        assert!(faults[0].starts_with("--flag: \"(\" is not a regular expression: "), "{faults:?}");
    }
}

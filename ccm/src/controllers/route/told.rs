//! What the log has said, so that it is said once.

use std::collections::HashSet;

/// Lines that are in the log, as long as they hold.
#[derive(Debug, Default)]
pub(super) struct Told(HashSet<String>);

impl Told {
    /// Whether this line is new. From now on it is not.
    pub(super) fn is_new(&mut self, line: &str) -> bool {
        !self.0.contains(line) && self.0.insert(line.to_owned())
    }

    /// Forgets the lines that do not hold any more. If one holds again, it is new.
    pub(super) fn keep_only(&mut self, lines: &HashSet<String>) {
        self.0.retain(|line| lines.contains(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_new_once_while_it_holds() {
        let mut told = Told::default();
        assert!(told.is_new("a") && told.is_new("b") && !told.is_new("a"));
        told.keep_only(&HashSet::from(["b".to_owned(), "c".to_owned()]));
        assert_eq!(told.0, HashSet::from(["b".to_owned()]));
        assert!(told.is_new("a") && !told.is_new("b"));
    }
}

//! What is in the log already, so that a trouble that lasts has one line and not one for each try.

use std::{borrow::Borrow, collections::BTreeSet};

/// The troubles that hold and are in the log. The caller logs a trouble when it begins, and that it is over when it ends.
///
/// ```
/// use basics::LogOnce;
///
/// let mut outage = LogOnce::default();
/// assert!(outage.changes_to(Some("refused")), "logged");
/// assert!(!outage.changes_to(Some("refused")), "it lasts");
/// assert!(outage.changes_to(Some("timed out")), "another one");
/// assert!(outage.changes_to(None), "works again");
/// assert!(!outage.changes_to(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOnce<T = String>(BTreeSet<T>);

impl<T> Default for LogOnce<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord> LogOnce<T> {
    /// Notes that a trouble holds. Returns whether it is to be logged.
    pub fn begins<Q>(&mut self, trouble: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: ToOwned<Owned = T> + Ord + ?Sized,
    {
        !self.0.contains(trouble) && self.0.insert(trouble.to_owned())
    }

    /// Notes that a trouble is over. Returns whether it was logged.
    pub fn ends<Q: Ord + ?Sized>(&mut self, trouble: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.remove(trouble)
    }

    /// Forgets the troubles that do not hold any more. One that holds again is logged again.
    pub fn keep(&mut self, holds: impl FnMut(&T) -> bool) {
        self.0.retain(holds);
    }

    /// Notes all troubles that hold. Returns those that are to be logged.
    pub fn change_to(&mut self, troubles: impl IntoIterator<Item = T>) -> Vec<T>
    where
        T: Clone,
    {
        let troubles: BTreeSet<T> = troubles.into_iter().collect();
        let new = troubles.difference(&self.0).cloned().collect();
        self.0 = troubles;
        new
    }

    /// The troubles that hold, sorted.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl LogOnce {
    /// Notes the only trouble that holds, if any. Returns whether that is to be logged: another trouble than before, or none after
    /// one.
    pub fn changes_to(&mut self, trouble: Option<&str>) -> bool {
        let is_same = self.0.first().map(String::as_str) == trouble && self.0.len() < 2;
        if !is_same {
            self.0 = trouble.into_iter().map(str::to_owned).collect();
        }
        !is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_logged_once_until_it_changes_or_is_over() {
        let mut logged = LogOnce::default();
        for (trouble, expected) in [
            (None, false),
            (Some("away"), true),
            (Some("away"), false),
            (Some("refused"), true),
            (Some("refused"), false),
            (None, true),
            (None, false),
            (Some("refused"), true),
        ] {
            assert_eq!(logged.changes_to(trouble), expected, "{trouble:?}");
        }
    }

    #[test]
    fn each_of_several_troubles_is_logged_once_while_it_holds() {
        let mut logged = LogOnce::<String>::default();
        assert!(logged.begins("a") && logged.begins("b") && !logged.begins("a"));
        logged.keep(|trouble| trouble == "b");
        assert!(logged.begins("a") && !logged.begins("b"));
        assert!(logged.ends("a") && !logged.ends("a"));
        assert_eq!(logged.change_to(["c".to_owned(), "b".to_owned()]), ["c"]);
        assert_eq!(logged.all().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(logged.change_to(Vec::new()), Vec::<String>::new());
        assert!(logged.begins("b"));
    }
}

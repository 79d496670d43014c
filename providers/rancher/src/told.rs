//! What the log tells: each trouble once, until it changes or is over.

/// The trouble that was told last, if it is not over.
#[derive(Debug, Default)]
pub(crate) struct Told(Option<String>);

impl Told {
    /// Whether this is news: another trouble than the one told before, or none after one. It counts as told from now on.
    pub(crate) fn is_news(&mut self, trouble: Option<&str>) -> bool {
        let is_news = self.0.as_deref() != trouble;
        self.0 = trouble.map(str::to_owned);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_until_it_changes_or_is_over() {
        let mut told = Told::default();
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
            assert_eq!(told.is_news(trouble), expected, "{trouble:?}");
        }
    }
}

//! The error for a text that is none of the words of an enumeration.

/// The text is none of the known words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {text:?}, known: {known}")]
pub struct UnknownWord {
    what: &'static str,
    text: String,
    known: String,
}

impl UnknownWord {
    /// Finds the value in `all` whose word is `text`.
    pub(crate) fn look_up<T: Copy>(
        what: &'static str,
        text: &str,
        all: &[T],
        word: impl Fn(T) -> &'static str,
    ) -> Result<T, Self> {
        all.iter().copied().find(|one| word(*one) == text).ok_or_else(|| {
            let known = all.iter().map(|one| word(*one)).collect::<Vec<_>>().join(", ");
            Self { what, text: text.to_owned(), known }
        })
    }
}

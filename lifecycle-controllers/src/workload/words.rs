//! Words of API servers that are not trusted.

use controller_kit::writes::WriteError;

/// The longest text that is taken over, in characters.
const LONGEST: usize = 300;

/// A text that another API server may have written, on one line and of a bounded length.
pub(super) fn words(text: &str) -> String {
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    plain.take(LONGEST).collect()
}

/// The error of a write with [`words`] of its API server.
pub(super) fn in_words(error: WriteError) -> WriteError {
    match error {
        WriteError::Stale(text) => WriteError::Stale(words(&text)),
        WriteError::Failed(text) => WriteError::Failed(words(&text)),
        WriteError::Gone => WriteError::Gone,
    }
}

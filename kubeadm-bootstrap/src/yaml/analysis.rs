//! How a text can be written.

/// The forms that a text allows outside of flow collections, which are never written here.
#[expect(clippy::struct_excessive_bools, reason = "each is one form, and the forms are independent")]
pub(super) struct Analysis {
    /// It has line breaks.
    pub(super) is_multiline: bool,
    /// Without quotes.
    pub(super) allows_plain: bool,
    /// In single quotes.
    pub(super) allows_single_quotes: bool,
    /// As a block of lines.
    pub(super) allows_block: bool,
}

impl Analysis {
    pub(super) fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self {
                is_multiline: false,
                allows_plain: true,
                allows_single_quotes: true,
                allows_block: false,
            };
        }
        let has_special = text.chars().any(|c| !is_printable(c) || is_other_break(c));
        let has_break = text.contains('\n');
        let ends_with_space = text.ends_with(' ');
        let break_before_space = text.contains("\n ");
        let space_before_break = text.contains(" \n");
        let has_blank_edge = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        let is_inline =
            !(has_blank_edge || break_before_space || space_before_break || has_special || has_break);
        Self {
            is_multiline: has_break || text.contains(is_other_break),
            allows_plain: is_inline && !has_indicators(text),
            allows_single_quotes: !(break_before_space || space_before_break || has_special),
            allows_block: !(ends_with_space || space_before_break || has_special),
        }
    }
}

/// Whether a reader would see more than a text: a comment, a key, a list, a document, ...
pub(crate) fn has_indicators(text: &str) -> bool {
    let is_blank = |c: char| c == ' ' || c == '\t';
    let mut previous_is_blank = true;
    let mut rest = text.chars();
    let begins_document = text.starts_with("---") || text.starts_with("...");
    let begins_with_indicator =
        text.starts_with(['#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`']);
    if begins_document || begins_with_indicator {
        return true;
    }
    let mut is_first = true;
    while let Some(c) = rest.next() {
        let next_is_blank = rest.clone().next().is_none_or(is_blank);
        let is_indicator = match c {
            ':' => next_is_blank,
            '?' | '-' => is_first && next_is_blank,
            '#' => previous_is_blank,
            _ => false,
        };
        if is_indicator {
            return true;
        }
        previous_is_blank = is_blank(c) || c == '\n' || is_other_break(c);
        is_first = false;
    }
    false
}

/// Whether Go's writer of YAML leaves the character as it is. It escapes tabs and everything beyond 16 bits.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// The line breaks besides `\n`. A reader of YAML 1.1 takes them for the end of a line.
pub(super) fn is_other_break(c: char) -> bool {
    matches!(c, '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

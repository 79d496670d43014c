//! Texts of others in a cloud-config. Each stays in its place, whatever it contains.

use basics::go::quoted;

use crate::yaml::has_indicators;

/// The indentation of the content of a file.
const INDENT: usize = 6;

/// A text as a value, as a key or as an item of a list.
///
/// It stands without quotes where a reader takes it for one scalar, as Cluster API writes it: `1` is a number then. A text in
/// quotes of its own stays as it is too, since Cluster API's users have to quote themselves. White space around it has no
/// meaning without quotes, and is left out.
pub(super) fn scalar(text: &str) -> String {
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r']);
    if trimmed.is_empty() {
        return if text.is_empty() { String::new() } else { "''".to_owned() };
    }
    if !trimmed.chars().all(is_inline) {
        return quoted(trimmed);
    }
    if !has_indicators(trimmed) || is_quoted(trimmed) {
        return trimmed.to_owned();
    }
    format!("'{}'", trimmed.replace('\'', "''"))
}

/// A text in single quotes, or in double quotes if it has characters that need escapes.
pub(super) fn in_single_quotes(text: &str) -> String {
    if text.chars().all(is_inline) { format!("'{}'", text.replace('\'', "''")) } else { quoted(text) }
}

/// Whether the character may stand within a line: no control character, no line break, no tab.
fn is_inline(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
        || c > '\u{ffff}'
}

/// Whether the text is one scalar in quotes, and nothing else.
fn is_quoted(text: &str) -> bool {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inside) = inside('\'') {
        return !inside.replace("''", "").contains('\'');
    }
    let Some(inside) = inside('"') else { return false };
    // Escapes other than these two are rare, and need a reader of YAML to check.
    let without_escapes = inside.replace("\\\\", "").replace("\\\"", "");
    !without_escapes.contains(['"', '\\'])
}

/// The content of a file after its key: a block of lines, or one quoted text if a block cannot hold it.
pub(super) fn block(content: &str) -> String {
    if !is_block(content) {
        return quoted(content);
    }
    // A reader takes the indentation of the first line for that of the block, unless it is given.
    let hint = if content.trim_start_matches('\n').starts_with(' ') { "2" } else { "" };
    format!("|{hint}\n{}", indented(content))
}

/// Each line with the indentation of a content.
pub(super) fn indented(content: &str) -> String {
    let indent = " ".repeat(INDENT);
    let line_break = format!("\n{indent}");
    format!("{indent}{}", content.replace('\n', &line_break))
}

/// Whether the text can be a block: it has no control characters, and no line breaks after which a line would have no
/// indentation.
fn is_block(content: &str) -> bool {
    let mut rest = content.chars();
    while let Some(c) = rest.next() {
        let is_allowed = match c {
            '\n' | '\t' => true,
            '\r' => rest.as_str().starts_with('\n'),
            c => is_inline(c) || c == '\u{feff}',
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

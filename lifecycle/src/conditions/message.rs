//! How messages of conditions are put together.

use std::fmt::Write as _;

/// A message behind a title such as `* Machine one:`. One of several lines, or one with bullets, is below it and indented.
pub(super) fn below(title: &str, message: &str) -> String {
    let mut text = title.to_owned();
    if !message.contains('\n') && !has_bullet(message) {
        text.push(' ');
        text.push_str(message);
        return text;
    }
    let all_have_bullets = message.split('\n').all(has_bullet);
    for line in message.split('\n') {
        let indent = match (all_have_bullets, has_bullet(line)) {
            (true, _) => "  ",
            (false, true) => "    ",
            (false, false) => "  * ",
        };
        text.push('\n');
        text.push_str(indent);
        text.push_str(line);
    }
    text
}

/// Whether a star is followed by white space, anywhere.
fn has_bullet(text: &str) -> bool {
    text.match_indices('*').any(|(at, _)| text[at + 1..].starts_with([' ', '\t', '\n', '\r', '\x0c']))
}

/// The kind, in the plural if there are several.
pub(super) fn counted(kind: &str, count: usize) -> String {
    if count == 1 {
        return kind.to_owned();
    }
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if ["s", "x", "z", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// How many objects of a message are named.
const NAMED: usize = 3;

/// The first names of these, and how many more there are.
pub(crate) fn names(all: &[&str]) -> String {
    first_names(all, NAMED)
}

/// The first so many names of these, and how many more there are.
pub(crate) fn first_names(all: &[&str], most: usize) -> String {
    let mut text = all[..all.len().min(most)].join(", ");
    if all.len() > most {
        let _ = write!(text, ", ... ({} more)", all.len() - most);
    }
    text
}

/// The title of a message of these objects.
pub(super) fn title(kind: &str, of: &[&str]) -> String {
    format!("* {} {}:", counted(kind, of.len()), names(of))
}

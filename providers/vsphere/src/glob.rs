//! Names of objects in vCenter: how they are escaped, and patterns of them.

/// A name as the user typed it: vCenter escapes three characters in names.
pub(crate) fn unescaped(name: &str) -> Box<str> {
    if !name.contains('%') {
        return name.into();
    }
    let name = name.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\");
    name.replace("%25", "%").into()
}

/// Whether a name matches a pattern, as Go's `path.Match` says. A malformed pattern matches nothing.
pub(crate) fn matches_path_part(pattern: &str, name: &str) -> bool {
    tokens(pattern).is_some_and(|tokens| is_match(&tokens, name))
}

/// A part of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// `*`.
    Any,
    /// `?`.
    One,
    Char(char),
    /// `[a-z]`, or `[^a-z]`.
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Token {
    fn takes(&self, found: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(wanted) => *wanted == found,
            Self::Class { is_negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&found)) != *is_negated
            }
        }
    }
}

fn is_match(tokens: &[Token], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut from) = (0, 0);
    // where to go on after the last star matched one character more
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match tokens.get(at) {
            Some(Token::Any) => {
                star = Some((at, from));
                at += 1;
            }
            Some(token) if token.takes(name[from]) => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((place, matched)) => {
                    star = Some((place, matched + 1));
                    at = place + 1;
                    from = matched + 1;
                }
                None => return false,
            },
        }
    }
    tokens[at..].iter().all(|token| *token == Token::Any)
}

/// The parts of a pattern of Go's `path.Match`. `None` where it is malformed.
fn tokens(pattern: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = pattern.chars().peekable();
    while let Some(one) = rest.next() {
        tokens.push(match one {
            '*' => Token::Any,
            '?' => Token::One,
            '\\' => Token::Char(rest.next()?),
            '[' => {
                let is_negated = rest.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                while ranges.is_empty() || rest.peek() != Some(&']') {
                    let from = class_char(&mut rest)?;
                    let to = if rest.next_if_eq(&'-').is_some() { class_char(&mut rest)? } else { from };
                    ranges.push((from, to));
                }
                rest.next();
                Token::Class { is_negated, ranges }
            }
            other => Token::Char(other),
        });
    }
    Some(tokens)
}

/// A character of a class. `None` where it is missing.
fn class_char(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_parts_of_paths() {
        for (pattern, text, expected) in [
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a?c", "abc", true),
            ("a*", "ab/c", true),
            ("", "", true),
            ("a", "A", false),
            ("*b*d", "abcd", true),
            ("*b*d", "abce", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[a-cx]", "x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a[", "a[", false),
            ("[]a]", "]", false),
            ("[a-]", "a", false),
            ("a\\", "a", false),
        ] {
            assert_eq!(matches_path_part(pattern, text), expected, "{pattern:?} {text:?}");
        }
    }
}

//! Splits Rust's source into tokens, without comments.

/// The tokens of a source text. `::` is one token, and so is a string literal with its quotes. A character
/// literal becomes a single quote.
pub(crate) fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => comment(rest),
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                let (token, length) = token(rest, first);
                tokens.push(token);
                length
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// The token that begins here, and its length in the source.
fn token(rest: &str, first: char) -> (&str, usize) {
    if let Some((begin, end)) = text(rest) {
        return (&rest[begin..end], end);
    }
    if first == '\'' {
        // A character literal ends with a quote. A lifetime and a label do not.
        let mut chars = rest[1..].char_indices();
        return match (chars.next(), chars.next()) {
            (Some((_, '\\')), _) => ("'", rest[3..].find('\'').map_or(rest.len(), |end| end + 4)),
            (Some(_), Some((at, '\''))) => ("'", at + 2),
            _ => ("'", 1),
        };
    }
    let length = match first {
        _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        _ if rest.starts_with("::") => 2,
        _ => first.len_utf8(),
    };
    (&rest[..length], length)
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the opening quote of a string literal is that begins here, such as `"a"`, `b"a"`, `r#"a"#`, and
/// where the literal ends.
fn text(rest: &str) -> Option<(usize, usize)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let behind = rest.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        behind.is_some_and(|behind| behind.starts_with('"'))
    })?;
    let behind = &rest[prefix.len()..];
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let is_raw = prefix.ends_with('r');
    if hashes > 0 && !is_raw {
        return None;
    }
    let begin = prefix.len() + hashes + 1;
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        let end = rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len());
        return Some((begin - 1, end));
    }
    let mut escaped = false;
    for (at, c) in rest[begin..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((begin - 1, begin + at + 1)),
            _ => {}
        }
    }
    Some((begin - 1, rest.len()))
}

/// The length of the comment that begins here. Comments can be nested.
fn comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Removes what is compiled only for tests. Returns the other tokens and the names of the modules that are
/// removed.
pub(crate) fn without_tests<'s>(tokens: &[&'s str]) -> (Vec<&'s str>, Vec<&'s str>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let is_attribute = tokens[at] == "#" && tokens.get(at + 1) == Some(&"[");
        let end = if is_attribute { closed(tokens, at + 1) } else { at };
        let words = &tokens[at..end];
        let is_cfg = words.get(2) == Some(&"cfg") && !words.contains(&"not");
        if is_cfg && words.iter().any(|word| ["test", "doctest"].contains(word)) {
            let mut head = tokens[end..].iter().take_while(|token| ![";", "{"].contains(*token));
            if head.any(|token| *token == "mod") {
                modules.extend(head.next());
            }
            at = end_of_item(tokens, end);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    (kept, modules)
}

/// The place after the bracket that closes the one at `open`.
fn closed(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The place after the item, expression or field that begins at `at`.
fn end_of_item(tokens: &[&str], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at] {
            "{" => return closed(tokens, at),
            "(" | "[" => at = closed(tokens, at),
            ";" | "," => return at + 1,
            "}" | ")" => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_hide_nothing_behind_them() {
        let source = "use a::b; // c::d\n/* e /* f */ g */ let x: &'x str = \"h::i\\\"\"; r#\"j\"k\"# 'l' '\\'' '\\u{1}' b'{' m";
        let expected = [
            "use",
            "a",
            "::",
            "b",
            ";",
            "let",
            "x",
            ":",
            "&",
            "'",
            "x",
            "str",
            "=",
            "\"h::i\\\"\"",
            ";",
            "\"j\"k\"#",
            "'",
            "'",
            "'",
            "b",
            "'",
            "m",
        ];
        assert_eq!(tokens(source), expected);
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let source = "mod a; #[cfg(test)] #[path = \"d/b.rs\"] mod b; #[cfg(test)] mod tests { use x::y; } #[cfg(not(test))] fn c() {} \
                      #[cfg(all(test, unix))] fn d(e: [u8; 3]) -> f::G { h() } struct I;";
        let all = tokens(source);
        let (kept, modules) = without_tests(&all);
        assert_eq!(kept.join(" "), "mod a ; # [ cfg ( not ( test ) ) ] fn c ( ) { } struct I ;");
        assert_eq!(modules, ["b", "tests"]);
    }
}

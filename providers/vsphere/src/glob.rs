//! Names of objects in vCenter: how they are escaped, and patterns of them with `*` and `?`.

/// A name as the user typed it: vCenter escapes three characters in names.
pub(crate) fn unescaped(name: &str) -> Box<str> {
    if !name.contains('%') {
        return name.into();
    }
    let name = name.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\");
    name.replace("%25", "%").into()
}

/// Whether a name matches a pattern in which `*` stands for any characters and `?` for one.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut from) = (0, 0);
    // where to go on after the last star matched one character more
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&one) if one == '?' || one == name[from] => {
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
    pattern[at..].iter().all(|one| *one == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*b*d", "abcbcd", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}

//! The words of a condition about a log. Pure.

mod secrets;

use cloudprovider::machines::BootstrapData;

use self::secrets::Secrets;

/// How many lines are quoted at most: the last ones.
const MAX_LINES: usize = 10;

/// How many characters of a line are quoted at most.
const MAX_LINE: usize = 160;

/// How many bytes a quotation has at most.
const MAX_BYTES: usize = 1024;

/// Stands between two lines.
const SEPARATOR: &str = " | ";

/// The place of lines that are left out.
const LEFT_OUT: &str = "(left out: it may have secrets)";

/// The last lines of a console's output, fit for a condition. `None` if there is nothing in it that may be
/// quoted.
///
/// Control characters and escape sequences are gone. Lines that may have secrets are left out, `data` among
/// them. So is a last line without an end, which may be the beginning of anything.
pub(crate) fn excerpt(log: &[u8], data: &BootstrapData) -> Option<String> {
    let secrets = Secrets::of(data)?;
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &log[..end]);
    let clean = without_escapes(&String::from_utf8_lossy(whole));
    let lines: Vec<String> =
        // a tab stands between words
        clean.lines().map(|line| line.replace('\t', " ").chars().filter(|one| !one.is_control()).collect()).collect();
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let hidden = secrets.find_in(&lines);
    let mut quoted: Vec<String> = Vec::new();
    let mut bytes = 0;
    for (line, is_hidden) in lines.iter().zip(&hidden).rev() {
        // one place for many lines
        if *is_hidden && quoted.last().is_some_and(|last| last == LEFT_OUT) {
            continue;
        }
        let line = if *is_hidden { LEFT_OUT.to_owned() } else { line.chars().take(MAX_LINE).collect() };
        bytes += line.len() + SEPARATOR.len();
        if quoted.len() == MAX_LINES || bytes > MAX_BYTES {
            break;
        }
        quoted.push(line);
    }
    quoted.reverse();
    (!quoted.is_empty()).then(|| quoted.join(SEPARATOR))
}

/// The text without the escape sequences of terminals.
fn without_escapes(text: &str) -> String {
    const ESCAPE: char = '\u{1b}';
    const BELL: char = '\u{7}';
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(one) = chars.next() {
        match one {
            ESCAPE => match chars.next() {
                // ends with a letter or one of a few signs
                Some('[') => while chars.next().is_some_and(|part| !('@'..='~').contains(&part)) {},
                // a title, up to the bell or the next escape
                Some(']') => {
                    while chars.next_if(|part| *part != BELL && *part != ESCAPE && *part != '\n').is_some() {}
                }
                Some('(' | ')') => drop(chars.next()),
                _ => {}
            },
            // a line that is written over: what stands behind it is kept
            '\r' => clean.push('\n'),
            _ => clean.push(one),
        }
    }
    clean
}

#[cfg(test)]
mod tests;

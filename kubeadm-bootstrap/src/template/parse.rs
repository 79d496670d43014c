//! The reader of templates.

use super::expression::{Expression, Field, Function};
use super::node::Node;

/// How deep conditions and parentheses may be nested.
const DEEPEST: usize = 32;
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// A piece of the template: a text, or the inside of an action.
enum Piece<'a> {
    Text(&'a str),
    Action(&'a str),
}

/// What ended a list of nodes.
enum End<'a> {
    Template,
    /// `end`.
    Closed,
    /// `else`, with the condition of an `else if`.
    Else(Option<&'a str>),
}

pub(super) fn template(text: &str) -> Result<Vec<Node>, String> {
    let mut pieces = pieces(text)?.into_iter();
    match nodes(&mut pieces, 0)? {
        (nodes, End::Template) => Ok(nodes),
        (_, End::Closed) => Err("an {{end}} ends nothing".to_owned()),
        (_, End::Else(_)) => Err("an {{else}} belongs to nothing".to_owned()),
    }
}

/// Splits the template. Marks have trimmed the texts, and comments are gone.
fn pieces(mut rest: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut trims_next = false;
    loop {
        let (text, action) = match rest.split_once("{{") {
            Some((text, action)) => (text, Some(action)),
            None => (rest, None),
        };
        let text = if trims_next { text.trim_start_matches(SPACES) } else { text };
        let Some(action) = action else {
            pieces.push(Piece::Text(text));
            return Ok(pieces);
        };
        let trimmed = action.strip_prefix('-').filter(|inside| inside.starts_with(SPACES));
        let text = if trimmed.is_some() { text.trim_end_matches(SPACES) } else { text };
        pieces.push(Piece::Text(text));
        let inside = trimmed.unwrap_or(action).trim_start_matches(SPACES);
        let end = if let Some(comment) = inside.strip_prefix("/*") {
            let end = comment.find("*/").ok_or("a comment has no end")?;
            rest = &comment[end + 2..];
            let after = rest.trim_start_matches(SPACES);
            trims_next = after.len() < rest.len() && after.starts_with("-}}");
            let after = if trims_next { &after[1..] } else { rest };
            rest = after.strip_prefix("}}").ok_or("an action goes on after a comment")?;
            continue;
        } else {
            end_of_action(inside).ok_or("an action has no end")?
        };
        let (inside, after) = inside.split_at(end);
        rest = &after[2..];
        let without_mark = inside.strip_suffix('-').filter(|inside| inside.ends_with(SPACES));
        trims_next = without_mark.is_some();
        pieces.push(Piece::Action(without_mark.unwrap_or(inside).trim_matches(SPACES)));
    }
}

/// Where the action's `}}` begins, outside of texts in quotes.
fn end_of_action(inside: &str) -> Option<usize> {
    let mut rest = inside.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => loop {
                match rest.next()?.1 {
                    '\\' => {
                        rest.next()?;
                    }
                    '"' => break,
                    _ => {}
                }
            },
            '`' => while rest.next()?.1 != '`' {},
            '}' if inside[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
    }
    None
}

fn nodes<'a>(
    pieces: &mut impl Iterator<Item = Piece<'a>>,
    depth: usize,
) -> Result<(Vec<Node>, End<'a>), String> {
    if depth > DEEPEST {
        return Err(format!("conditions are nested more than {DEEPEST} deep"));
    }
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.next() {
        let action = match piece {
            Piece::Text(text) => {
                if !text.is_empty() {
                    nodes.push(Node::Text(text.to_owned()));
                }
                continue;
            }
            Piece::Action(action) => action,
        };
        let (word, rest) = word(action);
        match word {
            "end" if rest.is_empty() => return Ok((nodes, End::Closed)),
            "else" if rest.is_empty() => return Ok((nodes, End::Else(None))),
            "else" => match self::word(rest) {
                ("if", condition) => return Ok((nodes, End::Else(Some(condition)))),
                _ => return Err("after {{else there may be only if".to_owned()),
            },
            "if" => nodes.push(condition(pieces, rest, false, depth)?),
            "with" => nodes.push(condition(pieces, rest, true, depth)?),
            _ => nodes.push(Node::Output(expression(action)?)),
        }
    }
    Ok((nodes, End::Template))
}

fn condition<'a>(
    pieces: &mut impl Iterator<Item = Piece<'a>>,
    text: &str,
    rebinds: bool,
    depth: usize,
) -> Result<Node, String> {
    let condition = expression(text)?;
    let (then, mut end) = nodes(pieces, depth + 1)?;
    let mut otherwise = Vec::new();
    if let End::Else(next) = end {
        match next {
            // an `else if` ends with the `end` of the whole
            Some(next) => {
                otherwise.push(self::condition(pieces, next, false, depth + 1)?);
                end = End::Closed;
            }
            None => (otherwise, end) = nodes(pieces, depth + 1)?,
        }
    }
    match end {
        End::Closed => Ok(Node::Condition { rebinds, condition, then, otherwise }),
        End::Template => Err("an {{if}} has no {{end}}".to_owned()),
        End::Else(_) => Err("an {{if}} has two {{else}}".to_owned()),
    }
}

/// The first word, and the rest after white space.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(SPACES))
}

fn expression(text: &str) -> Result<Expression, String> {
    let mut rest = text.trim_matches(SPACES);
    let expression = call_or_operand(&mut rest, 0)?;
    if rest.is_empty() { Ok(expression) } else { Err(not_understood()) }
}

fn not_understood() -> String {
    "an action of the template is not supported".to_owned()
}

fn call_or_operand(rest: &mut &str, depth: usize) -> Result<Expression, String> {
    if depth > DEEPEST {
        return Err(format!("parentheses are nested more than {DEEPEST} deep"));
    }
    let (name, after) = word(rest);
    let Some(function) = Function::named(name) else { return operand(rest, depth) };
    *rest = after;
    let mut arguments = Vec::new();
    while !rest.is_empty() && !rest.starts_with(')') {
        arguments.push(operand(rest, depth)?);
        *rest = rest.trim_start_matches(SPACES);
    }
    if function.takes(arguments.len()) {
        Ok(Expression::Call(function, arguments))
    } else {
        Err(format!("{name} has the wrong number of arguments"))
    }
}

fn operand(rest: &mut &str, depth: usize) -> Result<Expression, String> {
    if let Some(inside) = rest.strip_prefix('(') {
        *rest = inside.trim_start_matches(SPACES);
        let expression = call_or_operand(rest, depth + 1)?;
        *rest = rest.trim_start_matches(SPACES).strip_prefix(')').ok_or("a parenthesis is not closed")?;
        return Ok(expression);
    }
    if let Some(inside) = rest.strip_prefix('`') {
        let (text, after) = inside.split_once('`').ok_or_else(not_understood)?;
        *rest = after;
        return Ok(Expression::Text(text.to_owned()));
    }
    if let Some(inside) = rest.strip_prefix('"') {
        return quoted(inside, rest);
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
    let (path, after) = rest.split_at(end);
    *rest = after;
    match path {
        "." => Ok(Expression::Dot),
        ".controlPlane" => Ok(Expression::Field(Field::ControlPlane)),
        ".version" => Ok(Expression::Field(Field::Version)),
        ".controlPlane.version" => Ok(Expression::Version),
        _ if path.starts_with('.') => Err("the only variable is .controlPlane.version".to_owned()),
        _ => Err(not_understood()),
    }
}

fn quoted<'a>(inside: &'a str, rest: &mut &'a str) -> Result<Expression, String> {
    let mut text = String::new();
    let mut characters = inside.chars();
    loop {
        match characters.next().ok_or_else(not_understood)? {
            '"' => break,
            '\\' => text.push(match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(c @ ('\\' | '"')) => c,
                _ => return Err("an escape in a text of the template is not supported".to_owned()),
            }),
            '\n' => return Err("a text of the template has a line break".to_owned()),
            c => text.push(c),
        }
    }
    *rest = characters.as_str();
    Ok(Expression::Text(text))
}

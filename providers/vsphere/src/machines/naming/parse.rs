//! Reads a naming template, in the syntax of Go's text/template.

use super::functions::{Function, Value};

/// The longest template, in bytes.
const MAX_LENGTH: usize = 4096;

/// How deeply parentheses and conditions are nested at most.
const MAX_DEPTH: usize = 16;

/// Words of the language that make no sense for a name.
const NOT_SUPPORTED: [&str; 7] = ["with", "range", "define", "template", "block", "break", "continue"];

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    Action(Pipeline),
    /// `if`, each `else if`, and what is under `else`.
    Choice {
        branches: Vec<(Pipeline, Vec<Self>)>,
        otherwise: Vec<Self>,
    },
}

/// The value of each command is the last argument of the next one.
pub(super) type Pipeline = Vec<Command>;

/// A value, or a function with its arguments.
pub(super) type Command = Vec<Operand>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Value(Value),
    /// A field of the data, as it is written.
    Field(String),
    Function(Function),
    Nested(Pipeline),
}

/// Reads a template.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(template: &str) -> Result<Vec<Node>, String> {
    if template.len() > MAX_LENGTH {
        return Err(format!("it has more than {MAX_LENGTH} characters"));
    }
    if !template.is_ascii() {
        return Err("it has characters that are not ASCII, and no name has".to_owned());
    }
    let mut tree = Tree::default();
    let (mut rest, mut is_trimmed) = (template, false);
    while let Some((text, action)) = rest.split_once("{{") {
        let text = if is_trimmed { text.trim_start_matches(is_space) } else { text };
        let (action, trims_left) = without_left_marker(action);
        tree.add(Node::Text(if trims_left { text.trim_end_matches(is_space) } else { text }.to_owned()));
        if let Some(text) = comment(action, trims_left) {
            (rest, is_trimmed) = after_comment(text)?;
            continue;
        }
        let (inside, after) = action_of(action)?;
        let (inside, trims_right) = without_right_marker(inside);
        tree.take(inside)?;
        (rest, is_trimmed) = (after, trims_right);
    }
    let text = if is_trimmed { rest.trim_start_matches(is_space) } else { rest };
    tree.add(Node::Text(text.to_owned()));
    tree.end()
}

/// Without `-` and the space after it, which say that white space before the action goes. The space stays.
fn without_left_marker(action: &str) -> (&str, bool) {
    match action.strip_prefix('-') {
        Some(inside) if inside.starts_with(is_space) => (inside, true),
        _ => (action, false),
    }
}

/// Without `-` and the space before it, which say that white space after the action goes.
fn without_right_marker(inside: &str) -> (&str, bool) {
    match inside.strip_suffix('-') {
        Some(inside) if inside.ends_with(is_space) => (inside, true),
        _ => (inside, false),
    }
}

fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\r' | '\n')
}

/// The text of a comment and everything after it, if the action is one. It stands right after `{{` or `{{- `.
fn comment(action: &str, trims_left: bool) -> Option<&str> {
    let action = if trims_left { action.strip_prefix(is_space)? } else { action };
    action.strip_prefix("/*")
}

/// What follows a comment, and whether white space goes from it.
fn after_comment(text: &str) -> Result<(&str, bool), String> {
    let (_, after) = text.split_once("*/").ok_or_else(|| "a comment has no end: */ is missing".to_owned())?;
    if let Some(rest) = after.strip_prefix("}}") {
        return Ok((rest, false));
    }
    let trimmed = after.strip_prefix(is_space).and_then(|after| after.strip_prefix("-}}"));
    trimmed.map(|rest| (rest, true)).ok_or_else(|| "a comment ends with */}} or */ -}}".to_owned())
}

/// The action up to its `}}`, which may be part of a quoted text, and what follows.
fn action_of(action: &str) -> Result<(&str, &str), String> {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, char) in action.char_indices() {
        match (quote, char) {
            (None, '"' | '`') => quote = Some(char),
            (None, '}') => {
                if let (Some(inside), Some(rest)) =
                    (action.get(..at), action.get(at..).and_then(|rest| rest.strip_prefix("}}")))
                {
                    return Ok((inside, rest));
                }
            }
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), close) if open == close && !is_escaped => quote = None,
            _ => {}
        }
        is_escaped = false;
    }
    Err(if quote.is_some() { "a quoted text has no end" } else { "{{ has no }}" }.to_owned())
}

/// The parts of a template as they come.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
    /// The conditions that are not closed, the innermost one last.
    open: Vec<Choice>,
}

#[derive(Debug)]
struct Choice {
    branches: Vec<(Pipeline, Vec<Node>)>,
    otherwise: Option<Vec<Node>>,
}

impl Tree {
    fn add(&mut self, node: Node) {
        if node == Node::Text(String::new()) {
            return;
        }
        let into = match self.open.last_mut() {
            None => &mut self.nodes,
            Some(Choice { otherwise: Some(otherwise), .. }) => otherwise,
            Some(Choice { branches, .. }) => match branches.last_mut() {
                Some((_, nodes)) => nodes,
                None => return,
            },
        };
        into.push(node);
    }

    /// Takes what is inside of an action.
    fn take(&mut self, inside: &str) -> Result<(), String> {
        let tokens = tokens(inside)?;
        let mut tokens = Tokens { all: &tokens };
        match tokens.first_word() {
            Some("if") => {
                if self.open.len() >= MAX_DEPTH {
                    return Err(format!("more than {MAX_DEPTH} conditions are nested"));
                }
                let condition = tokens.after_word().whole_pipeline()?;
                self.open.push(Choice { branches: vec![(condition, Vec::new())], otherwise: None });
            }
            Some("else") => {
                let mut rest = tokens.after_word();
                let Some(choice) = self.open.last_mut().filter(|choice| choice.otherwise.is_none()) else {
                    return Err("{{else}} belongs to no {{if}}".to_owned());
                };
                match rest.first_word() {
                    None if rest.all.is_empty() => choice.otherwise = Some(Vec::new()),
                    Some("if") => {
                        choice.branches.push((rest.after_word().whole_pipeline()?, Vec::new()));
                    }
                    _ => return Err("after {{else only if, or nothing, is supported".to_owned()),
                }
            }
            Some("end") => {
                if !tokens.after_word().all.is_empty() {
                    return Err("nothing stands after {{end".to_owned());
                }
                let Some(Choice { branches, otherwise }) = self.open.pop() else {
                    return Err("{{end}} belongs to no {{if}}".to_owned());
                };
                self.add(Node::Choice { branches, otherwise: otherwise.unwrap_or_default() });
            }
            Some(word) if NOT_SUPPORTED.contains(&word) => {
                return Err(format!("{word:?} is not supported; use if, else and end"));
            }
            _ => {
                let pipeline = tokens.whole_pipeline()?;
                self.add(Node::Action(pipeline));
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<Node>, String> {
        if self.open.is_empty() { Ok(self.nodes) } else { Err("{{if}} has no {{end}}".to_owned()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Space,
    Pipe,
    Open,
    Close,
    Text(String),
    Number(i64),
    /// Begins with a dot or a `$`.
    Field(&'a str),
    Word(&'a str),
}

fn tokens(mut rest: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let (token, after) = match first {
            _ if is_space(first) => (Token::Space, rest.trim_start_matches(is_space)),
            '|' => (Token::Pipe, behind(rest, 1)),
            '(' => (Token::Open, behind(rest, 1)),
            ')' => (Token::Close, behind(rest, 1)),
            '"' => quoted(behind(rest, 1))?,
            '`' => {
                let end = behind(rest, 1).split_once('`');
                let (text, after) = end.ok_or_else(|| "a quoted text has no end".to_owned())?;
                (Token::Text(text.to_owned()), after)
            }
            '.' | '$' => {
                let (field, after) = split(rest, |char| is_name(char) || char == '.' || char == '$');
                if first == '$' && !matches!(field.as_bytes(), [_] | [_, b'.', ..]) {
                    return Err(format!("{field}: variables are not supported"));
                }
                (Token::Field(field), after)
            }
            '+' | '-' | '0'..='9' => {
                let (number, after) = split(rest, |char| is_name(char) || matches!(char, '+' | '-' | '.'));
                let parsed = number.parse().map_err(|_| format!("{number} is no whole number"))?;
                (Token::Number(parsed), after)
            }
            _ if is_name(first) => {
                let (word, after) = split(rest, is_name);
                (Token::Word(word), after)
            }
            _ => return Err(format!("{first:?} has no meaning here")),
        };
        tokens.push(token);
        rest = after;
    }
    Ok(tokens)
}

fn behind(text: &str, length: usize) -> &str {
    text.get(length..).unwrap_or_default()
}

/// The characters that belong to it, and the rest.
fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|char: char| !belongs(char)).unwrap_or(text.len()))
}

/// A text up to its closing quote.
fn quoted(rest: &str) -> Result<(Token<'_>, &str), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((Token::Text(text), behind(rest, at + 1))),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, other)) => return Err(format!("\\{other} in a quoted text is not supported")),
                None => break,
            },
            other => text.push(other),
        }
    }
    Err("a quoted text has no end".to_owned())
}

/// What is left to be read of an action.
#[derive(Debug)]
struct Tokens<'t, 'a> {
    all: &'t [Token<'a>],
}

impl<'a> Tokens<'_, 'a> {
    fn skip_space(&mut self) {
        if let [Token::Space, rest @ ..] = self.all {
            self.all = rest;
        }
    }

    /// The word that it begins with.
    fn first_word(&mut self) -> Option<&'a str> {
        self.skip_space();
        match self.all {
            [Token::Word(word), ..] => Some(*word),
            _ => None,
        }
    }

    /// What follows the first word.
    fn after_word(&self) -> Self {
        let mut rest = Self { all: self.all.get(1..).unwrap_or_default() };
        rest.skip_space();
        rest
    }

    /// Everything that is left is one pipeline.
    fn whole_pipeline(mut self) -> Result<Pipeline, String> {
        let pipeline = self.pipeline(0)?;
        if self.all.is_empty() { Ok(pipeline) } else { Err("a ) belongs to no (".to_owned()) }
    }

    fn pipeline(&mut self, depth: usize) -> Result<Pipeline, String> {
        let mut pipeline = Vec::new();
        loop {
            let command = self.command(depth)?;
            // Only a function takes the value of the command before it.
            if !pipeline.is_empty() && !matches!(command.first(), Some(Operand::Function(_))) {
                return Err("a function is missing after |".to_owned());
            }
            pipeline.push(command);
            match self.all {
                [Token::Pipe, rest @ ..] => self.all = rest,
                _ => return Ok(pipeline),
            }
        }
    }

    fn command(&mut self, depth: usize) -> Result<Command, String> {
        let mut command = Vec::new();
        loop {
            self.skip_space();
            let [first, rest @ ..] = self.all else { break };
            if matches!(first, Token::Pipe | Token::Close) {
                break;
            }
            self.all = rest;
            command.push(self.operand(first, depth)?);
            if !matches!(self.all, [] | [Token::Space | Token::Pipe | Token::Close, ..]) {
                return Err("a space is missing between two values".to_owned());
            }
        }
        match &command[..] {
            [] => Err("a value is missing: {{ }}, ( ) or | has none".to_owned()),
            [Operand::Function(_), ..] | [_] => Ok(command),
            [..] => Err("only a function takes arguments".to_owned()),
        }
    }

    fn operand(&mut self, token: &Token<'a>, depth: usize) -> Result<Operand, String> {
        Ok(match token {
            Token::Text(text) => Operand::Value(Value::Text(text.clone())),
            Token::Number(number) => Operand::Value(Value::Number(*number)),
            Token::Field(field) => Operand::Field((*field).to_owned()),
            Token::Word(word @ ("true" | "false")) => Operand::Value(Value::Truth(*word == "true")),
            Token::Word(word) => Operand::Function(Function::named(word).ok_or_else(|| unknown(word))?),
            Token::Open => {
                if depth >= MAX_DEPTH {
                    return Err(format!("more than {MAX_DEPTH} parentheses are nested"));
                }
                let nested = self.pipeline(depth + 1)?;
                let [Token::Close, rest @ ..] = self.all else {
                    return Err("a ( has no )".to_owned());
                };
                self.all = rest;
                Operand::Nested(nested)
            }
            Token::Space | Token::Pipe | Token::Close => return Err("a value is missing".to_owned()),
        })
    }
}

fn unknown(word: &str) -> String {
    let known: Vec<_> = Function::ALL.iter().map(|(name, _)| *name).collect();
    format!("there is no function {word:?}; there are {}", known.join(", "))
}

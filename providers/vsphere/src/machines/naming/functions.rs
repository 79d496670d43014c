//! The functions of a naming template, with the rules of Go's text/template. Numbers count bytes: templates and names are ASCII.

use std::fmt;

/// What a piece of a template stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
}

impl Value {
    /// Whether a condition holds: nothing empty, not zero, not false.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Number(number) => *number != 0,
            Self::Truth(truth) => *truth,
        }
    }

    /// For people.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Truth(_) => "true or false",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Truth(truth) => write!(f, "{truth}"),
        }
    }
}

/// A function that a template may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    TrimSuffix,
    Trunc,
    Len,
    Slice,
    Print,
    Printf,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Not,
    And,
    Or,
}

impl Function {
    /// All of them, by their names. The first two are those of Cluster API Provider vSphere, the others Go's own.
    pub(super) const ALL: [(&'static str, Self); 15] = [
        ("trimSuffix", Self::TrimSuffix),
        ("trunc", Self::Trunc),
        ("len", Self::Len),
        ("slice", Self::Slice),
        ("print", Self::Print),
        ("printf", Self::Printf),
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("le", Self::Le),
        ("gt", Self::Gt),
        ("ge", Self::Ge),
        ("not", Self::Not),
        ("and", Self::And),
        ("or", Self::Or),
    ];

    /// The function with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(called, _)| *called == name).map(|(_, function)| *function)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| *name)
    }

    /// The value of a call.
    ///
    /// # Errors
    /// What is wrong with the arguments, beginning with the function's name.
    pub(super) fn call(self, arguments: &[Value]) -> Result<Value, String> {
        self.value(arguments).map_err(|why| format!("{}: {why}", self.name()))
    }

    fn value(self, arguments: &[Value]) -> Result<Value, String> {
        Ok(match (self, arguments) {
            (Self::TrimSuffix, [suffix, of]) => {
                let (suffix, of) = (text(suffix)?, text(of)?);
                Value::Text(of.strip_suffix(suffix).unwrap_or(of).to_owned())
            }
            (Self::Trunc, [length, of]) => Value::Text(trunc(number(length)?, text(of)?).to_owned()),
            (Self::Len, [of]) => Value::Number(i64::try_from(text(of)?.len()).unwrap_or(i64::MAX)),
            (Self::Slice, [of]) => Value::Text(text(of)?.to_owned()),
            (Self::Slice, [of, from]) => slice(text(of)?, number(from)?, None)?,
            (Self::Slice, [of, from, to]) => slice(text(of)?, number(from)?, Some(number(to)?))?,
            (Self::Print, all) => Value::Text(print(all)),
            (Self::Printf, [format, all @ ..]) => Value::Text(printf(text(format)?, all)?),
            (Self::Eq, [one, others @ ..]) if !others.is_empty() => Value::Truth(is_any(one, others)?),
            (Self::Ne, [one, other]) => Value::Truth(!is_any(one, std::slice::from_ref(other))?),
            (Self::Lt, [one, other]) => Value::Truth(is_less(one, other)?),
            (Self::Le, [one, other]) => Value::Truth(!is_less(other, one)?),
            (Self::Gt, [one, other]) => Value::Truth(is_less(other, one)?),
            (Self::Ge, [one, other]) => Value::Truth(!is_less(one, other)?),
            (Self::Not, [one]) => Value::Truth(!one.is_true()),
            (Self::And, all) => first_or_last(all, false)?,
            (Self::Or, all) => first_or_last(all, true)?,
            _ => return Err(format!("it is not called with {} arguments", arguments.len())),
        })
    }
}

fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(format!("{other} is {}, and a text is needed", other.kind())),
    }
}

fn number(value: &Value) -> Result<i64, String> {
    match value {
        Value::Number(number) => Ok(*number),
        other => Err(format!("{:?} is {}, and a number is needed", other.to_string(), other.kind())),
    }
}

/// The first characters, or with a negative number the last ones. A text that is not longer stays as it is.
fn trunc(length: i64, of: &str) -> &str {
    let count = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    if length >= 0 {
        return of.get(..count).unwrap_or(of);
    }
    of.len().checked_sub(count).and_then(|from| of.get(from..)).unwrap_or(of)
}

fn slice(of: &str, from: i64, to: Option<i64>) -> Result<Value, String> {
    let whole = i64::try_from(of.len()).unwrap_or(i64::MAX);
    let to = to.unwrap_or(whole);
    let bounds = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let part = bounds.and_then(|(from, to)| of.get(from..to));
    part.map(|part| Value::Text(part.to_owned()))
        .ok_or_else(|| format!("{of:?} has no characters from {from} to {to}"))
}

/// As Go's `fmt.Sprint`: a space between two of which neither is a text.
fn print(all: &[Value]) -> String {
    let is_text = |value: &Value| matches!(value, Value::Text(_));
    let mut printed = String::new();
    for (number, value) in all.iter().enumerate() {
        let before = number.checked_sub(1).and_then(|before| all.get(before));
        if before.is_some_and(|before| !is_text(before) && !is_text(value)) {
            printed.push(' ');
        }
        printed.push_str(&value.to_string());
    }
    printed
}

fn printf(format: &str, all: &[Value]) -> Result<String, String> {
    let (mut printed, mut values) = (String::new(), all.iter());
    let mut rest = format.chars();
    while let Some(char) = rest.next() {
        if char != '%' {
            printed.push(char);
            continue;
        }
        let verb = rest.next();
        if verb == Some('%') {
            printed.push('%');
            continue;
        }
        let mut value =
            || values.next().ok_or_else(|| format!("{format:?} has more verbs than there are values"));
        match verb {
            Some('s') => printed.push_str(text(value()?)?),
            Some('d') => printed.push_str(&number(value()?)?.to_string()),
            Some('v') => printed.push_str(&value()?.to_string()),
            _ => return Err(format!("{format:?} has verbs other than %s, %d, %v and %%")),
        }
    }
    match values.next() {
        None => Ok(printed),
        Some(_) => Err(format!("{format:?} has fewer verbs than there are values")),
    }
}

/// Whether one equals any of the others.
fn is_any(one: &Value, others: &[Value]) -> Result<bool, String> {
    for other in others {
        if one.kind() != other.kind() {
            return Err(not_comparable(one, other));
        }
        if one == other {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_less(one: &Value, other: &Value) -> Result<bool, String> {
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => Ok(one < other),
        (Value::Number(one), Value::Number(other)) => Ok(one < other),
        _ => Err(not_comparable(one, other)),
    }
}

fn not_comparable(one: &Value, other: &Value) -> String {
    format!("{} and {} cannot be compared", one.kind(), other.kind())
}

/// The first value that is as true as this, else the last one.
fn first_or_last(all: &[Value], truth: bool) -> Result<Value, String> {
    let found = all.iter().find(|value| value.is_true() == truth).or(all.last());
    found.cloned().ok_or_else(|| "it is not called with 0 arguments".to_owned())
}

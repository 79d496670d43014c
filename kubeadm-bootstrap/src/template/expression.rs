//! Expressions of templates and their values.

use std::cmp::Ordering;

/// An expression.
pub(super) enum Expression {
    /// The dot.
    Dot,
    /// `.controlPlane` or `.version` of the dot.
    Field(Field),
    /// `.controlPlane.version`.
    Version,
    Text(String),
    Call(Function, Vec<Self>),
}

/// A field by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    ControlPlane,
    Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Not,
    And,
    Or,
}

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            "not" => Self::Not,
            "and" => Self::And,
            "or" => Self::Or,
            _ => return None,
        })
    }

    /// Whether it takes so many arguments.
    pub(super) fn takes(self, arguments: usize) -> bool {
        match self {
            Self::Not => arguments == 1,
            Self::And | Self::Or => arguments >= 1,
            Self::Equal => arguments >= 2,
            _ => arguments == 2,
        }
    }
}

/// A value.
#[derive(Clone)]
pub(super) enum Value<'a> {
    /// The mapping of all variables.
    Root,
    /// The mapping `.controlPlane`.
    ControlPlane,
    Missing,
    Text(&'a str),
    Bool(bool),
}

impl Value<'_> {
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Root | Value::ControlPlane => true,
            Value::Missing => false,
            Value::Text(text) => !text.is_empty(),
            Value::Bool(value) => *value,
        }
    }

    pub(super) fn printed(&self) -> Result<String, String> {
        match self {
            Value::Text(text) => Ok((*text).to_owned()),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Root | Value::ControlPlane | Value::Missing => {
                Err("only .controlPlane.version can be written".to_owned())
            }
        }
    }
}

/// What is known where an expression stands.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    version: Option<&'a str>,
    dot: Dot<'a>,
}

#[derive(Clone, Copy)]
enum Dot<'a> {
    /// All variables. They are missing without a version.
    Root,
    ControlPlane,
    Text(&'a str),
}

impl<'a> Scope<'a> {
    pub(super) fn root(version: Option<&'a str>) -> Self {
        Self { version, dot: Dot::Root }
    }

    /// The scope inside of a `with`.
    pub(super) fn inside<'b>(&self, value: &Value<'b>) -> Result<Scope<'b>, String>
    where
        'a: 'b,
    {
        let dot = match value {
            Value::Root => Dot::Root,
            Value::ControlPlane => Dot::ControlPlane,
            Value::Text(text) => Dot::Text(text),
            Value::Bool(_) | Value::Missing => return Err("with needs .controlPlane or a text".to_owned()),
        };
        Ok(Scope { version: self.version, dot })
    }

    fn field(&self, field: Field) -> Result<Value<'a>, String> {
        match (self.dot, field, self.version) {
            (Dot::Root, Field::ControlPlane, Some(_)) => Ok(Value::ControlPlane),
            (Dot::Root, Field::ControlPlane, None) => Ok(Value::Missing),
            (Dot::ControlPlane, Field::Version, Some(version)) => Ok(Value::Text(version)),
            _ => Err("the only variable is .controlPlane.version".to_owned()),
        }
    }
}

impl Expression {
    pub(super) fn value<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>, String> {
        match self {
            Self::Dot => Ok(match scope.dot {
                Dot::Root => scope.version.map_or(Value::Missing, |_| Value::Root),
                Dot::ControlPlane => Value::ControlPlane,
                Dot::Text(text) => Value::Text(text),
            }),
            Self::Field(field) => scope.field(*field),
            Self::Version => match (scope.dot, scope.version) {
                (Dot::Root, Some(version)) => Ok(Value::Text(version)),
                (Dot::Root, None) => Err("the version of the control plane is not known".to_owned()),
                _ => Err("the only variable is .controlPlane.version".to_owned()),
            },
            Self::Text(text) => Ok(Value::Text(text)),
            Self::Call(function, arguments) => call(*function, arguments, scope),
        }
    }
}

fn call<'a>(function: Function, arguments: &'a [Expression], scope: Scope<'a>) -> Result<Value<'a>, String> {
    let text = |expression: &'a Expression| match expression.value(scope)? {
        Value::Text(text) => Ok(text),
        _ => Err("only texts can be compared".to_owned()),
    };
    // `and` and `or` stop at the first argument that decides
    if matches!(function, Function::And | Function::Or) {
        let mut last = Value::Missing;
        for argument in arguments {
            last = argument.value(scope)?;
            if last.is_true() == (function == Function::Or) {
                break;
            }
        }
        return Ok(last);
    }
    let Some((first, others)) = arguments.split_first() else { return Ok(Value::Missing) };
    if function == Function::Not {
        return Ok(Value::Bool(!first.value(scope)?.is_true()));
    }
    let first = text(first)?;
    let mut orders = Vec::with_capacity(others.len());
    for other in others {
        orders.push(first.cmp(text(other)?));
    }
    let is = |wanted: &[Ordering]| orders.iter().any(|order| wanted.contains(order));
    Ok(Value::Bool(match function {
        Function::Equal => is(&[Ordering::Equal]),
        Function::NotEqual => !is(&[Ordering::Equal]),
        Function::Less => is(&[Ordering::Less]),
        Function::LessOrEqual => is(&[Ordering::Less, Ordering::Equal]),
        Function::Greater => is(&[Ordering::Greater]),
        Function::GreaterOrEqual => is(&[Ordering::Greater, Ordering::Equal]),
        Function::Not | Function::And | Function::Or => false,
    }))
}

//! The text that a naming template gives for one machine.

use super::{
    functions::{Function, Value},
    parse::{Command, Node, Operand},
};

/// The fields that are the name of the Machine.
const NAME: [&str; 2] = [".machine.name", "$.machine.name"];

/// Adds what the parts of a template give for the Machine with this name.
///
/// # Errors
/// What cannot be done.
pub(super) fn evaluate(nodes: &[Node], machine: &str, text: &mut String) -> Result<(), String> {
    for node in nodes {
        match node {
            Node::Text(own) => text.push_str(own),
            Node::Action(of) => text.push_str(&pipeline(of, machine)?.to_string()),
            Node::Choice { branches, otherwise } => {
                let mut chosen = otherwise;
                for (condition, nodes) in branches {
                    if pipeline(condition, machine)?.is_true() {
                        chosen = nodes;
                        break;
                    }
                }
                evaluate(chosen, machine, text)?;
            }
        }
    }
    Ok(())
}

fn pipeline(commands: &[Command], machine: &str) -> Result<Value, String> {
    let mut last = None;
    for one in commands {
        last = Some(command(one, last, machine)?);
    }
    last.ok_or_else(|| "a value is missing".to_owned())
}

fn command(words: &[Operand], last: Option<Value>, machine: &str) -> Result<Value, String> {
    match words {
        [Operand::Function(function), arguments @ ..] => call(*function, arguments, last, machine),
        [one] => operand(one, machine),
        _ => Err("only a function takes arguments".to_owned()),
    }
}

fn call(
    function: Function,
    operands: &[Operand],
    last: Option<Value>,
    machine: &str,
) -> Result<Value, String> {
    let mut arguments = Vec::new();
    let given = operands.iter().map(|one| operand(one, machine)).chain(last.map(Ok));
    for argument in given {
        let argument = argument?;
        let decides = match function {
            Function::And => !argument.is_true(),
            Function::Or => argument.is_true(),
            _ => false,
        };
        arguments.push(argument);
        if decides {
            // What follows is not looked at.
            break;
        }
    }
    function.call(&arguments)
}

fn operand(of: &Operand, machine: &str) -> Result<Value, String> {
    match of {
        Operand::Value(value) => Ok(value.clone()),
        Operand::Field(field) if NAME.contains(&field.as_str()) => Ok(Value::Text(machine.to_owned())),
        Operand::Field(field) => Err(format!("there is no text {field}; the only one is .machine.name")),
        Operand::Function(function) => function.call(&[]),
        Operand::Nested(nested) => pipeline(nested, machine),
    }
}

//! The grammar of command lines, that of Go's pflag. All faults are reported, in pflag's words.
//!
//! The arguments are converted to the form `--name=value` before clap reads them. So Go's rules decide what
//! an argument is, while clap knows the flags, converts their values and prints the help.

use std::{any::TypeId, error::Error as _, ffi::OsString};

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind};

use super::{FeatureGates, VModule};

/// Why a command line cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CommandLineError {
    /// Help was asked for.
    #[error(transparent)]
    Help(clap::Error),
    /// All faults, in pflag's words where pflag has them.
    #[error("{}", .0.join("; "))]
    Faults(Vec<String>),
}

/// Parses `arguments`, the first of which is the program, for `command`. A subcommand can only be the first
/// argument after the program. `accumulating` are the program's own types of lists: if a flag of such a type
/// is given again, its value is added to the earlier ones.
pub fn read(
    command: Command,
    arguments: Vec<OsString>,
    accumulating: &[TypeId],
) -> Result<ArgMatches, CommandLineError> {
    let mut command = finished(command);
    let mut arguments = arguments.into_iter().peekable();
    let program = arguments.next().and_then(|program| program.into_string().ok());
    let mut canonical = vec![program.unwrap_or_else(|| command.get_name().to_owned())];
    let subcommand = arguments.peek().and_then(|first| command.find_subcommand(first)).cloned();
    if let Some(subcommand) = &subcommand {
        arguments.next();
        canonical.push(subcommand.get_name().to_owned());
    }
    let beginning = canonical.len();
    let reader = subcommand.as_ref().unwrap_or(&command);
    let (good, mut faults) = self::canonical(reader, arguments, accumulating);
    canonical.extend(good);
    match command.try_get_matches_from_mut(&canonical) {
        Ok(matches) if faults.is_empty() => return Ok(matches),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return Err(CommandLineError::Help(error)),
        Err(error) => {
            let of_values = value_faults(&command, &canonical, beginning);
            if faults.is_empty() && of_values.is_empty() {
                // A fault that only clap reports, such as a missing positional argument.
                faults.push(first_words(&error));
            }
            faults.extend(of_values);
        }
    }
    Err(CommandLineError::Faults(faults))
}

/// The command in the form that clap needs: a boolean flag needs no value, and a value must follow `=`.
pub fn finished(command: Command) -> Command {
    let optional = |arg: Arg| {
        if is_boolean(&arg) {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        } else {
            arg
        }
    };
    command.args_override_self(true).max_term_width(110).mut_args(optional).mut_subcommands(finished)
}

/// Whether a flag without a value counts as true. `--version` does too.
fn is_boolean(arg: &Arg) -> bool {
    let value = arg.get_value_parser().type_id();
    !arg.is_positional()
        && matches!(arg.get_action(), ArgAction::Set)
        && (value == TypeId::of::<bool>() || value == TypeId::of::<super::VersionRequest>())
}

/// Whether a flag takes no value at all.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// Whether the values of a repeated flag are added up to a list.
fn accumulates(arg: &Arg, accumulating: &[TypeId]) -> bool {
    let value = arg.get_value_parser().type_id();
    value == TypeId::of::<Vec<String>>()
        || value == TypeId::of::<Vec<i32>>()
        || value == TypeId::of::<Vec<VModule>>()
        || value == TypeId::of::<FeatureGates>()
        || accumulating.iter().any(|own| value == *own)
}

/// Converts the arguments to clap's form, and reports all that are wrong.
fn canonical(
    command: &Command,
    arguments: impl Iterator<Item = OsString>,
    accumulating: &[TypeId],
) -> (Vec<String>, Vec<String>) {
    let mut faults = Vec::new();
    let mut arguments = arguments.map(|argument| {
        argument.into_string().map_err(|other| format!("the argument {} is not UTF-8", other.display()))
    });
    let mut flags: Vec<(String, String)> = Vec::new();
    let mut positional = Vec::new();
    let mut wants_help = false;
    let mut only_positional = false;
    while let Some(argument) = arguments.next() {
        let argument = match argument {
            Ok(argument) => argument,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        if only_positional || argument == "-" || !argument.starts_with('-') {
            positional.push(argument);
            continue;
        }
        if argument == "--" {
            only_positional = true;
            continue;
        }
        let read = match argument.strip_prefix("--") {
            Some(text) => long(command, text),
            None => short(command, &argument),
        };
        match read {
            Ok(Given::Help) => wants_help = true,
            Ok(Given::Flag(name, Some(value))) => flags.push((name, value)),
            Ok(Given::Flag(name, None)) => match arguments.next() {
                Some(Ok(value)) => flags.push((name, value)),
                Some(Err(fault)) => faults.push(fault),
                None if argument.starts_with("--") => {
                    faults.push(format!("flag needs an argument: {argument}"));
                }
                None => faults.push(format!("flag needs an argument: '{name}' in {argument}")),
            },
            Err(fault) => faults.push(fault),
        }
    }
    if wants_help {
        return (vec!["--help".to_owned()], Vec::new());
    }
    if command.get_positionals().next().is_none() {
        // As in upstream, empty arguments are ignored.
        if positional.iter().any(|argument| !argument.is_empty()) {
            faults.push(positional_fault(command, &positional, &flags));
        }
        positional.clear();
    }
    let mut canonical = Vec::new();
    for (name, value) in joined(command, flags, accumulating) {
        let is_switch = command.get_arguments().any(|arg| arg.get_long() == Some(&name) && is_switch(arg));
        match super::values::boolean(&value) {
            Ok(true) if is_switch => canonical.push(format!("--{name}")),
            Ok(false) if is_switch => {}
            Err(why) if is_switch => faults.push(wrong_value(&format!("--{name}"), &value, &why)),
            _ => canonical.push(format!("--{name}={value}")),
        }
    }
    canonical.push("--".to_owned());
    canonical.extend(positional);
    (canonical, faults)
}

/// The name of the flag that clap adds by itself.
const HELP: &str = "help";

enum Given {
    Help,
    /// The name of the flag, and its value if the argument contains one.
    Flag(String, Option<String>),
}

/// Parses `--name` or `--name=value`, given without the hyphens.
fn long(command: &Command, text: &str) -> Result<Given, String> {
    if text.starts_with(['-', '=']) {
        return Err(format!("bad flag syntax: --{text}"));
    }
    let (given, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let name = given.replace('_', "-");
    if name == HELP {
        return Ok(Given::Help);
    }
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(name.as_str())) else {
        return Err(format!("unknown flag: --{given}{}", suggestion(command, &name)));
    };
    let value = value.or_else(|| (is_boolean(arg) || is_switch(arg)).then(|| "true".to_owned()));
    Ok(Given::Flag(name, value))
}

/// Parses `-n`, `-nvalue` or `-n=value`.
fn short(command: &Command, argument: &str) -> Result<Given, String> {
    let mut letters = argument[1..].chars();
    let letter = letters.next().unwrap_or_default();
    let rest = letters.as_str();
    if letter == 'h' {
        return Ok(Given::Help);
    }
    let flag = command.get_arguments().find(|arg| arg.get_short() == Some(letter)).and_then(Arg::get_long);
    let Some(flag) = flag else {
        let name: String = argument.trim_start_matches('-').replace('_', "-");
        let name = name.split('=').next().unwrap_or_default();
        let has_long = command.get_arguments().any(|arg| arg.get_long() == Some(name));
        let hint = if has_long { format!(" (did you mean --{name}?)") } else { String::new() };
        return Err(format!("unknown shorthand flag: {letter:?} in {argument}{hint}"));
    };
    let value = rest.strip_prefix('=').filter(|value| !value.is_empty()).unwrap_or(rest);
    Ok(Given::Flag(flag.to_owned(), (!value.is_empty()).then(|| value.to_owned())))
}

/// A hint at the flag that may have been meant.
fn suggestion(command: &Command, name: &str) -> String {
    similar(command.get_arguments().filter_map(Arg::get_long), name)
        .map(|long| format!(" (did you mean --{long}?)"))
        .unwrap_or_default()
}

/// The name among `known` that is most similar to `name`, if any is similar enough.
fn similar<'a>(known: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|known| likeness(known) > 0.9)
}

fn positional_fault(command: &Command, positional: &[String], flags: &[(String, String)]) -> String {
    let fault = format!("{:?} does not take any arguments, got {positional:?}", command.get_name());
    let first = positional.first().map(String::as_str).unwrap_or_default();
    if command.find_subcommand(first).is_some() {
        return format!("{fault} (a subcommand comes first: {} {first} ...)", command.get_name());
    }
    let is_boolean =
        |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name) && is_boolean(arg));
    let before = flags.iter().rev().find(|(name, value)| value == "true" && is_boolean(name));
    match before.filter(|_| super::values::boolean(first).is_ok()) {
        Some((name, _)) => {
            format!("{fault} (the value of a boolean flag stands behind '=': --{name}={first})")
        }
        None => {
            let names = command.get_subcommands().map(Command::get_name);
            match similar(names, first) {
                Some(name) => format!("{fault} (did you mean {name}?)"),
                None => fault,
            }
        }
    }
}

/// Joins the values of each accumulating flag, since clap gets each flag once.
fn joined(command: &Command, flags: Vec<(String, String)>, accumulating: &[TypeId]) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for (name, value) in flags {
        let adds = command
            .get_arguments()
            .any(|arg| arg.get_long() == Some(name.as_str()) && accumulates(arg, accumulating));
        match joined.iter_mut().find(|(known, _)| adds && *known == name) {
            Some((_, all)) if all.is_empty() => *all = value,
            Some(_) if value.is_empty() => {}
            Some((_, all)) => {
                all.push(',');
                all.push_str(&value);
            }
            None => joined.push((name, value)),
        }
    }
    joined
}

fn wrong_value(flag: &str, value: &str, why: &str) -> String {
    format!("invalid argument {value:?} for {flag:?} flag: {why}")
}

/// The message of a clap error, without hints.
fn first_words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    text.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// clap stops at the first invalid value, so this tries each flag alone. The flags begin at index
/// `beginning`.
fn value_faults(command: &Command, canonical: &[String], beginning: usize) -> Vec<String> {
    let (command_words, flags) = canonical.split_at(beginning);
    let reader = command_words.get(1).and_then(|name| command.find_subcommand(name)).unwrap_or(command);
    let mut faults = Vec::new();
    for argument in flags.iter().take_while(|argument| *argument != "--") {
        let alone = command.clone().try_get_matches_from(command_words.iter().chain([argument]));
        if let Err(error) = alone
            && error.kind() == ErrorKind::ValueValidation
        {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let short = reader
                .get_arguments()
                .find(|arg| arg.get_long() == name.strip_prefix("--"))
                .and_then(Arg::get_short)
                .map(|short| format!("-{short}, "))
                .unwrap_or_default();
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            faults.push(wrong_value(&format!("{short}{name}"), value, &why));
        }
    }
    faults
}

//! Our flags compared with upstream's, which stand in `upstream.tsv`: name, shorthand, Go type, default.

use clap::{Arg, Args as _, Command};
use component::command_line::{notes::NoteKind, pflag};

use super::{DEPRECATED, Flags, notes};

struct Upstream {
    name: &'static str,
    shorthand: &'static str,
    kind: &'static str,
    default: &'static str,
}

fn upstream() -> impl Iterator<Item = Upstream> {
    include_str!("upstream.tsv").lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, shorthand, kind, default] = fields[..] else { panic!("four fields: {line}") };
        Upstream { name, shorthand, kind, default }
    })
}

fn command() -> Command {
    pflag::finished(Flags::augment_args(Command::new("test")))
}

fn default(arg: &Arg) -> String {
    arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

#[test]
fn every_flag_is_there_with_its_default() {
    let command = command();
    for flag in upstream() {
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(flag.name))
            .unwrap_or_else(|| panic!("--{} is missing", flag.name));
        let shorthand = arg.get_short().map(String::from).unwrap_or_default();
        assert_eq!(shorthand, flag.shorthand, "--{}", flag.name);
        // Go shows lists in brackets.
        let expected = flag.default.trim_start_matches('[').trim_end_matches(']');
        let differs = notes().any(|note| note.flag == flag.name && note.kind == NoteKind::Differs);
        if default(arg) != expected {
            assert!(differs, "--{}: {:?}, upstream {expected:?}", flag.name, default(arg));
        }
        let without_value = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
        assert_eq!(without_value, ["bool", "version"].contains(&flag.kind), "--{}", flag.name);
    }
}

#[test]
fn what_upstream_does_not_have_says_so() {
    let known: Vec<&str> = upstream().map(|flag| flag.name).collect();
    for arg in command().get_arguments().filter_map(Arg::get_long) {
        let ours = notes().any(|note| note.flag == arg && note.kind == NoteKind::Ours);
        assert_ne!(known.contains(&arg), ours, "--{arg}");
    }
}

#[test]
fn notes_are_about_flags_that_exist_and_once() {
    let command = command();
    let mut seen = Vec::new();
    for note in notes() {
        assert!(command.get_arguments().any(|arg| arg.get_long() == Some(note.flag)), "--{}", note.flag);
        assert!(!seen.contains(&note.flag), "two notes about --{}", note.flag);
        seen.push(note.flag);
    }
    assert!(
        DEPRECATED.iter().all(|(flag, _)| command.get_arguments().any(|arg| arg.get_long() == Some(flag)))
    );
}

//! docs/reference/flags.md, made from the flags. `UPDATE_DOCS=1 cargo test -p ccm --lib flags::documentation` writes it.

use std::{fmt::Write as _, fs, path::Path};

use clap::{Arg, Args as _, Command};
use component::command_line::{
    FeatureGates,
    notes::{Note, NoteKind},
    pflag,
};

use super::{
    DEPRECATED, Flags,
    known_gates::{KNOWN_GATES, WITH_EFFECT},
};

const INTRODUCTION: &str = "\
# Flags

<!-- Made from the code by `UPDATE_DOCS=1 cargo test -p ccm --lib flags::documentation`; do not edit. -->

Every flag of the Go framework (k8s.io/cloud-provider 0.37) is accepted. Without a remark in the last column it has
upstream's default and upstream's effect.

The grammar is that of Go's flags:

- `--flag=value` and `--flag value`; underscores in names count as hyphens. A single hyphen is for `-v` and `-h` only.
- Booleans: `--flag`, `--flag=true`, `--flag=false`, also `1`, `t`, `T`, `TRUE`, `True`, `0`, `f`, `F`, `FALSE`, `False`.
  The value is never the next argument: `--flag false` is an error.
- Durations: `5s`, `1m30s`, `500ms`. Integers: also `0x10`, `0o17`, `0b1`, `1_000`.
- A flag that is given again wins; a list, `--feature-gates`, `--vmodule`, `--node-labels` and `--tls-sni-cert-key` grow
  instead, once the default is replaced.
- All unknown flags and all values of the wrong form are reported together; where there are none, all values that do not
  make sense are. The exit status is 1, also where a file or a port cannot be used. What stops the daemon later, and the
  cloud's configuration, end it with 255, and a lost leadership with 1.

A flag without effect is accepted. Where the last column says so, a warning in the log tells it to who gives the flag;
there is none for flags with which upstream does nothing either, and for those of a part that is not there yet.
";

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/flags.md"));
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, &page).expect("docs/reference/flags.md can be written");
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/flags.md is stale: UPDATE_DOCS=1 cargo test -p ccm --lib flags::documentation"
    );
}

fn page() -> String {
    let command = pflag::finished(Flags::augment_args(Command::new("cloud-controller-manager")));
    let mut page = INTRODUCTION.to_owned();
    let mut sections: Vec<&str> = Vec::new();
    for heading in command.get_arguments().filter_map(Arg::get_help_heading) {
        if !sections.contains(&heading) {
            sections.push(heading);
        }
    }
    for section in sections {
        let of_section = command.get_arguments().filter(|arg| arg.get_help_heading() == Some(section));
        let _ = write!(page, "\n## {section}\n\n");
        page += "| Flag | Default | Effect | Difference from upstream |\n|---|---|---|---|\n";
        for arg in of_section {
            page += &row(arg);
        }
    }
    page += &gates();
    page
}

fn row(arg: &Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let default = arg.get_default_values().first().map(|value| value.to_string_lossy()).unwrap_or_default();
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split("\n\n").collect::<Vec<_>>().join(" ");
    let note = super::notes().find(|note| note.flag == long).map(remark).unwrap_or_default();
    let deprecated = DEPRECATED.iter().any(|(flag, _)| *flag == long);
    let struck = if deprecated { "~~" } else { "" };
    format!("| {struck}{short}`--{long}`{struck} | {default} | {} | {} |\n", cell(&help), cell(&note))
}

fn remark(note: &Note) -> String {
    match note.kind {
        NoteKind::Differs => note.text.to_owned(),
        NoteKind::NoEffect => format!("No effect, with a warning: {}", note.text),
        NoteKind::NoEffectEither => format!("No effect. {}", note.text),
        NoteKind::Ours => format!("Only here. {}", note.text),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

fn gates() -> String {
    let mut text = "\n## Feature gates\n\n".to_owned();
    text += "The gates that the Go framework's binary knows are accepted, with `AllAlpha` and `AllBeta`; an unknown one \
             is an error, and so is\nanother value than its default for one that is locked. Those in **bold** switch \
             something here. A bare name is GA, and its gate will go.\n\n| Gate | Stage | Default |\n|---|---|---|\n";
    for gate in FeatureGates::new(&KNOWN_GATES).all() {
        let bold = if WITH_EFFECT.contains(&gate.name) { "**" } else { "" };
        let _ = writeln!(
            text,
            "| {bold}{}{bold} | {} | `{}` |",
            gate.name,
            gate.stage.as_str().to_lowercase(),
            gate.default
        );
    }
    text
}

//! The Go framework's `--help`, compared with ours: all of its flags are accepted.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, ensure};
use ccm::flags::{self, CommandLineError, FeatureGates, KNOWN_GATES, OF_NEXT_RELEASE, Stage};
use test_env::FrameworkCcm;

use crate::{daemon::binary, scenarios::Trials, trial::Outcome};

/// Flags of the test's own provider or of its program that are not the framework's.
const NOT_THE_FRAMEWORKS: [&str; 1] = ["help"];

/// Flags with a different default on purpose.
const OTHER_DEFAULTS: [&str; 6] = [
    "concurrent-node-lifecycle-syncs",
    "concurrent-node-syncs",
    "concurrent-service-syncs",
    "kube-api-qps",
    "kube-api-burst",
    "route-reconciliation-period",
];

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("upstream_flags::every_flag_of_the_go_framework_is_accepted", every_flag)
        .trial("upstream_flags::every_feature_gate_of_the_go_framework_is_known", every_gate)
}

/// A flag in Go's help.
#[derive(Debug)]
struct Flag {
    name: String,
    /// Go's name of the type; `None` for a boolean.
    kind: Option<String>,
    default: Option<String>,
}

fn every_flag() -> Outcome {
    let theirs = help(Command::new(FrameworkCcm::program()?))?;
    let ours = help(Command::new(binary()?))?;
    let flags = flags_of(&theirs);
    ensure_enough(&flags)?;
    for flag in flags.iter().filter(|flag| !NOT_THE_FRAMEWORKS.contains(&flag.name.as_str())) {
        accepted(flag)?;
        shown(flag, &ours)?;
    }
    Ok(())
}

/// Feature gates that can still be set, with stage and default. The help omits the others.
fn every_gate() -> Outcome {
    let help = help(Command::new(FrameworkCcm::program()?))?;
    let theirs: BTreeSet<String> = help
        .lines()
        .filter_map(|line| line.trim().split_once("=true|false ("))
        .map(|(name, rest)| format!("{name} {}", rest.trim_end_matches(')')))
        .collect();
    let ours: BTreeSet<String> = FeatureGates::new(&KNOWN_GATES)
        .all()
        .filter(|gate| [Stage::Alpha, Stage::Beta].contains(&gate.stage))
        .filter(|gate| !OF_NEXT_RELEASE.contains(&gate.name))
        .map(|gate| format!("{} {} - default={}", gate.name, gate.stage.as_str(), gate.default))
        .collect();
    let different: Vec<&String> = theirs.symmetric_difference(&ours).collect();
    if !different.is_empty() || theirs.len() < 20 {
        return Err(anyhow::anyhow!("of {} gates there differ: {different:#?}", theirs.len()).into());
    }
    Ok(())
}

fn ensure_enough(flags: &[Flag]) -> anyhow::Result<()> {
    ensure!(flags.len() > 70, "the help was not understood: {flags:?}");
    Ok(())
}

fn help(mut command: Command) -> anyhow::Result<String> {
    let output = command.arg("--help").env("COLUMNS", "2000").output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn flags_of(help: &str) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("-v, ").or(line.strip_prefix("-h, ")).unwrap_or(line);
        if let Some(text) = line.strip_prefix("--") {
            let (usage, text) = text.split_once("   ").unwrap_or((text, ""));
            let mut words = usage.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            flags.push(Flag { name, kind: words.next().map(str::to_owned), default: default(text) });
        } else if let Some(flag) = flags.last_mut() {
            // The help of a flag may continue on the next lines.
            flag.default = default(line).or(flag.default.take());
        }
    }
    flags
}

fn default(text: &str) -> Option<String> {
    let (_, value) = text.rsplit_once("(default ")?;
    let value = value.strip_suffix(')')?;
    Some(value.trim_matches(['"', '[', ']']).to_owned()).filter(|value| !value.is_empty())
}

/// A value that Go accepts for a flag of this type.
fn value(flag: &Flag) -> &str {
    match flag.kind.as_deref() {
        None => "true",
        Some("duration") => "1m0s",
        Some("int" | "int32" | "float32" | "int32Slice" | "Level" | "quantity") => "23",
        Some("ip") => "127.0.0.1",
        Some("mapStringBool") => "WatchList=true",
        Some("namedCertKey") => "a.crt,a.key",
        Some("pattern=N,...") => "a=1",
        Some("version[=true]") => "raw",
        Some(_) => "some-thing",
    }
}

/// The flag is accepted with a value, and with the default that Go shows.
fn accepted(flag: &Flag) -> anyhow::Result<()> {
    let given = [Some(value(flag).to_owned()), flag.default.clone()];
    for value in given.into_iter().flatten() {
        let argument = format!("--{}={value}", flag.name);
        match flags::parse(["ccm", argument.as_str()]) {
            Ok(flags) => ensure!(flags.is_given(&flag.name), "{argument}"),
            Err(CommandLineError::Faults(faults)) => anyhow::bail!("{argument}: {faults:?}"),
            Err(error) => anyhow::bail!("{argument}: {error}"),
        }
    }
    Ok(())
}

/// Our help has the flag, with the same default.
fn shown(flag: &Flag, ours: &str) -> anyhow::Result<()> {
    let begins = |line: &&str| {
        let line = line.trim_start();
        let line = line.strip_prefix("-v, ").unwrap_or(line);
        line.strip_prefix("--")
            .and_then(|text| text.strip_prefix(flag.name.as_str()))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '[']))
    };
    let mut lines = ours.lines().skip_while(|line| !begins(line));
    let first = lines.next().with_context(|| format!("--{} is not in our help", flag.name))?;
    let text: Vec<&str> =
        std::iter::once(first).chain(lines.take_while(|line| !line.trim_start().starts_with('-'))).collect();
    let text = text.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    if OTHER_DEFAULTS.contains(&flag.name.as_str()) {
        return Ok(());
    }
    let shown = text.rsplit_once("[default: ").map(|(_, value)| value.split(']').next().unwrap_or_default());
    match (&flag.default, shown) {
        (Some(theirs), ours) => ensure!(ours == Some(theirs), "--{}: {ours:?}, theirs {theirs}", flag.name),
        (None, None | Some("false" | "0" | "0s" | "VersionTLS12")) => {}
        (None, Some(ours)) => anyhow::bail!("--{}: {ours}, theirs nothing", flag.name),
    }
    Ok(())
}

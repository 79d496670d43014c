//! The whole command line of the binary: without a subcommand it is the daemon.

mod completions;
mod man;

use std::ffi::OsString;

use clap::{Args as _, Command, CommandFactory, FromArgMatches as _, Parser, Subcommand};

pub use completions::{Completions, completions};
pub use man::man;

use crate::{
    flags::{CommandLineError, Flags, pflag},
    manifests::ManifestsCommand,
};

/// Runs the cloud-specific controllers of a Kubernetes cluster: initialises Nodes whose kubelets run with
/// --cloud-provider=external, and removes Nodes whose instances are gone. Without a subcommand it is the daemon.
#[derive(Debug, Parser)]
#[command(name = "cloud-controller-manager", subcommand_negates_reqs = true)]
struct CommandLine {
    #[command(subcommand)]
    tool: Option<Tool>,
}

/// What the binary can do beside being the daemon.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Print the shell's completions of this program's flags.
    Completions(Completions),
    /// Print the deployment for these options as YAML, for `kubectl apply -f -`.
    Manifests(Box<ManifestsCommand>),
    /// Print the manual page, for `man -l -`.
    Man,
}

/// What to run.
#[derive(Debug)]
pub enum Invocation {
    /// The daemon.
    Daemon(Box<Flags>),
    /// A subcommand.
    Tool(Box<Tool>),
}

/// Everything that clap knows of the command line.
pub(crate) fn command() -> Command {
    pflag::finished(unfinished())
}

fn unfinished() -> Command {
    // The about text is the program's: those of flattened parts would replace it.
    let command = CommandLine::command();
    let about = command.get_about().cloned().unwrap_or_default();
    Flags::augment_args(command).about(about).long_about(None)
}

/// Reads the command line; the first argument is the program. A subcommand is the second one.
///
/// # Errors
/// Every fault in it, or that help was asked for.
pub fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Invocation, CommandLineError> {
    let matches = pflag::read(unfinished(), arguments.into_iter().map(Into::into).collect())?;
    if matches.subcommand().is_none() {
        return Ok(Invocation::Daemon(Box::new(Flags::read(&matches)?)));
    }
    let tool = Tool::from_arg_matches(&matches)
        .map_err(|error| CommandLineError::Faults(vec![error.to_string()]))?;
    Ok(Invocation::Tool(Box::new(tool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(args: &[&str]) -> Vec<String> {
        match parse(["ccm"].iter().chain(args)) {
            Err(CommandLineError::Faults(faults)) => faults,
            other => panic!("{args:?} is not refused: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn without_a_subcommand_it_is_the_daemon() {
        for args in [&[][..], &["--cloud-provider=x"], &["--cloud-provider", "man"]] {
            assert!(matches!(parse(["ccm"].iter().chain(args)), Ok(Invocation::Daemon(_))), "{args:?}");
        }
        assert!(matches!(parse(["ccm", "man"]), Ok(Invocation::Tool(_))));
    }

    #[test]
    fn a_subcommand_comes_first_and_is_checked_as_the_daemon_is() {
        assert_eq!(
            faults(&["--v=4", "man"]),
            [
                "\"cloud-controller-manager\" does not take any arguments, got [\"man\"] (a subcommand comes first: cloud-controller-manager man ...)"
            ]
        );
        assert_eq!(faults(&["man", "--nope"]), ["unknown flag: --nope"]);
        assert_eq!(faults(&["completions"]).len(), 1);
        let unknown = faults(&["completions", "tcsh"]);
        assert!(unknown[0].contains("tcsh") && unknown[0].contains("bash"), "{unknown:?}");
    }

    #[test]
    fn help_shows_upstreams_sections_in_order() {
        let help = command().render_long_help().to_string();
        let mut rest = help.as_str();
        for section in [
            "Debugging",
            "Leader-migration",
            "Generic",
            "Cloud-node-controller",
            "Cloud-node-lifecycle-controller",
            "Service-lb-controller",
            "Webhook",
            "Webhook serving",
            "Secure serving",
            "Authentication",
            "Authorization",
            "Misc",
            "Global",
        ] {
            let heading = format!("\n{section} flags:\n");
            let at = rest.find(&heading).unwrap_or_else(|| panic!("{section} in {help}"));
            rest = &rest[at + 1..];
        }
    }
}

//! The whole command line of the binary: without a subcommand it is the daemon.

mod check;
mod completions;
mod explain;
mod man;
mod tools;

use std::ffi::OsString;

use clap::{Args as _, Command, CommandFactory, FromArgMatches as _, Parser, Subcommand};
use component::{
    command_line::{CommandLineError, pflag},
    program::Program,
};

pub use check::{Check, Finding, Report, Verdict, check};
pub use completions::{Completions, completions};
pub use explain::{
    CloudAnswer, Explain, Explanation, LifecycleExplanation, LoadBalancerAnswer, MachineExplanation,
    NodeCondition, ServiceExplanation, Subject, explain, explain_lifecycle, explain_machine, explain_service,
};
pub use man::man;
pub use tools::Output;

use crate::{
    flags::{ACCUMULATING, Flags},
    manifests::ManifestsCommand,
};

/// Runs the cloud-specific controllers of a Kubernetes cluster: initialises Nodes whose kubelets run with
/// --cloud-provider=external, and removes Nodes whose instances are gone. Without a subcommand it is the daemon.
#[derive(Debug, Parser)]
#[command(name = "cloud-controller-manager", disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    tool: Option<Tool>,
}

/// What the binary can do beside being the daemon.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Check what a daemon with these flags could do: flags, cloud, API server, permissions.
    Check(Box<Check>),
    /// Explain a Node, a Service or a machine: what the cloud says, what differs, what the daemon would do next.
    Explain(Box<Explain>),
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
    let command = match Program::said() {
        Some(program) => command.name(program.name()),
        None => command,
    };
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
    let arguments = without_help_word(arguments.into_iter().map(Into::into).collect());
    let matches = pflag::read(unfinished(), arguments, &ACCUMULATING)?;
    if matches.subcommand().is_none() {
        return Ok(Invocation::Daemon(Box::new(Flags::read(&matches)?)));
    }
    let mut tool = Tool::from_arg_matches(&matches)
        .map_err(|error| CommandLineError::Faults(vec![error.to_string()]))?;
    if let Some((_, matches)) = matches.subcommand() {
        match &mut tool {
            Tool::Check(check) => check.flags.remember_given(matches),
            Tool::Explain(explain) => explain.flags.remember_given(matches),
            Tool::Completions(_) | Tool::Manifests(_) | Tool::Man => {}
        }
    }
    Ok(Invocation::Tool(Box::new(tool)))
}

/// `help` and `help SUBCOMMAND` mean `--help` and `SUBCOMMAND --help`.
fn without_help_word(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.truncate(2);
        arguments.push("--help".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use lifecycle_controllers::explain::ExplainedKind;

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
        for (typo, meant) in [("chek", "check"), ("explian", "explain"), ("manifest", "manifests")] {
            let found = faults(&[typo, "--v=4"]);
            assert!(found[0].ends_with(&format!("(did you mean {meant}?)")), "{found:?}");
        }
        assert!(!faults(&["worker-1"])[0].contains("did you mean"));
        assert_eq!(
            faults(&["check", "--nope", "--v=x", "--secure-port"]),
            [
                "unknown flag: --nope",
                "flag needs an argument: --secure-port",
                "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
            ],
            "in one go"
        );
        assert_eq!(faults(&["explain", "n", "--v=x", "--secure-port=y"]).len(), 2);
        assert_eq!(faults(&["explain"]).len(), 1);
        for args in [&["help"][..], &["help", "check"], &["check", "-h"]] {
            assert!(matches!(parse(["ccm"].iter().chain(args)), Err(CommandLineError::Help(_))), "{args:?}");
        }
        let Ok(Invocation::Tool(tool)) = parse(["ccm", "explain", "-v4", "n", "--cloud_provider=x"]) else {
            panic!("a good command line");
        };
        let Tool::Explain(explain) = *tool else { panic!("explain") };
        assert_eq!(explain.subject(), Ok(Subject::Node("n".to_owned())));
        assert!(explain.flags.is_given("v") && explain.flags.global.v == 4);
        assert_eq!(faults(&["completions"]).len(), 1);
        let unknown = faults(&["completions", "tcsh"]);
        assert!(unknown[0].contains("tcsh") && unknown[0].contains("bash"), "{unknown:?}");
    }

    #[test]
    fn what_is_explained() {
        let subject = |args: &[&str]| match parse(["ccm", "explain"].iter().chain(args)) {
            Ok(Invocation::Tool(tool)) => match *tool {
                Tool::Explain(explain) => explain.subject(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let node = |name: &str| Ok(Subject::Node(name.to_owned()));
        assert_eq!(subject(&["worker-1"]), node("worker-1"));
        assert_eq!(subject(&["node", "worker-1", "--v=4"]), node("worker-1"));
        assert_eq!(subject(&["service"]), node("service"));
        let service = Subject::Service { namespace: "shop".to_owned(), name: "web".to_owned() };
        assert_eq!(subject(&["service", "shop/web"]), Ok(service));
        let machine = Subject::Machine { namespace: "shop".to_owned(), name: "one".to_owned() };
        assert_eq!(subject(&["machine", "shop/one"]), Ok(machine));
        let cluster = Subject::Lifecycle {
            kind: ExplainedKind::Cluster,
            namespace: "team".to_owned(),
            name: "prod".to_owned(),
        };
        assert_eq!(subject(&["cluster", "team/prod"]), Ok(cluster));
        let of_kind = |kind, name: &str| {
            Ok(Subject::Lifecycle { kind, namespace: "team".to_owned(), name: name.to_owned() })
        };
        assert_eq!(subject(&["md", "team/workers"]), of_kind(ExplainedKind::MachineDeployment, "workers"));
        assert_eq!(subject(&["kubeadmconfigs", "team/a"]), of_kind(ExplainedKind::KubeadmConfig, "a"));
        assert_eq!(subject(&["nodes", "worker-1"]), node("worker-1"));
        assert!(matches!(subject(&["svc", "shop/web"]), Ok(Subject::Service { .. })));
        assert!(matches!(subject(&["ma", "shop/one"]), Ok(Subject::Machine { .. })));
        for bad in [
            ["machinedeployment", "workers"],
            ["machine", "one"],
            ["service", "web"],
            ["service", "/web"],
            ["service", "a/b/c"],
            ["pod", "a/b"],
        ] {
            assert!(subject(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_object_of_cluster_api_needs_no_flag_of_a_provider() {
        let faults_of = |args: &[&str]| match parse(["ccm", "explain"].iter().chain(args)) {
            Ok(Invocation::Tool(tool)) => match *tool {
                Tool::Explain(explain) => explain.with_lifecycle().flags.faults(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(faults_of(&["md", "team/workers"]), [""; 0]);
        assert_eq!(faults_of(&["machine", "team/one"]), [""; 0]);
        for args in [&["worker-1"][..], &["md", "team/workers", "--controllers=*"]] {
            assert_eq!(faults_of(args), ["--cloud-provider cannot be empty"], "{args:?}");
        }
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

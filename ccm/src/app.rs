//! The entry point of a binary with its own providers.
//!
//! ```no_run
//! use ccm::program::Program;
//! use cloudprovider::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     let program = Program::new("mycloud-controller-manager", env!("CARGO_PKG_VERSION"));
//!     ccm::app::main_as(program, || {
//!         let mut registry = Registry::new();
//!         // registry.register("mycloud", mycloud::factory)?;
//!         Ok(registry)
//!     })
//! }
//! ```

use std::{io::Write as _, panic::AssertUnwindSafe, process::ExitCode};

use cloudprovider::Registry;
use component::{command_line::CommandLineError, leader_election::Lost, logging, program::Program, version};
use lifecycle_controllers::explain::ExplainedKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    commands::{self, Check, Explain, Invocation, Output, Subject, Tool},
    daemon::{self, Misconfigured, PartEnded},
    flags::{Flags, LIFECYCLE_CORE},
    manifests::ManifestsCommand,
};

/// Creates the registry of a binary's providers.
pub type MakeRegistry = fn() -> cloudprovider::Result<Registry>;

/// The crates whose log records are shown to operators, beside the providers.
const OUR_CRATES: [&str; 6] = [
    env!("CARGO_CRATE_NAME"),
    "cloudprovider",
    "cluster_api",
    "controller_kit",
    "lifecycle_controllers",
    "machine_controller",
];

/// Upstream's exit code for a faulty command line, and for unusable files and ports that it names.
const BAD_FLAGS: u8 = 1;
/// Upstream's exit code for a leader that has to stop.
const LOST: u8 = 1;
/// Upstream's exit code for faults that prevent the daemon from working.
const FATAL: u8 = 255;
/// Upstream's exit code for a panic.
const PANIC: u8 = 2;

/// Like [`main_as`], for `cloud-controller-manager` in the version of this crate.
pub fn main(registry: MakeRegistry) -> ExitCode {
    main_as(Program::new("cloud-controller-manager", env!("CARGO_PKG_VERSION")), registry)
}

/// Executes the command line: runs the daemon until a signal, or one of the tools for operators. `program`
/// supplies the name and the version for all output.
///
/// The exit code is upstream's: 0 after a signal; 1 for a faulty command line, for an unusable file or port
/// that it names, and for a lost Lease; 2 for a panic; 255 for all other faults that prevent the daemon from
/// working, including a faulty cloud configuration. The tools exit with 0 or 1.
pub fn main_as(program: Program, registry: MakeRegistry) -> ExitCode {
    program.set_current();
    match commands::parse(std::env::args_os()) {
        Ok(Invocation::Daemon(flags)) => daemon(&flags, registry),
        Ok(Invocation::Tool(tool)) => run_tool(&tool, registry),
        Err(CommandLineError::Help(help)) => {
            // If the help cannot be printed, an error message cannot be printed either.
            let _ = help.print();
            ExitCode::SUCCESS
        }
        Err(CommandLineError::Faults(faults)) => bad_flags(&faults),
    }
}

/// Reports a faulty command line on stderr. The log is not set up yet.
#[expect(clippy::print_stderr, reason = "a bad command line is answered before there is a log")]
fn bad_flags(faults: &[String]) -> ExitCode {
    for fault in faults {
        eprintln!("Error: {fault}");
    }
    eprintln!("\nFor more information, try '--help'.");
    ExitCode::from(BAD_FLAGS)
}

fn run_tool(tool: &Tool, registry: MakeRegistry) -> ExitCode {
    let printed = match tool {
        Tool::Check(arguments) => return check(arguments, registry),
        Tool::Explain(arguments) => return explain(arguments, registry),
        Tool::Completions(arguments) => print(&commands::completions(arguments.shell)),
        Tool::Manifests(command) => return manifests(command, registry),
        Tool::Man => commands::man().and_then(|page| print(&page)),
    };
    // Printing fails if the reader has closed the pipe, as `head` does. That needs no message.
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stderr, reason = "warnings stand beside what is printed for kubectl")]
fn manifests(command: &ManifestsCommand, registry: MakeRegistry) -> ExitCode {
    let registry = match registry() {
        Ok(registry) => registry,
        Err(error) => return failed(&error.into()),
    };
    match command.run(&registry) {
        Ok((yaml, warnings)) => {
            for warning in warnings {
                eprintln!("Warning: {warning}");
            }
            if print(yaml.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(faults) => bad_flags(&faults),
    }
}

fn check(arguments: &Check, registry: MakeRegistry) -> ExitCode {
    let outcome = run_once(&arguments.flags, registry, async |registry| {
        let report = commands::check(&arguments.flags, registry).await;
        let text = match arguments.output {
            Output::Table => report.to_table(),
            Output::Json => report.to_json()?,
        };
        print(text.as_bytes())?;
        Ok(report.is_good())
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&error),
    }
}

fn explain(arguments: &Explain, registry: MakeRegistry) -> ExitCode {
    let arguments = &arguments.clone().with_lifecycle();
    let mut faults = arguments.flags.faults();
    let subject = match arguments.subject() {
        Ok(subject) if faults.is_empty() => subject,
        Ok(_) => return bad_flags(&faults),
        Err(fault) => {
            faults.push(fault);
            return bad_flags(&faults);
        }
    };
    let outcome = run_once(&arguments.flags, registry, async |registry| {
        let flags = &arguments.flags;
        let (table, json) = match &subject {
            Subject::Node(name) => {
                let explanation = commands::explain(flags, registry, name).await?;
                (explanation.to_table(), explanation.to_json()?)
            }
            Subject::Service { namespace, name } => {
                let explanation = commands::explain_service(flags, registry, namespace, name).await?;
                (explanation.to_table(), explanation.to_json()?)
            }
            Subject::Lifecycle { kind, namespace, name } => {
                let explanation =
                    commands::explain_lifecycle(flags, registry, *kind, namespace, name).await?;
                (explanation.to_table(), explanation.to_json()?)
            }
            Subject::Machine { namespace, name } if flags.enables(LIFECYCLE_CORE) => {
                let kind = ExplainedKind::Machine;
                let explanation = commands::explain_lifecycle(flags, registry, kind, namespace, name).await?;
                (explanation.to_table(), explanation.to_json()?)
            }
            Subject::Machine { namespace, name } => {
                let explanation = commands::explain_machine(flags, registry, namespace, name).await?;
                (explanation.to_table(), explanation.to_json()?)
            }
        };
        let text = match arguments.output {
            Output::Table => table,
            Output::Json => json,
        };
        Ok(print(text.as_bytes())?)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "a tool answers the person who runs it")]
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("Error: {error:#}");
    ExitCode::FAILURE
}

/// Runs a tool. It logs only if the flags ask for it, since its findings are its output.
fn run_once<T>(
    flags: &Flags,
    registry: MakeRegistry,
    tool: impl AsyncFnOnce(&Registry) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if flags.is_given("v") || flags.is_given("vmodule") {
        logging::start(&flags.global, &OUR_CRATES);
    } else {
        // A panic of a provider is reported as a finding of the tool, not by the hook.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let registry = registry()?;
    logging::add_crates(registry.logged_crates());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(tool(&registry));
    runtime.shutdown_background();
    outcome
}

fn print(text: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()
}

fn daemon(flags: &Flags, registry: MakeRegistry) -> ExitCode {
    if let Some(text) = version::requested(&flags.global.version) {
        return if print(text.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let faults = flags.faults();
    if !faults.is_empty() {
        return bad_flags(&faults);
    }
    logging::start(&flags.global, &OUR_CRATES);
    for warning in flags.warnings() {
        tracing::warn!("{warning}");
    }
    ExitCode::from(exit_code(|| run(flags, registry)))
}

/// Runs the daemon and returns its exit code. The hook has logged a panic.
fn exit_code(run: impl FnOnce() -> anyhow::Result<()>) -> u8 {
    match std::panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            tracing::error!("{error:#}");
            if error.is::<Misconfigured>() {
                BAD_FLAGS
            } else if error.is::<Lost>() {
                LOST
            } else if error.is::<PartEnded>() {
                PANIC
            } else {
                FATAL
            }
        }
        Err(_) => PANIC,
    }
}

/// Number of threads that run tasks. One is enough: most of the time the daemon waits for servers, and one
/// thread is faster than any API server to which it writes. With the default of one thread for each core, the
/// threads wake each other for every response, which costs a sixth of the CPU time. Blocking calls have
/// separate threads.
const WORKERS: usize = 1;

fn run(flags: &Flags, registry: MakeRegistry) -> anyhow::Result<()> {
    // One crypto provider for all of TLS. Installing it fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let registry = registry()?;
    logging::add_crates(registry.logged_crates());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(stop_on_signal(stop.clone())?);
        daemon::run(flags, &registry, stop).await
    });
    // A provider's thread that is stuck in a call must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

/// The first SIGTERM or SIGINT stops the daemon gracefully, the second one aborts.
fn stop_on_signal(stop: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        for is_second in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if is_second {
                tracing::warn!("second signal: stopping at once");
                std::process::exit(i32::from(FATAL));
            }
            tracing::info!("signal received: finishing what is under way");
            stop.cancel();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_exit_codes() {
        assert_eq!(exit_code(|| Ok(())), 0);
        assert_eq!(exit_code(|| Err(Lost::Main.into())), LOST);
        assert_eq!(exit_code(|| Err(PartEnded.into())), PANIC);
        assert_eq!(exit_code(|| Err(anyhow::anyhow!("no provider"))), FATAL);
        assert_eq!(exit_code(|| panic!("a mistake")), PANIC);
    }
}

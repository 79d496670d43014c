//! Profiles and other insights.

use clap::{ArgAction, Args};

use super::{
    notes::{Note, differs, no_effect},
    values::boolean,
};

/// `--profiling` and what belongs to it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Debugging flags")]
pub struct DebuggingFlags {
    /// Serve profiles under /debug/pprof, what the controllers know under /debug/state, and the verbosity of the log
    /// under /debug/flags/v.
    #[arg(long, default_value = "true", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub profiling: bool,

    /// Profile where threads wait for each other.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub contention_profiling: bool,
}

/// Differences from upstream.
pub const NOTES: &[Note] = &[
    differs("profiling", "Serves a CPU profile and /debug/state; Go's other profiles do not exist here"),
    no_effect("contention-profiling", "blocking is profiled by Go's runtime only"),
];

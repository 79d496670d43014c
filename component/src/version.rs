//! The version in the form of Kubernetes' programs.

use crate::{
    command_line::VersionRequest,
    program::{Program, platform},
};

/// The output that `--version` asks for. `None` if the daemon should run.
pub fn requested(request: &VersionRequest) -> Option<String> {
    let version = Program::current().version();
    match request {
        VersionRequest::No | VersionRequest::Report(_) => None,
        VersionRequest::Print => Some(format!("Kubernetes {version}\n")),
        VersionRequest::PrintRaw => Some(raw(version)),
    }
}

/// Go's notation of a version.Info. Fields that only Go programs have are empty.
fn raw(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    format!(
        "version.Info{{Major:{major:?}, Minor:{minor:?}, EmulationMajor:\"\", EmulationMinor:\"\", \
         MinCompatibilityMajor:\"\", MinCompatibilityMinor:\"\", GitVersion:{version:?}, GitCommit:\"\", \
         GitTreeState:\"\", BuildDate:\"\", GoVersion:\"\", Compiler:\"rustc\", Platform:{:?}}}\n",
        platform()
    )
}

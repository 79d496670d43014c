//! The version, as Kubernetes' programs say theirs.

use crate::{
    flags::VersionRequest,
    program::{Program, platform},
};

/// What `--version` asks for, `None` where the daemon is to run.
pub fn requested(request: &VersionRequest) -> Option<String> {
    let version = Program::current().version();
    match request {
        VersionRequest::No | VersionRequest::Report(_) => None,
        VersionRequest::Print => Some(format!("Kubernetes {}\n", version)),
        VersionRequest::PrintRaw => Some(raw(version)),
    }
}

/// Go's notation of a version.Info. What only Go programs have is empty.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn requested_by(args: &[&str]) -> Option<String> {
        requested(&crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags").global.version)
    }

    #[test]
    fn versions_as_kubernetes_prints_them() {
        let own = format!("v{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(requested_by(&[]), None);
        assert_eq!(requested_by(&["--version"]), Some(format!("Kubernetes {own}\n")));
        assert_eq!(requested_by(&["--version=false"]), None);
        assert_eq!(requested_by(&[&format!("--version={own}-x")]), None);
        let raw = requested_by(&["--version=raw"]).expect("text");
        assert!(raw.starts_with("version.Info{Major:\"0\", ") && raw.contains(&own), "{raw}");
    }
}

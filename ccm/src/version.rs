//! The version, as Kubernetes' programs say theirs.

use crate::flags::{Flags, VersionRequest};

/// What `--version` asks for, `None` where the daemon is to run.
pub fn requested(flags: &Flags) -> Option<String> {
    match flags.global.version {
        VersionRequest::No | VersionRequest::Report(_) => None,
        VersionRequest::Print => Some(format!("Kubernetes {}\n", flags.version())),
        VersionRequest::PrintRaw => Some(raw(flags.version())),
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

/// Operating system and processor by Go's names.
pub fn platform() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{processor}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested_by(args: &[&str]) -> Option<String> {
        requested(&crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags"))
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

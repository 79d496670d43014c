//! The name, version and commit of this program. Its `main` sets them once.

use std::{
    path::Path,
    sync::{LazyLock, OnceLock},
};

/// The identity of a program, as shown by `--version`, the `User-Agent`, the metric `kubernetes_build_info`,
/// the help text and the manual page.
///
/// ```
/// let program = component::program::Program::new("mycloud-controller-manager", env!("CARGO_PKG_VERSION"))
///     .with_commit(option_env!("GIT_COMMIT"))
///     .with_build_date(option_env!("BUILD_DATE"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    version: String,
    commit: Option<String>,
    build_date: Option<String>,
}

/// Set once.
static PROGRAM: OnceLock<Program> = OnceLock::new();

/// The default if nothing was set, as in tests: the name of the executable, and the version of this crate.
static UNSAID: LazyLock<Program> = LazyLock::new(|| {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
    Program::new(name, env!("CARGO_PKG_VERSION"))
});

impl Program {
    /// A program of this name and version. The version is written as `1.2.3` or `v1.2.3-rc.1`.
    pub fn new(name: impl Into<String>, version: impl AsRef<str>) -> Self {
        let version = format!("v{}", version.as_ref().trim_start_matches('v'));
        Self { name: name.into(), version, commit: None, build_date: None }
    }

    /// Sets the commit of the build, if known.
    #[must_use]
    pub fn with_commit(mut self, commit: Option<&str>) -> Self {
        self.commit = commit.filter(|commit| !commit.is_empty()).map(str::to_owned);
        self
    }

    /// Sets the time of the build, such as `2026-01-31T12:00:00Z`, if known.
    #[must_use]
    pub fn with_build_date(mut self, date: Option<&str>) -> Self {
        self.build_date = date.filter(|date| !date.is_empty()).map(str::to_owned);
        self
    }

    /// The program of this process: the one that `main` set, or else the name of the executable with the
    /// version of this crate.
    pub fn current() -> &'static Self {
        Self::said().unwrap_or(&UNSAID)
    }

    /// The program that `main` set.
    pub fn said() -> Option<&'static Self> {
        PROGRAM.get()
    }

    /// Sets the program of this process. The first call wins.
    pub fn set_current(self) {
        PROGRAM.get_or_init(|| self);
    }

    /// The name, such as `cloud-controller-manager`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version with a `v`, such as `v1.2.3-rc.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Major, minor and patch version, such as `1.2.3`.
    pub fn core_version(&self) -> &str {
        let version = self.version.trim_start_matches('v');
        version.split(['-', '+']).next().unwrap_or_default()
    }

    /// The commit, or `unknown` if the build does not have it.
    pub fn commit(&self) -> &str {
        self.commit.as_deref().unwrap_or("unknown")
    }

    /// The first digits of the commit.
    pub fn short_commit(&self) -> &str {
        self.commit().get(..7).unwrap_or(self.commit())
    }

    /// The time of the build. As in Kubernetes' programs, it is the beginning of 1970 if the build does not
    /// have it.
    pub fn build_date(&self) -> &str {
        self.build_date.as_deref().unwrap_or("1970-01-01T00:00:00Z")
    }
}

/// The operating system and processor by Go's names.
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

    #[test]
    fn the_page_for_authors_asks_for_what_the_workspace_asks_for() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file");
        let (page, workspace) = (read("docs/tutorials/writing-a-provider.md"), read("Cargo.toml"));
        for key in ["edition = ", "rust-version = ", "publish = "] {
            let line = workspace.lines().find(|line| line.starts_with(key)).expect("a setting");
            assert!(page.lines().any(|said| said == line), "{line}");
        }
        let version =
            workspace.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
        assert!(page.contains(&format!("{} or newer", version.trim_matches('"'))), "{version}");
    }

    #[test]
    fn what_is_not_said_is_unknown() {
        let program =
            Program::new("x", "v1.2.3-rc.1+build").with_commit(Some("0123456789")).with_build_date(Some(""));
        assert_eq!((program.name(), program.version()), ("x", "v1.2.3-rc.1+build"));
        assert_eq!(program.core_version(), "1.2.3");
        assert_eq!((program.commit(), program.short_commit()), ("0123456789", "0123456"));
        assert_eq!(program.build_date(), "1970-01-01T00:00:00Z");
        assert_eq!(Program::new("x", "1.2.3").version(), "v1.2.3");
        assert_eq!(Program::new("x", "1.2.3").with_commit(None).short_commit(), "unknown");
    }
}

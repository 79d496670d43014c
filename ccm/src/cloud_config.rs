//! A provider's configuration: read at the start, and again whenever its file or a file that it names changes.
//!
//! A new version becomes a provider of its own, which starts beside the current one. It takes over once it
//! answers for every Node at least as well as the current one, or about a machine that nobody has where a provider serves
//! machines alone. Until then, or if it never does, the previous version stays in force.

mod comparison;
mod follower;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use cloudprovider::{CloudProvider, ConfigProblem, ErrorKind, FactoryInput, Registry, decode_config};
use component::files::FilesRead;

pub use follower::Follower;

use crate::flags::{Flags, MachineProvider};

/// Where the configuration is, and which provider it is for.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    registry: Registry,
    provider: String,
    path: Option<PathBuf>,
    named_by: NamedBy,
}

/// Which flags name a provider and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedBy {
    /// `--cloud-provider` and `--cloud-config`
    CloudProvider,
    /// `--machine-provider`
    MachineProvider,
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct Reading {
    /// The provider made from it, or why there is none.
    pub outcome: anyhow::Result<Arc<dyn CloudProvider>>,
    /// Oddities in it that are not errors, whatever the outcome.
    pub warnings: Vec<ConfigProblem>,
}

impl CloudConfig {
    /// That of `--cloud-provider`.
    pub fn new(flags: &Flags, registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            provider: flags.generic.cloud_provider.clone(),
            path: flags.generic.cloud_config.clone(),
            named_by: NamedBy::CloudProvider,
        }
    }

    /// That of a provider of `--machine-provider`.
    pub fn of_machines(provider: &MachineProvider, registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            provider: provider.name.clone(),
            path: provider.config.clone(),
            named_by: NamedBy::MachineProvider,
        }
    }

    /// The name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The flag that names the provider.
    pub fn provider_flag(&self) -> &'static str {
        match self.named_by {
            NamedBy::CloudProvider => "--cloud-provider",
            NamedBy::MachineProvider => "--machine-provider",
        }
    }

    /// The flag that names the file, with the file.
    fn flag_of(&self, path: &Path) -> String {
        match self.named_by {
            NamedBy::CloudProvider => format!("--cloud-config {}", path.display()),
            NamedBy::MachineProvider => format!("--machine-provider {}={}", self.provider, path.display()),
        }
    }

    /// What would have to be given to name a file.
    fn missing_flag(&self) -> String {
        match self.named_by {
            NamedBy::CloudProvider => "--cloud-config is not given".to_owned(),
            NamedBy::MachineProvider => {
                format!("--machine-provider {} names no file; expected {0}=FILE", self.provider)
            }
        }
    }

    /// Reads it, checks it, and makes a provider from it. Calls no cloud and no API server, and notes in `read` what it reads.
    /// What is odd in it is logged. Where it is refused, that is part of the error instead, since it may explain it.
    ///
    /// # Errors
    /// An unreadable file, an unknown provider, or every fault in its configuration.
    pub fn create(&self, read: &FilesRead) -> anyhow::Result<Arc<dyn CloudProvider>> {
        let Reading { outcome, warnings } = self.read(read);
        match outcome {
            Ok(provider) => {
                for warning in warnings {
                    tracing::warn!(cloud_provider = self.provider, "cloud config: {warning}");
                }
                Ok(provider)
            }
            Err(refusal) if warnings.is_empty() => Err(refusal),
            Err(refusal) => {
                let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
                Err(anyhow!("{refusal:#}; beside that: {}", warnings.join("; ")))
            }
        }
    }

    /// Like [`create`](Self::create), but returns the warnings.
    pub fn read(&self, read: &FilesRead) -> Reading {
        let is_known = self.registry.names().any(|name| name == self.provider);
        let input = match &self.path {
            // Without a provider nobody can say what is wrong with its file.
            Some(path) if is_known => match self.text_of(path, read) {
                Ok((text, oddity)) => {
                    let input = FactoryInput::new(text).with_path(path);
                    if let Some(oddity) = oddity {
                        input.warn(ConfigProblem::new("", oddity));
                    }
                    input
                }
                Err(error) => return Reading { outcome: Err(error), warnings: Vec::new() },
            },
            _ => FactoryInput::default(),
        };
        let reader = read.clone();
        let input = input.with_reader(move |path| reader.read(path));
        let outcome = self.registry.create(&self.provider, &input).map_err(|error| {
            let file = match &self.path {
                Some(path) if is_known => format!(" ({})", self.flag_of(path)),
                _ if !is_known => format!(" ({})", self.provider_flag()),
                None if error.kind() == ErrorKind::InvalidConfiguration => {
                    format!(" ({})", self.missing_flag())
                }
                _ => String::new(),
            };
            anyhow!("{}{file}", error.report())
        });
        Reading { outcome, warnings: input.warnings() }
    }

    fn text_of(&self, path: &Path, read: &FilesRead) -> anyhow::Result<(String, Option<&'static str>)> {
        let flag = self.flag_of(path);
        let bytes = read.read(path).with_context(|| format!("{flag}: the file cannot be read"))?;
        decode_config(&bytes).map_err(|error| anyhow!("{flag}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{ConfigProblem, Error};

    use super::*;
    use crate::flags;

    fn fault(arguments: &[&str]) -> String {
        let mut registry = Registry::new();
        let refuse = |input: &FactoryInput| {
            if input.config.as_deref().is_some_and(|text| text.contains("hots:")) {
                input.warn(ConfigProblem::new("", "\"hots\" is not known; did you mean hosts?"));
            }
            Err(Error::invalid_configuration(vec![ConfigProblem::new("hosts", "is missing or empty")]))
        };
        registry.register("known", refuse).expect("free");
        let flags = flags::parse(["ccm"].iter().chain(arguments)).expect("a good command line");
        CloudConfig::new(&flags, &registry).create(&FilesRead::new()).expect_err("refused").to_string()
    }

    #[test]
    fn a_refusal_tells_what_may_explain_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hots: [a]\n").expect("written");
        let fault = fault(&["--cloud-provider=known", &format!("--cloud-config={}", file.path().display())]);
        assert!(fault.contains("hosts: is missing or empty"), "{fault}");
        assert!(fault.ends_with("; beside that: \"hots\" is not known; did you mean hosts?"), "{fault}");
    }

    #[test]
    fn a_file_that_is_no_text_is_named_for_what_it_is() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let arguments = ["--cloud-provider=known", &format!("--cloud-config={}", file.path().display())];
        for (bytes, part) in [
            (&b"h\0o\0s\0t\0"[..], "the file is UTF-16 without a byte order mark"),
            (b"hosts: [\xe4]", "the file is not UTF-8: line 1"),
            (b"\xff\xfeh\0o\0t\0s\0:\0", "beside that: the file is UTF-16"),
        ] {
            std::fs::write(file.path(), bytes).expect("written");
            assert!(fault(&arguments).contains(part), "{}", fault(&arguments));
        }
    }

    #[test]
    fn what_is_to_blame_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let config = format!("--cloud-config={}", file.path().display());
        let missing =
            "could not init cloud provider \"known\": invalid configuration: hosts: is missing or empty";
        assert_eq!(fault(&["--cloud-provider=known"]), format!("{missing} (--cloud-config is not given)"));
        assert_eq!(
            fault(&["--cloud-provider=known", &config]),
            format!("{missing} (--cloud-config {})", file.path().display())
        );
        assert!(fault(&["--cloud-provider=known", "--cloud-config=/no/such"]).contains("/no/such"));
        // Whether there is a file of another program's provider does not matter.
        for config in [config.as_str(), "--cloud-config=/no/such"] {
            assert_eq!(
                fault(&["--cloud-provider=openstack", config]),
                "unknown cloud provider \"openstack\" (known: known) (--cloud-provider)"
            );
        }
    }

    #[test]
    fn a_provider_of_machines_is_named_with_its_flag() {
        let mut registry = Registry::new();
        let refuse = |_: &FactoryInput| {
            Err(Error::invalid_configuration(vec![ConfigProblem::new("hosts", "is missing or empty")]))
        };
        registry.register("known", refuse).expect("free");
        let fault = |text: &str| {
            let provider = MachineProvider::parse(text).expect("a provider");
            let config = CloudConfig::of_machines(&provider, &registry);
            config.create(&FilesRead::new()).expect_err("refused").to_string()
        };
        assert_eq!(fault("other"), "unknown cloud provider \"other\" (known: known) (--machine-provider)");
        let missing = fault("known");
        assert!(
            missing.ends_with("(--machine-provider known names no file; expected known=FILE)"),
            "{missing}"
        );
        assert_eq!(fault("known=/no/such"), "--machine-provider known=/no/such: the file cannot be read");
    }
}

//! The cloud's configuration: read at the start, and again whenever `--cloud-config` or a file that it names changes.
//!
//! A new version is made into a provider of its own, which starts beside the one at work. It takes over when it answers
//! for every Node at least as well; until then, and if it never does, the version before stays in force.

mod comparison;
mod follower;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow};
use cloudprovider::{CloudProvider, ErrorKind, FactoryInput, Registry};

pub use follower::Follower;

use crate::{files::FilesRead, flags::Flags};

/// Where the configuration is, and which provider it is for.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    registry: Registry,
    provider: String,
    path: Option<PathBuf>,
}

impl CloudConfig {
    /// What the flags name.
    pub fn new(flags: &Flags, registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            provider: flags.generic.cloud_provider.clone(),
            path: flags.generic.cloud_config.clone(),
        }
    }

    /// Reads it, checks it, and makes a provider from it. Calls nobody, and notes in `read` what it reads.
    ///
    /// # Errors
    /// An unreadable file, an unknown provider, or every fault in its configuration.
    pub fn create(&self, read: &FilesRead) -> anyhow::Result<Arc<dyn CloudProvider>> {
        let is_known = self.registry.names().any(|name| name == self.provider);
        let input = match &self.path {
            // Nobody can say what is wrong with the file of a provider that there is not.
            Some(path) if is_known => {
                let cannot = || format!("--cloud-config {}: the file cannot be read", path.display());
                let text = read.read(path).with_context(cannot)?;
                let text = String::from_utf8(text)
                    .map_err(|_| anyhow!("--cloud-config {}: the file is not UTF-8", path.display()))?;
                FactoryInput::new(text).with_path(path)
            }
            _ => FactoryInput::default(),
        };
        let reader = read.clone();
        let input = input.with_reader(move |path| reader.read(path));
        self.registry.create(&self.provider, &input).map_err(|error| {
            let file = match &self.path {
                Some(path) if is_known => format!(" (--cloud-config {})", path.display()),
                None if error.kind() == ErrorKind::InvalidConfiguration => {
                    " (--cloud-config is not given)".to_owned()
                }
                _ => String::new(),
            };
            anyhow!("{}{file}", error.report())
        })
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{ConfigProblem, Error};

    use super::*;
    use crate::flags;

    fn fault(arguments: &[&str]) -> String {
        let mut registry = Registry::new();
        let refuse = |_: &FactoryInput| {
            Err(Error::invalid_configuration(vec![ConfigProblem::new("hosts", "is missing or empty")]))
        };
        registry.register("known", refuse).expect("free");
        let flags = flags::parse(["ccm"].iter().chain(arguments)).expect("a good command line");
        CloudConfig::new(&flags, &registry).create(&FilesRead::new()).expect_err("refused").to_string()
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
        // A file of another program's provider is not the fault, be it there or not.
        for config in [config.as_str(), "--cloud-config=/no/such"] {
            assert_eq!(
                fault(&["--cloud-provider=openstack", config]),
                "unknown cloud provider \"openstack\" (known: known)"
            );
        }
    }
}

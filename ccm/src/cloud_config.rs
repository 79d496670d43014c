//! The cloud's configuration: read at the start, and again whenever `--cloud-config` or a file that it names changes.
//!
//! A new version is made into a provider of its own, which starts beside the one at work. It takes over when it answers
//! for every Node at least as well; until then, and if it never does, the version before stays in force.

mod comparison;
mod follower;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow};
use cloudprovider::{CloudProvider, FactoryInput, Registry};

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
        let input = match &self.path {
            Some(path) => {
                let cannot = || format!("--cloud-config {}: the file cannot be read", path.display());
                let text = read.read(path).with_context(cannot)?;
                let text = String::from_utf8(text)
                    .map_err(|_| anyhow!("--cloud-config {}: the file is not UTF-8", path.display()))?;
                FactoryInput::new(text).with_path(path)
            }
            None => FactoryInput::default(),
        };
        let reader = read.clone();
        let input = input.with_reader(move |path| reader.read(path));
        self.registry.create(&self.provider, &input).map_err(|error| {
            let file = self.path.as_ref().map(|path| format!(" (--cloud-config {})", path.display()));
            anyhow!("{}{}", error.report(), file.unwrap_or_default())
        })
    }
}

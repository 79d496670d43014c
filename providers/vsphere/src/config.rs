//! The configuration: the file that CPI reads, in either of its formats, checked as a whole.
//!
//! ```text
//!   YAML ─┐
//!         ├──> read (provider_kit, by the table in keys) ──> Settings <── Environment
//!   INI  ─┘                                                    └──> build ──> Config
//! ```
//!
//! Everything that CPI accepts is accepted, with the same meaning. A key that has no effect here gets a
//! warning.

mod allow;
mod build;
mod environment;
mod keys;
mod names;
mod parts;
mod read;
#[cfg(test)]
mod reference;

use cloudprovider::{ConfigProblem, Error, Result};
pub use provider_kit::Environment;
use provider_kit::Findings;

pub(crate) use self::allow::AllowEntry;
#[cfg(test)]
pub(crate) use self::allow::read as read_allow;
#[cfg(feature = "machines")]
pub(crate) use self::allow::{ALLOW, ObjectPattern, WordPattern};
pub use self::parts::Config;
pub(crate) use self::parts::{
    CredentialPlaces, MachineOptions, NsxParts, SecretPlace, VCenterConfig, ZoneLabels,
};

impl Config {
    /// Reads and checks a configuration in either format.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`](cloudprovider::ErrorKind::InvalidConfiguration) with every fault, each
    /// with the place where it stands and without any value that may be a secret.
    pub fn parse(text: &str, environment: &Environment) -> Result<Self> {
        Self::read(text, environment).0
    }

    /// Like [`parse`](Self::parse), but the warnings are returned even if the configuration is refused.
    pub(crate) fn read(text: &str, environment: &Environment) -> (Result<Self>, Vec<ConfigProblem>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut findings = Findings::default();
        let settings = read::read(text, environment, &mut findings);
        let config = settings.map(|settings| build::build(&settings, environment, &mut findings));
        let warnings = findings.warnings.clone();
        let outcome = match config {
            Some(config) if findings.problems.is_empty() => {
                Ok(Self { warnings: findings.warnings, ..config })
            }
            _ => Err(Error::invalid_configuration(findings.problems)),
        };
        (outcome, warnings)
    }

    /// Warnings for the operator: values that are probably a mistake, and keys that have no effect.
    pub fn warnings(&self) -> &[ConfigProblem] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests;

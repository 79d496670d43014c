//! The configuration: the file that CPI reads, in either of its formats, checked as a whole.
//!
//! ```text
//!   YAML ──> read_yaml ─┐
//!   INI  ──> gcfg ──> read_ini ──> Settings <── Environment      (one form, by the table in keys)
//!                                     └──> build ──> Config
//! ```
//!
//! Everything that CPI accepts is accepted, with the same meaning. A key that has no effect here gets a
//! warning.

mod allow;
mod build;
mod environment;
mod hints;
mod keys;
mod names;
mod parts;
mod read_ini;
mod read_yaml;
#[cfg(test)]
mod reference;
mod settings;

use cloudprovider::{ConfigProblem, Error, Result};

#[cfg(test)]
pub(crate) use self::allow::read as read_allow;
pub(crate) use self::allow::{ALLOW, AllowEntry, ObjectPattern, WordPattern};
pub(crate) use self::parts::{
    CredentialPlaces, MachineOptions, NsxParts, SecretPlace, VCenterConfig, ZoneLabels,
};
use self::settings::Findings;
pub use self::{environment::Environment, parts::Config};

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
        let mut settings = if is_ini(text) {
            read_ini::read(text, &mut findings)
        } else {
            read_yaml::read(text, environment.has_vcenter(), &mut findings)
        };
        // If nothing could be read, missing keys are not reported as well.
        let is_readable = findings.problems.is_empty() || !settings.is_empty();
        environment.apply(&mut settings, &mut findings);
        let config = is_readable.then(|| build::build(&settings, environment, &mut findings));
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

/// Whether a text is in the INI format: it begins with a section header, which YAML would read as a list. CPI
/// tries YAML first and then INI, with the same result.
fn is_ini(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim_start)
        .find(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .is_some_and(|line| line.starts_with('['))
}

#[cfg(test)]
mod tests;

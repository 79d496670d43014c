//! The configuration: what an operator writes, checked as a whole.
//!
//! ```text
//!   gcfg ──┐
//!          ├──> read (provider_kit, by the table in keys) ──> Settings ──> build ──> Config
//!   YAML ──┘                                                     ^
//!   CATTLE_* ────────────────────────────────────────────────────┘
//! ```

mod build;
#[cfg(feature = "cattle")]
mod cattle;
mod files;
mod harvester;
mod keys;
mod load_balancer;
mod management;
mod parts;
mod read;
mod server;
mod url;
mod version;
mod words;

use cloudprovider::{Error, FactoryInput, Result};
use provider_kit::Findings;

#[cfg(feature = "cattle")]
pub use cattle::{AddressTypes, CattleConfig, ReservedPorts};
pub use harvester::{HarvesterAnnouncer, HarvesterConfig, Ipam, PoolAnnotation};
pub use load_balancer::{LoadBalancerConfig, LoadBalancerMode};
pub use parts::{
    AddressRules, ClusterSelector, Config, Credentials, ManagementConfig, ServerConfig, ZoneRules,
};
pub use provider_kit::Environment;
pub use words::ApiVersion;

impl Config {
    /// Reads and checks a configuration with the files that it names. The contents of these files become part
    /// of it. Warnings go to the input.
    ///
    /// # Errors
    /// [`InvalidConfiguration`](cloudprovider::ErrorKind::InvalidConfiguration) with every fault found.
    pub fn read(input: &FactoryInput, environment: &Environment) -> Result<Self> {
        let mut findings = Findings::default();
        let text = input.config.as_deref().unwrap_or_default();
        let settings = read::read(text, environment, &mut findings);
        let config = settings.map(|settings| build::build(&settings, input, &mut findings));
        for warning in findings.warnings {
            input.warn(warning);
        }
        match config.flatten() {
            Some(config) if findings.problems.is_empty() => Ok(config),
            _ => Err(Error::invalid_configuration(findings.problems)),
        }
    }
}

#[cfg(test)]
mod tests;

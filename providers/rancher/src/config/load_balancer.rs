//! The section `loadBalancer`.

use std::{fmt, time::Duration};

use provider_kit::{Findings, Settings};

use super::words::{ApiVersion, words};

/// Settings of load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancerConfig {
    /// What runs load balancers.
    pub mode: LoadBalancerMode,
    /// When a load balancer that Rancher still works on is looked at again. Default 2 s.
    pub retry_interval: Duration,
}

words! {
    /// What runs the load balancers of Services.
    LoadBalancerMode:
    /// Nothing: Services of type `LoadBalancer` are left to others. The default with Rancher 2.x.
    None = "none",
    /// Cattle's own load balancers. Rancher 1.6 only, and the default there.
    Cattle = "cattle",
    /// Addresses of the pools in the section `addressPools`, and the default if there is one.
    Pool = "pool",
    /// Load balancers of Harvester.
    Harvester = "harvester"
}

/// Reads the section. `version` is what the configuration says of the server.
pub(super) fn load_balancer(
    settings: &Settings,
    version: ApiVersion,
    retry_interval: Duration,
    findings: &mut Findings,
) -> LoadBalancerConfig {
    let mode = settings
        .word("loadBalancer.mode", (LoadBalancerMode::ALL, LoadBalancerMode::as_str), findings)
        .unwrap_or(match version {
            _ if settings.tree(address_pools::Config::KEY).is_some() => LoadBalancerMode::Pool,
            ApiVersion::V3 => LoadBalancerMode::None,
            ApiVersion::Auto | ApiVersion::V2Beta => LoadBalancerMode::Cattle,
        });
    if version == ApiVersion::V3 && mode == LoadBalancerMode::Cattle {
        let why = "cattle needs Rancher 1.6: Rancher 2.x has no load balancers of its own";
        findings.problem(settings.origin("loadBalancer.mode"), why);
    }
    LoadBalancerConfig { mode, retry_interval }
}

/// Reads the section `addressPools`, which only the mode `pool` uses.
pub(super) fn address_pools(
    settings: &Settings,
    mode: LoadBalancerMode,
    findings: &mut Findings,
) -> Option<address_pools::Config> {
    let (key, origin) = (address_pools::Config::KEY, settings.origin("loadBalancer.mode"));
    let section = settings.tree(key);
    let pools = section.and_then(|value| address_pools::Config::read(key, value, findings));
    match (mode, section.is_some()) {
        (LoadBalancerMode::Pool, true) => return pools,
        (LoadBalancerMode::Pool, false) => {
            findings.problem(origin, format!("is pool, which needs the section {key}; list pools there"));
        }
        (other, true) if settings.has("loadBalancer.mode") => {
            findings.problem(
                origin,
                format!("is {other}, and there are {key}; set it to pool, or leave {key} out"),
            );
        }
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests;
